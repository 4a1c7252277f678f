// Runs of one source tensor's bytes into the live memory of the pieces it feeds: copied or cast.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <changeover/load_plan.h>
#include <changeover/parameter_store.h>
#include <changeover/status.h>

#include "tensor/copy.h"
#include "update/journal.h"

namespace changeover::update {

// The plan's pieces made ready once; writing allocates nothing. Movable; a Journal made of its
// slots must go with it (entries keep their addresses over a move).
class Applier {
 public:
  // kInvalidArgument where a piece cannot be compiled or its dtypes do not fit its op (rule T6).
  static Result<Applier> make(const LoadPlan& plan, std::span<const LiveParameter> parameters);

  std::vector<uint64_t> piece_bytes() const;
  std::vector<Journal::Slot> journal_slots() const;
  // From now on pieces go into these parameters: other memory of the same plan.
  void set_target(std::span<const LiveParameter> parameters);

  // Of each tensor: start_tensor(), then for its runs in order, from byte 0 and without gaps:
  // write() for each piece that touches() names, and end_run() once.
  void start_tensor(uint32_t item_bytes);
  bool touches(uint32_t piece, uint64_t begin, uint64_t bytes) const;
  // Returns the bytes written into the parameter.
  uint64_t write(uint32_t piece, uint64_t begin, std::span<const std::byte> run);
  void end_run(std::span<const std::byte> run);

 private:
  struct Entry {
    tensor::CompiledPiece piece;  // of a cast: over elements of the target's size
    std::byte* target = nullptr;
    uint32_t parameter = 0;
    bool cast = false;
    DType source_dtype = DType::kF32;
    DType target_dtype = DType::kF32;
  };
  // Elements are cast this many at a time, through a buffer of this object.
  static constexpr size_t kCastElements = 8192;
  using CastBuffer = std::array<std::byte, kCastElements * 4>;

  Applier() : cast_buffer_(std::make_unique<CastBuffer>()) {}
  uint64_t cast_elements(const Entry& entry, uint64_t first, const std::byte* elements,
                         uint64_t count);

  std::vector<Entry> entries_;  // by piece
  std::unique_ptr<CastBuffer> cast_buffer_;
  // The start of an element whose rest comes with the next run.
  std::array<std::byte, 8> carry_{};
  uint32_t carry_bytes_ = 0;
  uint32_t item_bytes_ = 1;
};

}  // namespace changeover::update
