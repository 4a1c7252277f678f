#include "update/landing.h"

#include <cstring>

namespace changeover::update {

Landing::Landing(Mode mode, Applier& applier, std::span<const LiveParameter> live,
                 std::span<const LiveParameter> second, std::span<std::byte> journal,
                 BulkCopier* copier)
    : mode_(mode),
      applier_(applier),
      live_(live),
      second_(second),
      journal_(applier.journal_slots(), mode == Mode::kJournal ? journal : std::span<std::byte>()),
      copier_(copier) {
  if (writes_live()) {
    memory_bytes_ = mode == Mode::kJournal ? journal.size() : 0;
    return;
  }
  for (size_t i = 0; i < second_.size(); ++i) {
    // The caller has checked the parameters: the count does not overflow.
    const auto bytes =
        static_cast<uint64_t>(*byte_count(second_[i].spec.dtype, second_[i].spec.shape));
    memory_bytes_ += bytes;
    if (mode == Mode::kStaged && bytes > 0) {
      copies_.push_back({live_[i].data, second_[i].data, bytes});
    }
  }
}

void Landing::start(uint32_t live_half) {
  journal_.clear();
  if (mode_ == Mode::kStaged) {
    applier_.set_target(second_);
  } else if (swaps()) {
    applier_.set_target(live_half == 0 ? second_ : live_);
  }
}

void Landing::change_over() {
  if (copier_ != nullptr) {
    copier_->copy(copies_);
    return;
  }
  for (const BulkCopy& one : copies_) {
    std::memcpy(one.to, one.from, one.bytes);
  }
}

bool Landing::undo(bool wrote) const {
  if (!wrote) {
    return true;
  }
  if (journal_.on()) {
    journal_.restore();
  }
  return journal_.on();
}

}  // namespace changeover::update
