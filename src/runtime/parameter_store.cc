// ParameterStore: memory of its own (lendable, replaceable), or an engine's.
#include <cerrno>
#include <map>

#include <changeover/parameter_store.h>

#include <fcntl.h>

#include "base/digest.h"
#include "os/error.h"
#include "os/mapping.h"
#include "tensor/spec.h"

namespace changeover {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr const char* kMemoryName = "changeover-parameters";

Result<size_t> bytes_of(const TensorSpec& spec) {
  const auto bytes = byte_count(spec.dtype, spec.shape);
  if (!bytes.ok()) {
    return bytes.status().with_context("parameter " + spec.name);
  }
  return static_cast<size_t>(*bytes);
}

// One memfd mapping for all parameters, each on a page of its own: a page that another process
// wrote to holds one parameter, and a parameter's address suits any vector load.
class OwnedStore final : public ParameterStore {
 public:
  static Result<std::unique_ptr<ParameterStore>> make(const LoadPlan& plan) {
    auto store = std::make_unique<OwnedStore>();
    std::vector<size_t> offsets;
    size_t total = 0;
    for (const TensorSpec& spec : plan.parameters) {
      CHANGEOVER_TRY_ASSIGN(const size_t bytes, bytes_of(spec));
      offsets.push_back(total);
      total += (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    }
    total = std::max(total, kPageBytes);
    CHANGEOVER_TRY_ASSIGN(store->fd_, os::create_memory(kMemoryName, total));
    CHANGEOVER_TRY_ASSIGN(store->mapping_,
                          os::Mapping::map(store->fd_, total, os::Access::kReadWrite));
    for (size_t i = 0; i < offsets.size(); ++i) {
      store->parameters_.push_back({plan.parameters[i], store->mapping_.data() + offsets[i]});
    }
    store->region_ = {0, 1, total, store->mapping_.data()};
    return std::unique_ptr<ParameterStore>(std::move(store));
  }

  std::span<const LiveParameter> parameters() const override { return parameters_; }
  std::span<const Region> regions() const override { return {&region_, 1}; }

  Result<int> lend(uint32_t region) override {
    CHANGEOVER_TRY(check(region));
    const int fd = fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
      return os::os_error("lend a region of the parameters", errno);
    }
    return fd;
  }

  Status replace(uint32_t region) override {
    CHANGEOVER_TRY(check(region));
    CHANGEOVER_TRY(os::replace_in_place(mapping_, fd_, kMemoryName));
    ++region_.generation;
    return {};
  }

 private:
  static Status check(uint32_t region) {
    return region == 0 ? Status()
                       : Status(Code::kInvalidArgument,
                                "no region " + std::to_string(region) + ": there is one, number 0");
  }

  os::Fd fd_;
  os::Mapping mapping_;
  Region region_;
  std::vector<LiveParameter> parameters_;
};

class AdoptedStore final : public ParameterStore {
 public:
  explicit AdoptedStore(std::vector<LiveParameter> parameters)
      : parameters_(std::move(parameters)) {}

  std::span<const LiveParameter> parameters() const override { return parameters_; }
  std::span<const Region> regions() const override { return {}; }
  Result<int> lend(uint32_t) override { return refused(); }
  Status replace(uint32_t) override { return refused(); }

 private:
  static Status refused() {
    return {Code::kRefused, "the engine's own memory can neither be lent nor replaced"};
  }
  std::vector<LiveParameter> parameters_;
};

}  // namespace

Result<std::unique_ptr<ParameterStore>> ParameterStore::allocate(const LoadPlan& plan) {
  return OwnedStore::make(plan);
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
  return std::unique_ptr<ParameterStore>(std::make_unique<AdoptedStore>(std::move(ordered)));
}

std::vector<Digest> live_digests(const ParameterStore& store) {
  std::vector<Digest> digests;
  for (const LiveParameter& parameter : store.parameters()) {
    const auto bytes = bytes_of(parameter.spec);
    digests.push_back(base::digest({parameter.data, bytes.ok() ? *bytes : 0}));
  }
  return digests;
}

}  // namespace changeover
