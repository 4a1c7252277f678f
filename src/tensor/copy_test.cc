#include "tensor/copy.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/prng.h"

namespace changeover::tensor {
namespace {

using base::Prng;
using Bytes = std::vector<std::byte>;

Bytes random_bytes(size_t count, uint64_t seed) {
  Bytes bytes(count);
  Prng(seed).fill(bytes);
  return bytes;
}

// The slow and obvious way: calls visit(source offset, target offset) per element.
template <typename Visit>
void for_each_element(const View& source, const View& target, const Visit& visit, size_t k = 0,
                      int64_t from = 0, int64_t to = 0) {
  if (k == source.dims.size()) {
    visit(source.offset + from, target.offset + to);
    return;
  }
  for (int64_t i = 0; i < source.dims[k].extent; ++i) {
    for_each_element(source, target, visit, k + 1, from + i * source.dims[k].stride,
                     to + i * target.dims[k].stride);
  }
}

int64_t first_element(const View& view, int64_t& last) {
  int64_t first = view.offset;
  last = view.offset;
  for (const View::Dim& dim : view.dims) {
    (dim.stride < 0 ? first : last) += dim.stride * (dim.extent - 1);
  }
  return first;
}

// A view that visits no element twice: row-major over a random order of the dimensions, with
// random holes and directions.
View injective_view(Prng& prng, std::span<const int64_t> extents) {
  View view;
  view.dims.resize(extents.size());
  std::vector<size_t> order(extents.size());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1 && prng.chance(0.7); --i) {
    std::swap(order[i - 1], order[prng.below(i)]);
  }
  int64_t stride = prng.chance(0.2) ? 2 : 1;
  for (const size_t k : order) {
    view.dims[k] = {extents[k], prng.chance(0.2) ? -stride : stride};
    stride *= extents[k] + (prng.chance(0.3) ? prng.between(0, 3) : 0);
  }
  int64_t last = 0;
  view.offset = -first_element(view, last) + prng.between(0, 3);
  return view;
}

// Any strides: overlapping, interleaved, 0.
View wild_view(Prng& prng, std::span<const int64_t> extents) {
  View view;
  for (const int64_t extent : extents) {
    view.dims.push_back({extent, prng.between(-4, 6)});
  }
  int64_t last = 0;
  view.offset = -first_element(view, last) + prng.between(0, 3);
  return view;
}

struct Scene {
  View source;
  View target;
  uint32_t item = 1;
  Bytes source_bytes;
  Bytes target_bytes;
  Bytes expected;
  uint64_t piece_bytes = 0;
};

Scene make_scene(uint64_t seed) {
  Prng prng(seed);
  Scene scene;
  std::vector<int64_t> extents(prng.below(6));
  for (int64_t& extent : extents) {
    extent = prng.between(1, 5);
  }
  constexpr uint32_t kItems[] = {1, 2, 3, 4, 8, 16};
  scene.item = kItems[prng.below(std::size(kItems))];
  scene.source = prng.chance(0.3) ? wild_view(prng, extents) : injective_view(prng, extents);
  scene.target = injective_view(prng, extents);
  const auto room = [&](const View& view) {
    int64_t last = 0;
    first_element(view, last);
    return static_cast<size_t>((last + 1 + prng.between(0, 2)) * scene.item);
  };
  scene.source_bytes = random_bytes(room(scene.source), seed + 1);
  scene.target_bytes = random_bytes(room(scene.target), seed + 2);
  scene.expected = scene.target_bytes;
  for_each_element(scene.source, scene.target, [&](int64_t from, int64_t to) {
    std::copy_n(scene.source_bytes.begin() + from * scene.item, scene.item,
                scene.expected.begin() + to * scene.item);
    scene.piece_bytes += scene.item;
  });
  return scene;
}

// Cuts [0, bytes) into runs of random sizes, an empty one now and then.
std::vector<std::pair<uint64_t, uint64_t>> cut(Prng& prng, uint64_t bytes) {
  std::vector<std::pair<uint64_t, uint64_t>> runs;
  const uint64_t step_max = prng.chance(0.3) ? 3 : 1 + prng.below(bytes + 1);
  for (uint64_t at = 0; at < bytes;) {
    const uint64_t step = std::min(prng.below(step_max + 1), bytes - at);
    runs.emplace_back(at, step);
    at += step;
  }
  return runs;
}

TEST(CompiledPiece, ExactForAnyViewsAndAnyCutIntoRuns) {
  EXPECT_TRUE(rc::check([](uint64_t seed) {
    Scene scene = make_scene(seed);
    const auto piece = CompiledPiece::compile(scene.source, scene.target, scene.item);
    RC_ASSERT(piece.ok());
    RC_ASSERT(piece->bytes() == scene.piece_bytes);
    Prng prng(seed + 3);
    auto runs = cut(prng, scene.source_bytes.size());
    if (prng.chance(0.3)) {
      std::reverse(runs.begin(), runs.end());
    }
    uint64_t copied = 0;
    for (const auto& [begin, bytes] : runs) {
      // A run of its own size on the heap, so that a sanitizer sees one byte too many.
      const Bytes run(scene.source_bytes.begin() + begin,
                      scene.source_bytes.begin() + begin + bytes);
      copied += piece->apply(begin, run, scene.target_bytes.data());
    }
    RC_ASSERT(copied == scene.piece_bytes);
    RC_ASSERT(scene.target_bytes == scene.expected);
  }));
}

TEST(CompiledPiece, GatherThenScatterRestoresExactlyTheTargetsBytes) {
  EXPECT_TRUE(rc::check([](uint64_t seed) {
    Scene scene = make_scene(seed);
    const auto piece = CompiledPiece::compile(scene.source, scene.target, scene.item);
    RC_ASSERT(piece.ok());
    const Bytes before = scene.target_bytes;
    Bytes kept(piece->bytes());
    piece->gather(scene.target_bytes.data(), kept.data());
    RC_ASSERT(piece->apply(0, scene.source_bytes, scene.target_bytes.data()) == kept.size());
    piece->scatter(kept.data(), scene.target_bytes.data());
    RC_ASSERT(scene.target_bytes == before);
  }));
}

TEST(CompiledPiece, BoundsHoldEveryByteThatIsTouched) {
  EXPECT_TRUE(rc::check([](uint64_t seed) {
    const Scene scene = make_scene(seed);
    const auto piece = CompiledPiece::compile(scene.source, scene.target, scene.item);
    RC_ASSERT(piece.ok());
    int64_t from_min = INT64_MAX;
    int64_t from_max = 0;
    int64_t to_min = INT64_MAX;
    int64_t to_max = 0;
    for_each_element(scene.source, scene.target, [&](int64_t from, int64_t to) {
      from_min = std::min(from_min, from);
      from_max = std::max(from_max, from);
      to_min = std::min(to_min, to);
      to_max = std::max(to_max, to);
    });
    RC_ASSERT(piece->source_begin() == static_cast<uint64_t>(from_min * scene.item));
    RC_ASSERT(piece->source_end() == static_cast<uint64_t>((from_max + 1) * scene.item));
    RC_ASSERT(piece->target_begin() == static_cast<uint64_t>(to_min * scene.item));
    RC_ASSERT(piece->target_end() == static_cast<uint64_t>((to_max + 1) * scene.item));
  }));
}

TEST(CompiledPiece, WholeRowsAreOneRange) {
  // Rows 2..3 of a [8, 4] matrix to rows 0..1 of a [2, 4] parameter.
  const auto piece = CompiledPiece::compile({8, {{2, 4}, {4, 1}}}, {0, {{2, 4}, {4, 1}}}, 2);
  ASSERT_TRUE(piece.ok());
  EXPECT_TRUE(piece->is_one_range());
  EXPECT_EQ(piece->source_begin(), 16u);
  EXPECT_EQ(piece->source_end(), 32u);
  EXPECT_EQ(piece->target_begin(), 0u);
  EXPECT_EQ(piece->target_end(), 16u);
  // Columns are not.
  const auto columns = CompiledPiece::compile({2, {{8, 4}, {2, 1}}}, {0, {{8, 2}, {2, 1}}}, 2);
  ASSERT_TRUE(columns.ok());
  EXPECT_FALSE(columns->is_one_range());
}

TEST(CompiledPiece, AnEmptyPieceCopiesNothing) {
  const auto piece = CompiledPiece::compile({0, {{0, 4}, {4, 1}}}, {0, {{0, 4}, {4, 1}}}, 4);
  ASSERT_TRUE(piece.ok());
  EXPECT_EQ(piece->bytes(), 0u);
  const Bytes run(64);
  EXPECT_EQ(piece->apply(0, run, nullptr), 0u);
  piece->gather(nullptr, nullptr);
  piece->scatter(nullptr, nullptr);
}

TEST(CompiledPiece, RefusesViewsThatDoNotMatchOrOverflow) {
  const auto fails = [](const View& source, const View& target, uint32_t item) {
    return CompiledPiece::compile(source, target, item).status().code() == Code::kInvalidArgument;
  };
  EXPECT_TRUE(fails({0, {{2, 1}}}, {0, {{3, 1}}}, 1));
  EXPECT_TRUE(fails({0, {{2, 1}}}, {0, {}}, 1));
  EXPECT_TRUE(fails({0, {{-2, 1}}}, {0, {{-2, 1}}}, 1));
  EXPECT_TRUE(fails({0, {{2, 1}}}, {0, {{2, 1}}}, 0));
  EXPECT_TRUE(fails({0, {{2, -1}}}, {0, {{2, 1}}}, 1));
  EXPECT_TRUE(fails({0, {{2, 1}}}, {0, {{2, -1}}}, 1));
  EXPECT_TRUE(fails({INT64_MAX, {}}, {0, {}}, 2));
  EXPECT_TRUE(fails({0, {{INT64_MAX, 2}}}, {0, {{INT64_MAX, 1}}}, 1));
  EXPECT_TRUE(fails({0, {{2, INT64_MIN}}}, {0, {{2, 1}}}, 1));
  EXPECT_TRUE(fails({0, {{2, INT64_MAX}, {2, INT64_MAX}}}, {0, {{2, 1}, {2, 2}}}, 1));
  const View nine{0, std::vector<View::Dim>(9, {1, 1})};
  EXPECT_TRUE(fails(nine, nine, 1));
}

Bytes pack_all(const TensorView& view) {
  const auto packer = Packer::open(view);
  EXPECT_TRUE(packer.ok()) << packer.status().to_string();
  Bytes out(packer->bytes());
  packer->pack(0, out);
  return out;
}

TEST(Packer, CaseB10_StridedTensorsArriveByValue) {
  const uint8_t x[] = {0, 1, 2, 3, 4, 5};
  const auto* data = reinterpret_cast<const std::byte*>(x);
  const auto expect = [](const Bytes& got, std::vector<uint8_t> wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    EXPECT_TRUE(std::ranges::equal(got, std::as_bytes(std::span(wanted))));
  };
  expect(pack_all({DType::kU8, {2}, {2}, data}), {0, 2});                    // x[::2]
  expect(pack_all({DType::kU8, {3, 2}, {1, 3}, data}), {0, 3, 1, 4, 2, 5});  // transposed
  expect(pack_all({DType::kU8, {2, 3}, {0, 1}, data}), {0, 1, 2, 0, 1, 2});  // expanded
  expect(pack_all({DType::kU8, {4}, {-1}, data + 3}), {3, 2, 1, 0});         // flipped
  expect(pack_all({DType::kU8, {2, 2}, {0, 0}, data + 1}), {1, 1, 1, 1});
  expect(pack_all({DType::kU16, {2, 1}, {2, 7}, data}), {0, 1, 4, 5});
  expect(pack_all({DType::kU8, {}, {}, data + 4}), {4});
  expect(pack_all({DType::kU8, {0, 3}, {1, 1}, nullptr}), {});
}

TEST(Packer, AnyRangeOfAnyViewEqualsTheSlowWay) {
  EXPECT_TRUE(rc::check([](uint64_t seed) {
    Prng prng(seed);
    TensorView view;
    constexpr DType kTypes[] = {DType::kU8, DType::kBF16, DType::kF32, DType::kF64};
    view.dtype = kTypes[prng.below(std::size(kTypes))];
    const int64_t item = dtype_bytes(view.dtype);
    std::vector<int64_t> extents(prng.below(6));
    for (int64_t& extent : extents) {
      extent = prng.between(1, 5);
    }
    const View layout = prng.chance(0.5) ? wild_view(prng, extents) : injective_view(prng, extents);
    int64_t last = 0;
    first_element(layout, last);
    const Bytes memory = random_bytes(static_cast<size_t>((last + 1) * item), seed + 1);
    view.data = memory.data() + layout.offset * item;
    for (const View::Dim& dim : layout.dims) {
      view.shape.push_back(dim.extent);
      view.strides.push_back(dim.stride);
    }
    Bytes wanted;
    for_each_element(layout, layout, [&](int64_t from, int64_t) {
      wanted.insert(wanted.end(), memory.begin() + from * item, memory.begin() + (from + 1) * item);
    });
    const auto packer = Packer::open(view);
    RC_ASSERT(packer.ok());
    RC_ASSERT(packer->bytes() == wanted.size());
    RC_ASSERT(packer->contiguous().empty() != is_contiguous(view));
    for (const auto& [begin, bytes] : cut(prng, wanted.size())) {
      Bytes out(bytes);
      packer->pack(begin, out);
      RC_ASSERT(std::equal(out.begin(), out.end(), wanted.begin() + begin));
    }
  }));
}

TEST(Packer, RefusesBadViews) {
  const std::byte data[16] = {};
  EXPECT_FALSE(Packer::open({DType::kU8, {2, 2}, {1}, data}).ok());
  EXPECT_FALSE(Packer::open({DType::kU8, {2}, {}, nullptr}).ok());
  EXPECT_FALSE(Packer::open({DType::kU8, {-1}, {}, data}).ok());
  EXPECT_FALSE(Packer::open({DType::kF4, {2, 2}, {1, 2}, data}).ok());
  EXPECT_FALSE(Packer::open({DType::kU8, {2, 2}, {INT64_MAX, 1}, data}).ok());
  EXPECT_TRUE(Packer::open({DType::kF4, {2, 2}, {2, 1}, data}).ok());
}

}  // namespace
}  // namespace changeover::tensor
