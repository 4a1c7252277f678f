// The bytes that an update in `journal` mode overwrites, kept so that abort can put them back
// (rule T8). All of its memory is given once; an update allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/copy.h"

namespace changeover::update {

class Journal {
 public:
  // A piece of the plan and the live memory of its parameter.
  struct Slot {
    const tensor::CompiledPiece* piece = nullptr;
    std::byte* target = nullptr;
  };

  // `memory`: at least the sum of the pieces' bytes, or empty (then save() does nothing and
  // nothing can be restored). Slots' pieces and targets must outlive the journal.
  Journal(std::vector<Slot> slots, std::span<std::byte> memory);

  bool on() const { return !memory_.empty(); }
  // Other pieces of the same parameters; what was saved is forgotten.
  void set_slots(std::vector<Slot> slots);
  // Forgets everything saved.
  void clear();
  // Keeps the piece's old bytes unless it already did in this update. Before its first write.
  void save(uint32_t piece);
  // Puts back everything saved; the pieces' memory is then as it was at clear().
  void restore() const;

 private:
  std::vector<Slot> slots_;
  std::vector<uint64_t> offsets_;
  std::vector<bool> saved_;
  std::span<std::byte> memory_;
};

}  // namespace changeover::update
