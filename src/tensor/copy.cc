#include "tensor/copy.h"

#include <algorithm>
#include <cstring>

#include "tensor/spec.h"

namespace changeover::tensor {

namespace {

template <size_t kBytes>
void copy_fixed(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride,
                int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_stride, from + i * from_stride, kBytes);
  }
}

// `count` blocks of `bytes` each. The element sizes get loops of their own, which the compiler
// turns into single loads and stores.
void copy_blocks(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride,
                 int64_t count, int64_t bytes) {
  switch (bytes) {
    case 1:
      return copy_fixed<1>(to, to_stride, from, from_stride, count);
    case 2:
      return copy_fixed<2>(to, to_stride, from, from_stride, count);
    case 4:
      return copy_fixed<4>(to, to_stride, from, from_stride, count);
    case 8:
      return copy_fixed<8>(to, to_stride, from, from_stride, count);
    case 16:
      return copy_fixed<16>(to, to_stride, from, from_stride, count);
    default:
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(to + i * to_stride, from + i * from_stride, static_cast<size_t>(bytes));
      }
  }
}

}  // namespace

Result<Packer> Packer::open(const TensorView& view) {
  CHANGEOVER_TRY(check_view(view));
  Packer packer;
  CHANGEOVER_TRY_ASSIGN(const int64_t bytes, byte_count(view.dtype, view.shape));
  packer.data_ = view.data;
  packer.bytes_ = static_cast<uint64_t>(bytes);
  packer.block_bytes_ = packer.bytes_;
  if (is_contiguous(view)) {
    return packer;
  }
  const int64_t item = dtype_bytes(view.dtype);
  packer.block_bytes_ = static_cast<uint64_t>(item);
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] == 1) {
      continue;
    }
    const Loop next{view.shape[i], view.strides[i] * item};
    Loop* outer = packer.loops_ > 0 ? &packer.loop_[packer.loops_ - 1] : nullptr;
    if (outer != nullptr && outer->stride_bytes == next.extent * next.stride_bytes) {
      *outer = {outer->extent * next.extent, next.stride_bytes};
    } else {
      packer.loop_[packer.loops_++] = next;
    }
  }
  if (packer.loops_ > 0 && packer.loop_[packer.loops_ - 1].stride_bytes == item) {
    packer.block_bytes_ *= static_cast<uint64_t>(packer.loop_[--packer.loops_].extent);
  }
  return packer;
}

std::span<const std::byte> Packer::contiguous() const {
  return block_bytes_ == bytes_ ? std::span(data_, bytes_) : std::span<const std::byte>();
}

void Packer::pack(uint64_t begin, std::span<std::byte> out) const {
  if (out.empty()) {
    return;
  }
  // Where `begin` lies: indices of its block, and how far into it.
  std::array<int64_t, kLoopsMax> index;
  uint64_t block = begin / block_bytes_;
  const std::byte* from = data_;
  for (int k = loops_; k-- > 0;) {
    const auto extent = static_cast<uint64_t>(loop_[k].extent);
    index[k] = static_cast<int64_t>(block % extent);
    block /= extent;
    from += index[k] * loop_[k].stride_bytes;
  }
  const auto block_bytes = static_cast<int64_t>(block_bytes_);
  auto skip = static_cast<int64_t>(begin % block_bytes_);
  std::byte* to = out.data();
  auto left = static_cast<int64_t>(out.size());
  while (true) {
    if (skip > 0 || left < block_bytes) {  // Part of a block, at either end of the range.
      const int64_t part = std::min(block_bytes - skip, left);
      std::memcpy(to, from + skip, static_cast<size_t>(part));
      to += part;
      left -= part;
      skip = 0;
      if (left == 0) {
        return;
      }
      if (loops_ > 0) {
        ++index[loops_ - 1];
        from += loop_[loops_ - 1].stride_bytes;
      }
    } else if (loops_ == 0) {
      std::memcpy(to, from, static_cast<size_t>(left));
      return;
    } else {
      const Loop& inner = loop_[loops_ - 1];
      const int64_t count = std::min(inner.extent - index[loops_ - 1], left / block_bytes);
      copy_blocks(to, block_bytes, from, inner.stride_bytes, count, block_bytes);
      to += count * block_bytes;
      left -= count * block_bytes;
      if (left == 0) {
        return;
      }
      index[loops_ - 1] += count;
      from += count * inner.stride_bytes;
    }
    for (int k = loops_ - 1; k > 0 && index[k] == loop_[k].extent; --k) {
      from += loop_[k - 1].stride_bytes - loop_[k].extent * loop_[k].stride_bytes;
      index[k] = 0;
      ++index[k - 1];
    }
  }
}

