// changeover inspect: a safetensors file or folder, or a recorded stream.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <changeover/checkpoint.h>
#include <changeover/dtype.h>
#include <changeover/endpoint.h>
#include <changeover/inspect.h>

#include <fcntl.h>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/emit.h"
#include "cli/exit_code.h"
#include "cli/terminal.h"

namespace changeover::cli {
namespace {

using Json = nlohmann::ordered_json;

// A name that broke a rule may not be UTF-8; JSON must be.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A whole file, mapped read-only.
class MappedFile {
 public:
  static Result<std::unique_ptr<MappedFile>> open(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info = {};
    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
      const std::string why = fd >= 0 && errno == 0 ? "not a regular file" : std::strerror(errno);
      if (fd >= 0) {
        ::close(fd);
      }
      return Status(Code::kInvalidArgument,
                    fmt::format("{}: cannot be read ({}); give a recorded stream", path,
                                S_ISDIR(info.st_mode) ? "a folder" : why));
    }
    const auto size = static_cast<size_t>(info.st_size);
    void* address = size == 0 ? nullptr : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    const int error = errno;
    ::close(fd);
    if (address == MAP_FAILED) {
      return Status(Code::kExhausted,
                    fmt::format("{}: cannot map {} bytes ({})", path, size, std::strerror(error)));
    }
    return std::make_unique<MappedFile>(static_cast<const std::byte*>(address), size);
  }
  MappedFile(const std::byte* data, size_t size) : bytes_(data, size) {}
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (!bytes_.empty()) {
      munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
    }
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

Json stream_json(const StreamReport& report) {
  Json frames = Json::array();
  for (const StreamFrame& frame : report.frames) {
    Json tensors = Json::array();
    for (const StreamTensor& tensor : frame.tensors) {
      tensors.push_back({{"name", tensor.spec.name},
                         {"shape", tensor.spec.shape},
                         {"dtype", dtype_name(tensor.spec.dtype)},
                         {"offset", tensor.offset},
                         {"nbytes", tensor.nbytes}});
    }
    frames.push_back({{"command", frame.command},
                      {"version", frame.version},
                      {"metadata_bytes", frame.metadata_bytes},
                      {"payload_bytes", frame.payload_bytes},
                      {"tensors", std::move(tensors)}});
  }
  Json json = {{"format", 1}, {"frames", std::move(frames)}, {"end", nullptr}};
  if (report.end_version) {
    json["end"] = {{"version", *report.end_version}};
  }
  json["ok"] = report.status.ok();
  json["error"] = report.status.ok() ? Json(nullptr) : Json(report.status.message());
  return json;
}

void print_stream(const StreamReport& report) {
  Table table({"frame", "version", "tensors", "metadata", "payload", "first tensor"},
              {0, 1, 2, 3, 4});
  uint64_t tensors = 0;
  uint64_t payload = 0;
  for (size_t i = 0; i < report.frames.size(); ++i) {
    const StreamFrame& frame = report.frames[i];
    tensors += frame.tensors.size();
    payload += static_cast<uint64_t>(std::max<int64_t>(frame.payload_bytes, 0));
    table.add({std::to_string(i), std::to_string(frame.version),
               std::to_string(frame.tensors.size()), std::to_string(frame.metadata_bytes),
               std::to_string(frame.payload_bytes),
               frame.tensors.empty() ? "-" : printable(frame.tensors.front().spec.name)});
  }
  emit("{}", table.to_string());
  emit("{} frames, {} tensors, {} of payload; {}\n", report.frames.size(), tensors,
       human_bytes(payload),
       report.end_version ? fmt::format("END of version {}", *report.end_version)
                          : std::string("no END"));
}

int inspect_recording(const std::string& path, bool json) {
  auto file = MappedFile::open(path);
  if (!file.ok()) {
    return fail(file.status(), json);
  }
  const StreamReport report = inspect_stream((*file)->bytes());
  if (json) {
    emit("{}\n", dump(stream_json(report)));
  } else {
    print_stream(report);
  }
  return report.status.ok() ? kExitOk : fail(report.status.with_context(path), false);
}

int inspect_checkpoint(const std::string& path, bool json) {
  auto checkpoint = Checkpoint::open(path);
  if (!checkpoint.ok()) {
    return fail(checkpoint.status(), json);
  }
  Json tensors = Json::array();
  Table table({"tensor", "dtype", "shape", "bytes"}, {3});
  uint64_t total = 0;
  for (const TensorSpec& spec : (*checkpoint)->specs()) {
    const auto bytes = byte_count(spec.dtype, spec.shape);
    const int64_t nbytes = bytes.ok() ? *bytes : 0;
    total += static_cast<uint64_t>(nbytes);
    if (json) {
      tensors.push_back({{"name", spec.name},
                         {"shape", spec.shape},
                         {"dtype", dtype_name(spec.dtype)},
                         {"nbytes", nbytes}});
    } else {
      table.add({printable(spec.name), std::string(dtype_name(spec.dtype)), shape_text(spec.shape),
                 std::to_string(nbytes)});
    }
  }
  if (json) {
    emit("{}\n", dump({{"format", 1},
                       {"tensors", std::move(tensors)},
                       {"metadata", (*checkpoint)->metadata()},
                       {"nbytes", total},
                       {"ok", true},
                       {"error", nullptr}}));
    return kExitOk;
  }
  emit("{}", table.to_string());
  for (const auto& [key, value] : (*checkpoint)->metadata()) {
    emit("metadata {} = {}\n", printable(key), printable(value));
  }
  emit("{} tensors, {}\n", (*checkpoint)->specs().size(), human_bytes(total));
  return kExitOk;
}

}  // namespace

int run(const InspectArguments& arguments) {
  if (arguments.what.starts_with("file:")) {
    const auto endpoint = Endpoint::parse(arguments.what);
    return endpoint.ok() ? inspect_recording(endpoint->name, arguments.json)
                         : fail(endpoint.status(), arguments.json);
  }
  return inspect_checkpoint(arguments.what, arguments.json);
}

}  // namespace changeover::cli
