// Files written whole or not at all, and small files read whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <changeover/status.h>

#include "os/fd.h"

namespace changeover::os {

// A file that appears under its name only when it is complete: written without a name, fsync, a
// temporary name, rename, fsync of the folder. Destroyed without commit() it leaves nothing, and so
// does a process that is killed while it writes; the old file stays as it was. Where the file
// system or a missing /proc allows no file without a name, a process that is killed leaves the
// temporary one ("NAME.partial-...").
class AtomicFile {
 public:
  static Result<std::unique_ptr<AtomicFile>> create(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends all of it. No room is kExhausted with both numbers (needed and free, or the file size
  // limit); after any failure nothing more may be written and commit() refuses.
  Status write(std::span<const std::byte> bytes);
  uint64_t bytes_written() const { return bytes_written_; }
  Status commit();

 private:
  AtomicFile(std::string path, std::string temporary, Fd fd, bool has_name);
  Status check_size_limit(uint64_t bytes) const;
  Status name_it();
  Status failed(Status status);

  std::string path_;
  std::string temporary_;
  bool has_name_;  // the temporary one
  bool committed_ = false;
  Fd fd_;
  uint64_t bytes_written_ = 0;
  Status failure_;
};

Status write_file_atomically(const std::string& path, std::span<const std::byte> bytes);

// The whole file, at most bytes_max (kExhausted with both numbers if it is longer).
Result<std::string> read_file(const std::string& path, uint64_t bytes_max);

}  // namespace changeover::os