namespace {

// a * b + c where both steps fit.
bool multiply_add(int64_t a, int64_t b, int64_t c, int64_t& out) {
  return !__builtin_mul_overflow(a, b, &out) && !__builtin_add_overflow(out, c, &out);
}

int64_t divide_floor(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && a < 0 ? 1 : 0);
}
int64_t divide_ceil(int64_t a, int64_t b) {
  return -divide_floor(-a, b);
}

}  // namespace

Result<CompiledPiece> CompiledPiece::compile(const View& source, const View& target,
                                             uint32_t item_bytes) {
  const auto invalid = [](std::string_view why) { return Status(Code::kInvalidArgument, why); };
  if (item_bytes == 0 || source.dims.size() > kViewDimsMax ||
      source.dims.size() != target.dims.size()) {
    return invalid(
        "a piece's views need whole-byte elements and the same number of dimensions, "
        "at most 8");
  }
  const int64_t item = item_bytes;
  CompiledPiece piece;
  piece.block_bytes_ = item;
  int64_t bytes = item;
  int64_t source_first = 0;
  int64_t target_low = 0;
  int64_t target_high = 0;
  bool fits = multiply_add(source.offset, item, 0, source_first) &&
              multiply_add(target.offset, item, 0, piece.target_first_);
  target_low = piece.target_first_;
  fits = fits && multiply_add(piece.target_first_, 1, item, target_high);
  for (size_t i = 0; i < source.dims.size(); ++i) {
    const int64_t extent = source.dims[i].extent;
    if (extent < 0 || extent != target.dims[i].extent) {
      return invalid("dimension " + std::to_string(i) + " has extent " + std::to_string(extent) +
                     " in the source view and " + std::to_string(target.dims[i].extent) +
                     " in the target view");
    }
    if (extent == 0) {
      return CompiledPiece();
    }
    Loop loop{extent, 0, 0};
    int64_t source_reach = 0;
    int64_t target_reach = 0;
    fits = fits && multiply_add(source.dims[i].stride, item, 0, loop.source_stride) &&
           multiply_add(target.dims[i].stride, item, 0, loop.target_stride) &&
           multiply_add(loop.source_stride, extent - 1, 0, source_reach) &&
           multiply_add(loop.target_stride, extent - 1, 0, target_reach) &&
           multiply_add(bytes, extent, 0, bytes) && source_reach != INT64_MIN &&
           loop.source_stride != INT64_MIN && loop.target_stride != INT64_MIN;
    fits = fits && multiply_add(target_reach, 1, target_reach < 0 ? target_low : target_high,
                                target_reach < 0 ? target_low : target_high);
    if (fits && loop.source_stride < 0) {
      // Walked from its other end, so that the source is always read upwards.
      fits = multiply_add(source_reach, 1, source_first, source_first) &&
             multiply_add(target_reach, 1, piece.target_first_, piece.target_first_);
      loop.source_stride = -loop.source_stride;
      loop.target_stride = -loop.target_stride;
    }
    if (extent > 1) {
      piece.loop_[piece.loops_++] = loop;
    }
  }
  if (!fits || source_first < 0 || target_low < 0) {
    return invalid("a piece's view starts before its tensor or overflows 64 bits");
  }
  piece.bytes_ = static_cast<uint64_t>(bytes);
  CHANGEOVER_TRY(piece.arrange(item));
  int64_t source_end = 0;
  if (!multiply_add(source_first, 1, piece.source_span_[0], source_end)) {
    return invalid("a piece's source view overflows 64 bits");
  }
  piece.source_begin_ = static_cast<uint64_t>(source_first);
  piece.source_end_ = static_cast<uint64_t>(source_end);
  piece.target_begin_ = static_cast<uint64_t>(target_low);
  piece.target_end_ = static_cast<uint64_t>(target_high);
  return piece;
}

