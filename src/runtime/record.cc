// A stream to a file, and a file as a source.
#include <set>
#include <utility>

#include <changeover/inspect.h>
#include <changeover/publisher.h>

#include "os/clock.h"
#include "os/mapping.h"
#include "runtime/callback.h"
#include "runtime/source_stream.h"
#include "transport/file/file_road.h"

namespace changeover {
namespace {

class RecordedStream final : public TensorSource {
 public:
  static Result<std::unique_ptr<TensorSource>> open(const std::string& path) {
    auto source = std::make_unique<RecordedStream>();
    CHANGEOVER_TRY_ASSIGN(source->mapping_, os::map_file(path));
    const StreamReport report = inspect_stream({source->mapping_.data(), source->mapping_.bytes()});
    if (!report.status.ok()) {
      return report.status.with_context(path);
    }
    std::set<std::string_view> names;
    for (const StreamFrame& frame : report.frames) {
      for (const StreamTensor& tensor : frame.tensors) {
        source->specs_.push_back(tensor.spec);
        source->positions_.push_back(frame.payload_position + tensor.offset);
      }
    }
    for (const TensorSpec& spec : source->specs_) {
      if (!names.insert(spec.name).second) {
        return Status(Code::kCorrupt, path + ": tensor " + spec.name + " comes twice");
      }
    }
    return std::unique_ptr<TensorSource>(std::move(source));
  }

  Result<std::span<const TensorSpec>> begin_update() override {
    return std::span<const TensorSpec>(specs_);
  }
  Result<TensorView> read(size_t index) override {
    return TensorView{
        specs_[index].dtype, specs_[index].shape, {}, mapping_.data() + positions_[index]};
  }
  void end_update() override {}
  uint64_t generation() const override { return 1; }
  bool may_change() const override { return true; }  // A file that others can write.

 private:
  os::Mapping mapping_;
  std::vector<TensorSpec> specs_;
  std::vector<uint64_t> positions_;
};

}  // namespace

Result<std::unique_ptr<TensorSource>> open_recorded_stream(const std::filesystem::path& path) {
  return RecordedStream::open(path.string());
}

Result<UpdateReport> record_stream(TensorSource& source, const PublishOptions& options,
                                   const std::filesystem::path& path) {
  if (options.version.version < 0 || options.version.epoch != 0) {
    return Status(Code::kInvalidArgument,
                  "a recorded stream has a version of 0 or more and no epoch (rule W1)");
  }
  CHANGEOVER_TRY(runtime::wait_until_ready(options));
  const os::SystemClock clock;
  const Instant begin = clock.now();
  CHANGEOVER_TRY_ASSIGN(const auto lease, runtime::SourceLease::take(source));
  CHANGEOVER_TRY_ASSIGN(auto plan, protocol::plan_stream(lease.specs(), options.bucket_bytes));
  runtime::SourceStream stream(lease, std::move(plan), clock);
  transport::FileSendRoad road(path.string());
  const uint32_t file = 0;
  CHANGEOVER_TRY(road.open_stream({&file, 1}, 1));
  runtime::SourceStream::Options how;
  how.version = options.version.version;
  how.digests = options.digests;
  how.on_progress = options.on_progress;
  CHANGEOVER_TRY(
      runtime::call("the source, or on_progress,", [&] { return stream.send(road, how); }));
  CHANGEOVER_TRY(road.finish());
  UpdateReport report;
  report.version = options.version;
  report.digest = stream.digest();
  report.digests_on = options.digests;
  report.payload_bytes = stream.payload_bytes();
  report.buckets = stream.plan().buckets.size();
  report.seconds = static_cast<double>((clock.now() - begin).count()) / 1e9;
  return report;
}

}  // namespace changeover
