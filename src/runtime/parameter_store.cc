// ParameterStore: memory of its own (lendable, replaceable), or an engine's.
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>

#include <changeover/parameter_store.h>

#include <fcntl.h>

#include "base/digest.h"
#include "os/error.h"
#include "os/mapping.h"
#include "tensor/spec.h"

namespace changeover {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr const char* kMemoryNames[] = {"changeover-parameters", "changeover-second-half"};

Result<size_t> bytes_of(const TensorSpec& spec) {
  const auto bytes = byte_count(spec.dtype, spec.shape);
  if (!bytes.ok()) {
    return bytes.status().with_context("parameter " + spec.name);
  }
  return static_cast<size_t>(*bytes);
}

// One memfd mapping for all parameters, each on a page of its own: a page that another process
// wrote to holds one parameter, and a parameter's address suits any vector load.
class OwnedHalf {
 public:
  static Result<OwnedHalf> make(const std::vector<TensorSpec>& specs, uint32_t id) {
    std::vector<size_t> offsets;
    size_t total = 0;
    for (const TensorSpec& spec : specs) {
      CHANGEOVER_TRY_ASSIGN(const size_t bytes, bytes_of(spec));
      offsets.push_back(total);
      const size_t pages = bytes / kPageBytes + (bytes % kPageBytes != 0 ? 1 : 0);
      if (__builtin_add_overflow(total, pages * kPageBytes, &total)) {
        return Status(Code::kInvalidArgument,
                      "the parameters' sizes add up to more than 2^64 bytes, at " + spec.name);
      }
    }
    total = std::max(total, kPageBytes);
    OwnedHalf half;
    CHANGEOVER_TRY_ASSIGN(half.fd_, os::create_memory(kMemoryNames[id], total));
    CHANGEOVER_TRY_ASSIGN(half.mapping_, os::Mapping::map(half.fd_, total, os::Access::kReadWrite));
    for (size_t i = 0; i < offsets.size(); ++i) {
      half.parameters_.push_back({specs[i], half.mapping_.data() + offsets[i]});
    }
    half.region_ = {id, 1, total, half.mapping_.data()};
    return half;
  }

  std::span<const LiveParameter> parameters() const { return parameters_; }
  const ParameterStore::Region& region() const { return region_; }

  Result<int> lend() const {
    const int fd = fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
      return os::os_error("lend a region of the parameters", errno);
    }
    return fd;
  }

  Status replace() {
    CHANGEOVER_TRY(os::replace_in_place(mapping_, fd_, kMemoryNames[region_.id]));
    ++region_.generation;
    return {};
  }

 private:
  os::Fd fd_;
  os::Mapping mapping_;
  ParameterStore::Region region_;
  std::vector<LiveParameter> parameters_;
};

// Half 0 is our own memory or the engine's; half 1 is always our own.
class Store final : public ParameterStore {
 public:
  Store(const LoadPlan& plan, std::vector<LiveParameter> adopted)
      : specs_(plan.parameters), adopted_(std::move(adopted)) {
    for (const Padding& padding : plan.paddings) {
      padded_.push_back(padding.parameter);
    }
  }

  Status own(uint32_t index) {
    CHANGEOVER_TRY_ASSIGN(OwnedHalf half, OwnedHalf::make(specs_, index));
    halves_[index].emplace(std::move(half));
    list_regions();
    return {};
  }

  std::span<const LiveParameter> half(uint32_t index) const override {
    if (index < halves_.size() && halves_[index]) {
      return halves_[index]->parameters();
    }
    return index == 0 ? std::span<const LiveParameter>(adopted_) : std::span<const LiveParameter>();
  }

  Status add_half() override {
    if (halves_[1]) {
      return {};
    }
    if (Status status = own(1); !status.ok()) {
      return status.with_context("a second copy of the parameters");
    }
    // Padding is never written, and reads the same in both halves.
    for (const uint32_t parameter : padded_) {
      CHANGEOVER_TRY_ASSIGN(const size_t bytes, bytes_of(specs_[parameter]));
      std::memcpy(half(1)[parameter].data, half(0)[parameter].data, bytes);
    }
    return {};
  }

