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

// A file that appears under its name only when it is complete: temporary name beside it, fsync,
// rename, fsync of the folder. Destroyed without commit() it leaves nothing; a process killed in
// between leaves the temporary name ("NAME.partial-...") and the old file as it was.
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
  AtomicFile(std::string path, std::string temporary, Fd fd);
  Status check_size_limit(uint64_t bytes) const;
  Status failed(Status status);

  std::string path_;
  std::string temporary_;  // empty once renamed
  Fd fd_;
  uint64_t bytes_written_ = 0;
  Status failure_;
};

Status write_file_atomically(const std::string& path, std::span<const std::byte> bytes);

// The whole file, at most bytes_max (kExhausted with both numbers if it is longer).
Result<std::string> read_file(const std::string& path, uint64_t bytes_max);

}  // namespace changeover::os