Status CompiledPiece::arrange(int64_t item) {
  // Outer loops take the longest strides of the source, so that a run meets few of their indices.
  // A stride of 0 (one source element, several targets) goes outermost: inside it all is visited.
  const auto rank = [](const Loop& loop) {
    return loop.source_stride == 0 ? INT64_MAX : loop.source_stride;
  };
  std::stable_sort(loop_.begin(), loop_.begin() + loops_,
                   [&](const Loop& a, const Loop& b) { return rank(a) > rank(b); });
  int merged = 0;
  for (int k = 0; k < loops_; ++k) {
    const Loop next = loop_[k];
    Loop* outer = merged > 0 ? &loop_[merged - 1] : nullptr;
    int64_t source_step = 0;
    int64_t target_step = 0;
    if (outer != nullptr && multiply_add(next.extent, next.source_stride, 0, source_step) &&
        multiply_add(next.extent, next.target_stride, 0, target_step) &&
        outer->source_stride == source_step && outer->target_stride == target_step) {
      *outer = {outer->extent * next.extent, next.source_stride, next.target_stride};
    } else {
      loop_[merged++] = next;
    }
  }
  loops_ = merged;
  if (loops_ > 0 && loop_[loops_ - 1].source_stride == item &&
      loop_[loops_ - 1].target_stride == item) {
    block_bytes_ = loop_[--loops_].extent * item;
  }
  source_span_[loops_] = block_bytes_;
  for (int k = loops_; k-- > 0;) {
    if (!multiply_add(loop_[k].source_stride, loop_[k].extent - 1, source_span_[k + 1],
                      source_span_[k])) {
      return {Code::kInvalidArgument, "a piece's source view overflows 64 bits"};
    }
  }
  return {};
}

// One apply(): the run, and where it goes.
struct CompiledPiece::Copier {
  const CompiledPiece& piece;
  int64_t begin;  // The run, in bytes of the source.
  int64_t end;
  const std::byte* run;
  std::byte* target;

  // Loops k and inner, known to lie within the run; `at` in source bytes, `to` in target bytes.
  void whole(int k, int64_t at, int64_t to) const {
    if (k == piece.loops_) {
      std::memcpy(target + to, run + (at - begin), static_cast<size_t>(piece.block_bytes_));
      return;
    }
    whole_range(k, at, to, piece.loop_[k].extent);
  }

  void whole_range(int k, int64_t at, int64_t to, int64_t count) const {
    const Loop& loop = piece.loop_[k];
    if (k + 1 == piece.loops_) {
      copy_blocks(target + to, loop.target_stride, run + (at - begin), loop.source_stride, count,
                  piece.block_bytes_);
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      whole(k + 1, at + i * loop.source_stride, to + i * loop.target_stride);
    }
  }