  std::span<const Region> regions() const override { return regions_; }

  Result<int> lend(uint32_t region) override {
    CHANGEOVER_TRY(check(region));
    return halves_[region]->lend();
  }

  Status replace(uint32_t region) override {
    CHANGEOVER_TRY(check(region));
    CHANGEOVER_TRY(halves_[region]->replace());
    list_regions();
    return {};
  }

 private:
  Status check(uint32_t region) const {
    if (region < halves_.size() && halves_[region]) {
      return {};
    }
    if (region == 0) {
      return {Code::kRefused, "the engine's own memory can neither be lent nor replaced"};
    }
    return {Code::kInvalidArgument, "no region " + std::to_string(region) + " here"};
  }

  void list_regions() {
    regions_.clear();
    for (const auto& half : halves_) {
      if (half) {
        regions_.push_back(half->region());
      }
    }
  }

  const std::vector<TensorSpec> specs_;
  const std::vector<LiveParameter> adopted_;  // Empty where half 0 is our own.
  std::vector<uint32_t> padded_;              // Parameters with padding.
  std::array<std::optional<OwnedHalf>, 2> halves_;
  std::vector<Region> regions_;
};

}  // namespace

Result<std::unique_ptr<ParameterStore>> ParameterStore::allocate(const LoadPlan& plan) {
  auto store = std::make_unique<Store>(plan, std::vector<LiveParameter>());
  CHANGEOVER_TRY(store->own(0));
  return std::unique_ptr<ParameterStore>(std::move(store));
}

Result<std::unique_ptr<ParameterStore>> ParameterStore::adopt(
    const LoadPlan& plan, std::vector<LiveParameter> parameters) {
  std::map<std::string_view, LiveParameter*> given;
  for (LiveParameter& parameter : parameters) {
    if (!given.emplace(parameter.spec.name, &parameter).second) {
      return Status(Code::kInvalidArgument, "parameter " + parameter.spec.name + " given twice");
    }
  }
  std::vector<LiveParameter> ordered;
  for (const TensorSpec& wanted : plan.parameters) {
    const auto at = given.find(wanted.name);
    if (at == given.end()) {
      return Status(Code::kInvalidArgument, "parameter " + wanted.name + " is not among the given");
    }
    const TensorSpec& spec = at->second->spec;
    if (spec.dtype != wanted.dtype || spec.shape != wanted.shape) {
      return Status(Code::kInvalidArgument,
                    "parameter " + wanted.name + " is " + tensor::describe(spec.dtype, spec.shape) +
                        ", the plan says " + tensor::describe(wanted.dtype, wanted.shape));
    }
    CHANGEOVER_TRY_ASSIGN(const size_t bytes, bytes_of(wanted));
    if (at->second->data == nullptr && bytes > 0) {
      return Status(Code::kInvalidArgument, "parameter " + wanted.name + " has no memory");
    }
    ordered.push_back(*at->second);
    given.erase(at);
  }
  if (!given.empty()) {
    return Status(Code::kInvalidArgument,
                  "parameter " + std::string(given.begin()->first) + " is not one of the plan's");
  }
  return std::unique_ptr<ParameterStore>(std::make_unique<Store>(plan, std::move(ordered)));
}

Digest live_digest(const LiveParameter& parameter) {
  const auto bytes = bytes_of(parameter.spec);
  return base::digest({parameter.data, bytes.ok() ? *bytes : 0});
}

std::vector<Digest> live_digests(const ParameterStore& store, uint32_t half) {
  std::vector<Digest> digests;
  for (const LiveParameter& parameter : store.half(half)) {
    digests.push_back(live_digest(parameter));
  }
  return digests;
}

}  // namespace changeover
