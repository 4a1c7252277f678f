// Where an update's bytes go until the decision, and how they become the live version: all that the
// four modes differ in (rules T8, T10).
//
//   mode      written into      undo                        change-over
//   in_place  live memory       cannot                      nothing left to do
//   journal   live memory       the saved bytes come back   nothing left to do
//   staged    a second copy     nothing to undo             copied into live memory
//   swap      the other half    nothing to undo             the other half is the live one
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <changeover/parameter_store.h>
#include <changeover/types.h>

#include "update/applier.h"
#include "update/bulk_copier.h"
#include "update/journal.h"

namespace changeover::update {

class Landing {
 public:
  // `second`: memory for another copy of the parameters (kStaged, kSwap), else empty. `journal`:
  // for kJournal, else empty. `copier` may be null. All must outlive it.
  Landing(Mode mode, Applier& applier, std::span<const LiveParameter> live,
          std::span<const LiveParameter> second, std::span<std::byte> journal, BulkCopier* copier);

  // Bytes go into live memory as they come, so the fence rises before the first (rule T7).
  bool writes_live() const { return mode_ == Mode::kInPlace || mode_ == Mode::kJournal; }
  bool swaps() const { return mode_ == Mode::kSwap; }
  // The half that will be live after change_over(), when this one is now.
  uint32_t next_half(uint32_t live_half) const { return swaps() ? live_half ^ 1 : live_half; }
  // What the mode holds beside live memory (rule R4).
  uint64_t memory_bytes() const { return memory_bytes_; }

  // The applier is of another plan for the same parameters.
  void replan() { journal_.set_slots(applier_.journal_slots()); }
  // An update begins: pieces go where this mode wants them.
  void start(uint32_t live_half);
  // Before the first byte of this piece is written.
  void before_write(uint32_t piece) { journal_.save(piece); }
  // The whole version has landed: live memory holds it from now on. Cannot fail.
  void change_over();
  // False: live memory is a mix, because it was written (`wrote`) and nothing was kept.
  bool undo(bool wrote) const;

 private:
  const Mode mode_;
  Applier& applier_;
  const std::span<const LiveParameter> live_;
  const std::span<const LiveParameter> second_;
  Journal journal_;
  std::vector<BulkCopy> copies_;  // kStaged: second half to live memory
  BulkCopier* const copier_;
  uint64_t memory_bytes_ = 0;
};

}  // namespace changeover::update
