// Where a publisher reads the new weights from.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <changeover/status.h>
#include <changeover/tensor.h>

namespace changeover {

// A set of named tensors in publishing order. One object serves one publisher at a time.
//
// Thread rules: the publisher calls from the thread that called publish(), and from no other.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // Names, dtypes, shapes, in the order they will travel. Called once per update (rule U3); the
  // list must stay valid and unchanged until end_update().
  virtual Result<std::span<const TensorSpec>> begin_update() = 0;

  // The bytes of specs[index]; valid until the next call of read() or end_update(). Called in
  // ascending order of index, once each (again, in the same order, if a digest pass is needed).
  virtual Result<TensorView> read(size_t index) = 0;

  // The publisher has made its last copy. Always called once per begin_update() that succeeded.
  virtual void end_update() = 0;

  // Grows whenever the memory behind the source was released and made anew; what a publisher
  // remembers about a source is keyed by it (rule U3).
  virtual uint64_t generation() const = 0;

  // True if someone may write the tensors while they are read. Such a source is digested again
  // after the last copy, and the update fails where the two digests differ (rules U1, U2).
  virtual bool may_change() const = 0;
};

// When a source may be read (rule U1). One of the two is said explicitly: there is no default.
struct ReadyNow {};
// Returns ok once the producer is done writing, kDeadline if it is not after `timeout`.
using ReadyEvent = std::function<Status(std::chrono::nanoseconds timeout)>;

// One tensor of a source made of the caller's own memory. Strided views are sent by value (rule
// W3), so a transposed or expanded tensor arrives as what it looks like.
struct NamedTensor {
  std::string name;
  TensorView view;
};

// A source over the caller's memory, which it must keep alive and unmoved. `may_change` as above.
// kInvalidArgument for a bad or double name, a shape that overflows, or a dtype the wire cannot
// name.
Result<std::unique_ptr<TensorSource>> make_memory_source(std::vector<NamedTensor> tensors,
                                                         bool may_change);

}  // namespace changeover
