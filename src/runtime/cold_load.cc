// A cold load: parameters straight from a checkpoint, element by element as the plan says. Every
// update is held to it, so it shares none of the code that moves an update's bytes: only how names
// are matched and one value is cast.
#include <array>
#include <cstring>
#include <map>
#include <vector>

#include <changeover/checkpoint.h>
#include <changeover/parameter_store.h>

#include "model/names.h"
#include "quant/cast.h"
#include "tensor/spec.h"

namespace changeover {
namespace {

// Visits every row (innermost dimension) of a piece: element offsets on both sides.
template <typename Visit>
void for_each_row(const Piece& piece, Visit&& visit) {
  const size_t dims = piece.source_view.dims.size();
  std::array<int64_t, kViewDimsMax> index{};
  for (const View::Dim& dim : piece.source_view.dims) {
    if (dim.extent == 0) {
      return;
    }
  }
  for (;;) {
    int64_t from = piece.source_view.offset;
    int64_t to = piece.target_view.offset;
    for (size_t d = 0; d + 1 < dims; ++d) {
      from += index[d] * piece.source_view.dims[d].stride;
      to += index[d] * piece.target_view.dims[d].stride;
    }
    visit(from, to);
    size_t d = dims < 2 ? 0 : dims - 1;
    while (d > 0 && ++index[d - 1] == piece.source_view.dims[d - 1].extent) {
      index[--d] = 0;
    }
    if (d == 0) {
      return;
    }
  }
}

void load_piece(const Piece& piece, const TensorView& source, const LiveParameter& target) {
  const int64_t from_bytes = dtype_bytes(source.dtype);
  const int64_t to_bytes = dtype_bytes(target.spec.dtype);
  const View::Dim one{1, 1};
  const View::Dim from_dim = piece.source_view.dims.empty() ? one : piece.source_view.dims.back();
  const View::Dim to_dim = piece.target_view.dims.empty() ? one : piece.target_view.dims.back();
  for_each_row(piece, [&](int64_t from, int64_t to) {
    const std::byte* in = source.data + from * from_bytes;
    std::byte* out = target.data + to * to_bytes;
    const bool rows = from_dim.stride == 1 && to_dim.stride == 1;
    const int64_t count = rows ? from_dim.extent : 1;
    for (int64_t i = 0; i < from_dim.extent; i += count) {
      if (piece.op == PieceOp::kCast) {
        quant::cast(source.dtype, in, target.spec.dtype, out, static_cast<size_t>(count));
      } else {
        std::memcpy(out, in, static_cast<size_t>(count * from_bytes));
      }
      in += from_dim.stride * from_bytes;
      out += to_dim.stride * to_bytes;
    }
  });
}

Status check_source(const Source& source, const TensorSpec& given) {
  if (given.dtype == source.spec.dtype && given.shape == source.spec.shape) {
    return {};
  }
  return {Code::kInvalidArgument,
          "tensor " + given.name + " is " + tensor::describe(given.dtype, given.shape) +
              ", the plan says " + tensor::describe(source.spec.dtype, source.spec.shape)};
}

bool same_bytes(const TensorView& a, const TensorView& b, size_t bytes) {
  return bytes == 0 || std::memcmp(a.data, b.data, bytes) == 0;
}

// Which tensor of the checkpoint feeds each source; names compared as an update would.
Result<std::vector<size_t>> match_sources(const LoadPlan& plan, const Checkpoint& checkpoint) {
  CHANGEOVER_TRY_ASSIGN(const auto resolver, model::NameResolver::make(plan));
  std::vector<std::string> offered;
  for (const TensorSpec& spec : checkpoint.specs()) {
    offered.push_back(spec.name);
  }
  CHANGEOVER_TRY(resolver.compare(offered).to_status());
  constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> feeds(plan.sources.size(), kNone);
  for (size_t i = 0; i < offered.size(); ++i) {
    const model::NameMatch match = resolver.match(offered[i]);
    if (match.kind != model::NameMatch::Kind::kSource) {
      continue;
    }
    const Source& source = plan.sources[match.source];
    CHANGEOVER_TRY(check_source(source, checkpoint.specs()[i]));
    size_t& feed = feeds[match.source];
    if (feed != kNone) {
      CHANGEOVER_TRY_ASSIGN(const int64_t bytes, byte_count(source.spec.dtype, source.spec.shape));
      if (!same_bytes(checkpoint.view(feed), checkpoint.view(i), static_cast<size_t>(bytes))) {
        return Status(Code::kInvalidArgument,
                      "tied tensors " + offered[feed] + " and " + offered[i] + " differ (rule T4)");
      }
    }
    feed = i;
  }
  return feeds;
}

}  // namespace

Result<std::unique_ptr<ParameterStore>> cold_load(const LoadPlan& plan, Checkpoint& checkpoint) {
  CHANGEOVER_TRY(prove_load_plan(plan));
  CHANGEOVER_TRY_ASSIGN(const auto feeds, match_sources(plan, checkpoint));
  CHANGEOVER_TRY_ASSIGN(auto store, ParameterStore::allocate(plan));
  for (const Piece& piece : plan.pieces) {
    load_piece(piece, checkpoint.view(feeds[piece.source]), store->parameters()[piece.parameter]);
  }
  return store;
}

}  // namespace changeover
