#include "update/journal.h"

#include <algorithm>
#include <utility>

namespace changeover::update {

Journal::Journal(std::vector<Slot> slots, std::span<std::byte> memory) : memory_(memory) {
  set_slots(std::move(slots));
}

void Journal::set_slots(std::vector<Slot> slots) {
  slots_ = std::move(slots);
  saved_.assign(slots_.size(), false);
  offsets_.clear();
  uint64_t offset = 0;
  for (const Slot& slot : slots_) {
    offsets_.push_back(offset);
    offset += slot.piece->bytes();
  }
}

void Journal::clear() {
  std::fill(saved_.begin(), saved_.end(), false);
}

void Journal::save(uint32_t piece) {
  if (!on() || saved_[piece]) {
    return;
  }
  saved_[piece] = true;
  slots_[piece].piece->gather(slots_[piece].target, memory_.data() + offsets_[piece]);
}

void Journal::restore() const {
  for (size_t piece = 0; piece < slots_.size(); ++piece) {
    if (saved_[piece]) {
      slots_[piece].piece->scatter(memory_.data() + offsets_[piece], slots_[piece].target);
    }
  }
}

}  // namespace changeover::update