  // Loops k and inner, of which the run may hold a part. Returns the bytes copied.
  int64_t part(int k, int64_t at, int64_t to) const {
    if (k == piece.loops_) {
      const int64_t from = std::max(at, begin);
      const int64_t until = std::min(at + piece.block_bytes_, end);
      if (from >= until) {
        return 0;
      }
      std::memcpy(target + to + (from - at), run + (from - begin),
                  static_cast<size_t>(until - from));
      return until - from;
    }
    const Loop& loop = piece.loop_[k];
    const int64_t span = piece.source_span_[k + 1];
    // Indices that the run touches, [low, high), and among them those it holds whole.
    int64_t low = 0;
    int64_t high = loop.extent;
    int64_t whole_low = 0;
    int64_t whole_high = begin <= at && at + span <= end ? loop.extent : 0;
    if (loop.source_stride > 0) {
      const int64_t stride = loop.source_stride;
      low = std::clamp<int64_t>(divide_floor(begin - span - at, stride) + 1, 0, loop.extent);
      high = std::clamp<int64_t>(divide_ceil(end - at, stride), low, loop.extent);
      whole_low = std::clamp<int64_t>(divide_ceil(begin - at, stride), low, high);
      whole_high = std::clamp<int64_t>(divide_floor(end - span - at, stride) + 1, whole_low, high);
    }
    int64_t copied = 0;
    for (int64_t i = low; i < whole_low; ++i) {
      copied += part(k + 1, at + i * loop.source_stride, to + i * loop.target_stride);
    }
    if (whole_low < whole_high) {
      whole_range(k, at + whole_low * loop.source_stride, to + whole_low * loop.target_stride,
                  whole_high - whole_low);
      copied += (whole_high - whole_low) * piece.inner_bytes(k + 1);
    }
    for (int64_t i = std::max(whole_low, whole_high); i < high; ++i) {
      copied += part(k + 1, at + i * loop.source_stride, to + i * loop.target_stride);
    }
    return copied;
  }
};

int64_t CompiledPiece::inner_bytes(int k) const {
  int64_t bytes = block_bytes_;
  for (; k < loops_; ++k) {
    bytes *= loop_[k].extent;
  }
  return bytes;
}

uint64_t CompiledPiece::apply(uint64_t run_begin, std::span<const std::byte> run,
                              std::byte* target) const {
  if (run_begin >= source_end_ || run_begin + run.size() <= source_begin_) {
    return 0;
  }
  const Copier copier{*this, static_cast<int64_t>(run_begin),
                      static_cast<int64_t>(run_begin + run.size()), run.data(), target};
  return static_cast<uint64_t>(copier.part(0, static_cast<int64_t>(source_begin_), target_first_));
}

void CompiledPiece::gather(const std::byte* target, std::byte* out) const {
  if (bytes_ > 0) {
    gather_loop(0, target + target_first_, out);
  }
}

std::byte* CompiledPiece::gather_loop(int k, const std::byte* from, std::byte* out) const {
  if (k == loops_) {
    std::memcpy(out, from, static_cast<size_t>(block_bytes_));
    return out + block_bytes_;
  }
  const Loop& loop = loop_[k];
  if (k + 1 == loops_) {
    copy_blocks(out, block_bytes_, from, loop.target_stride, loop.extent, block_bytes_);
    return out + loop.extent * block_bytes_;
  }
  for (int64_t i = 0; i < loop.extent; ++i) {
    out = gather_loop(k + 1, from + i * loop.target_stride, out);
  }
  return out;
}

void CompiledPiece::scatter(const std::byte* in, std::byte* target) const {
  if (bytes_ > 0) {
    scatter_loop(0, in, target + target_first_);
  }
}

const std::byte* CompiledPiece::scatter_loop(int k, const std::byte* in, std::byte* to) const {
  if (k == loops_) {
    std::memcpy(to, in, static_cast<size_t>(block_bytes_));
    return in + block_bytes_;
  }
  const Loop& loop = loop_[k];
  if (k + 1 == loops_) {
    copy_blocks(to, loop.target_stride, in, block_bytes_, loop.extent, block_bytes_);
    return in + loop.extent * block_bytes_;
  }
  for (int64_t i = 0; i < loop.extent; ++i) {
    in = scatter_loop(k + 1, in, to + i * loop.target_stride);
  }
  return in;
}

}  // namespace changeover::tensor
