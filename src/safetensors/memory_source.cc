#include <algorithm>
#include <string_view>
#include <utility>

#include <changeover/source.h>

#include "base/utf8.h"
#include "tensor/spec.h"

namespace changeover {

namespace {

class MemorySource final : public TensorSource {
 public:
  MemorySource(std::vector<NamedTensor> tensors, bool may_change)
      : tensors_(std::move(tensors)), may_change_(may_change) {
    for (const NamedTensor& tensor : tensors_) {
      specs_.push_back({tensor.name, tensor.view.dtype, tensor.view.shape});
    }
  }

  Result<std::span<const TensorSpec>> begin_update() override {
    return std::span<const TensorSpec>(specs_);
  }
  Result<TensorView> read(size_t index) override { return tensors_[index].view; }
  void end_update() override {}
  uint64_t generation() const override { return 1; }
  bool may_change() const override { return may_change_; }

 private:
  std::vector<NamedTensor> tensors_;
  std::vector<TensorSpec> specs_;
  bool may_change_;
};

Status check(const NamedTensor& tensor) {
  CHANGEOVER_TRY(tensor::check_name(tensor.name));
  CHANGEOVER_TRY(tensor::check_view(tensor.view));
  if (!wire_dtype_name(tensor.view.dtype)) {
    return {Code::kInvalidArgument, "dtype " + std::string(dtype_name(tensor.view.dtype)) +
                                        " has no name on the wire; give it packed as uint8 (W2)"};
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<TensorSource>> make_memory_source(std::vector<NamedTensor> tensors,
                                                         bool may_change) {
  std::vector<std::string_view> names;
  for (const NamedTensor& tensor : tensors) {
    if (const Status status = check(tensor); !status.ok()) {
      return status.with_context("tensor " + base::quoted(tensor.name));
    }
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    return Status(Code::kInvalidArgument,
                  "tensor " + base::quoted(*twice) + ": the name comes twice");
  }
  return std::unique_ptr<TensorSource>(
      std::make_unique<MemorySource>(std::move(tensors), may_change));
}

}  // namespace changeover
