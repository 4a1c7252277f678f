#include "wire/slices.h"

#include <algorithm>
#include <string>

#include "base/utf8.h"
#include "tensor/spec.h"

namespace changeover::wire {

namespace {

Status corrupt(const std::string& name, const std::string& what) {
  return {Code::kCorrupt, "tensor " + base::quoted(name) + ": " + what + " (W6)"};
}

}  // namespace

Status SliceTracker::on_frame(std::span<const Entry> entries) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [](const Entry& entry) { return entry.slice.has_value(); });
  const Entry* part = found == entries.end() ? nullptr : &*found;
  CHANGEOVER_TRY(check_next(part));
  if (part == nullptr || part->is_last_part()) {
    next_ = 0;
    return {};
  }
  if (next_ == 0) {
    open_ = part->spec;
    total_ = part->slice->total;
  }
  next_ = part->slice->first + part->nbytes;
  return {};
}

Status SliceTracker::check_next(const Entry* part) const {
  if (next_ == 0) {
    return part == nullptr || part->slice->first == 0
               ? Status()
               : corrupt(part->spec.name, "its part from byte " +
                                              std::to_string(part->slice->first) +
                                              " is out of order, none came before it");
  }
  const std::string next = std::to_string(next_);
  if (part == nullptr || part->spec.name != open_.name) {
    return corrupt(open_.name, "its part from byte " + next + " must come next, " +
                                   (part == nullptr ? "a frame without one"
                                                    : "one of " + base::quoted(part->spec.name)) +
                                   " came");
  }
  if (part->spec != open_) {
    return corrupt(open_.name, "its first part says " + tensor::describe(open_.dtype, open_.shape) +
                                   ", a later one " +
                                   tensor::describe(part->spec.dtype, part->spec.shape));
  }
  const std::string first = std::to_string(part->slice->first);
  if (part->slice->first < next_) {
    return corrupt(open_.name,
                   "its part from byte " + first + " overlaps those that came, up to byte " + next);
  }
  if (part->slice->first > next_) {
    return corrupt(open_.name, "its part from byte " + first + " is out of order, byte " + next +
                                   " comes next");
  }
  return {};
}

Status SliceTracker::on_end() const {
  return next_ == 0
             ? Status()
             : corrupt(open_.name, "END came before its part from byte " + std::to_string(next_) +
                                       " of " + std::to_string(total_));
}

}  // namespace changeover::wire
