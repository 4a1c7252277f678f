// Bytes between strided memory and the C-order sequence that travels: the heart of the data path.
//
// Nothing here allocates once compiled, and everything is exact for any cut of the sequence into
// runs, also inside an element.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <changeover/load_plan.h>
#include <changeover/status.h>
#include <changeover/tensor.h>

namespace changeover::tensor {

inline constexpr int kLoopsMax = kTensorDimsMax;

// A strided view made ready to be read in C order, any range at a time.
class Packer {
 public:
  // kInvalidArgument as check_view(). The view's memory must outlive the packer.
  static Result<Packer> open(const TensorView& view);

  uint64_t bytes() const { return bytes_; }

  // The view's whole content where it lies back to back: nothing needs packing then. Else empty.
  std::span<const std::byte> contiguous() const;

  // Writes bytes [begin, begin + out.size()) of the C-order sequence into `out`.
  // REQUIRES: the range lies within bytes().
  void pack(uint64_t begin, std::span<std::byte> out) const;

 private:
  struct Loop {
    int64_t extent = 0;
    int64_t stride_bytes = 0;
  };
  Packer() = default;

  const std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t block_bytes_ = 0;  // Bytes that lie together: an element, or the inner rows.
  int loops_ = 0;
  std::array<Loop, kLoopsMax> loop_{};  // Outer to inner, neighbours merged.
};

// One piece of a load plan (source view -> target view, bytes copied unchanged) made ready to be
// applied run by run. Compile once per plan. Immutable afterwards: any thread may apply it, two
// runs at once only to different bytes.
class CompiledPiece {
 public:
  // `item_bytes` is the element size of both sides. kInvalidArgument where the views differ in
  // extents, have more than kViewDimsMax dimensions, start before their tensor or overflow. That
  // they end within their tensors (source_end(), target_end()) and that no target element is
  // visited twice is the plan's proof. A source element may go to several targets (stride 0).
  static Result<CompiledPiece> compile(const View& source, const View& target, uint32_t item_bytes);

  // Bytes written when the whole source was applied once.
  uint64_t bytes() const { return bytes_; }
  // The piece lies within bytes [source_begin, source_end) of the source's C-order sequence and
  // within [target_begin, target_end) of the parameter.
  uint64_t source_begin() const { return source_begin_; }
  uint64_t source_end() const { return source_end_; }
  uint64_t target_begin() const { return target_begin_; }
  uint64_t target_end() const { return target_end_; }

  // True if both sides are one range without holes, in one order. Then a road may write source
  // bytes [source_begin, source_end) to the parameter's [target_begin, target_end) directly.
  bool is_one_range() const { return loops_ == 0; }

  // Copies what `run`, the source tensor's bytes [run_begin, run_begin + run.size()), holds of this
  // piece to the parameter at `target`, and returns the number of bytes written. Over a partition
  // of the source into runs, in any order, that adds up to bytes().
  uint64_t apply(uint64_t run_begin, std::span<const std::byte> run, std::byte* target) const;

  // The piece's target bytes, packed: bytes() of them, in an order that gather and scatter share.
  void gather(const std::byte* target, std::byte* out) const;
  void scatter(const std::byte* in, std::byte* target) const;

 private:
  struct Loop {
    int64_t extent = 0;
    int64_t source_stride = 0;  // Bytes, not negative; loops are sorted by it, outer first.
    int64_t target_stride = 0;  // Bytes, either sign.
  };
  struct Copier;
  CompiledPiece() = default;
  Status arrange(int64_t item);
  int64_t inner_bytes(int k) const;  // Of one pass over loops k and inner.
  std::byte* gather_loop(int k, const std::byte* from, std::byte* out) const;
  const std::byte* scatter_loop(int k, const std::byte* in, std::byte* to) const;

  uint64_t bytes_ = 0;
  uint64_t source_begin_ = 0;
  uint64_t source_end_ = 0;
  uint64_t target_begin_ = 0;
  uint64_t target_end_ = 0;
  int64_t target_first_ = 0;  // Where the loops start in the target.
  int64_t block_bytes_ = 0;   // Bytes that lie together on both sides.
  int loops_ = 0;
  std::array<Loop, kViewDimsMax> loop_{};
  // Bytes of source from the first to one past the last byte of loop k and those inside it; the
  // block itself for k = loops_.
  std::array<int64_t, kViewDimsMax + 1> source_span_{};
};

}  // namespace changeover::tensor
