#include "os/mapping.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "os/file.h"

namespace changeover::os {
namespace {

using testing::HasSubstr;

TEST(Mapping, P2_ReplaceInPlaceKeepsAddressAndContentAndShutsTheOldWriterOut) {
  Fd fd = create_memory("test", 8192).take();
  Mapping mapping = Mapping::map(fd, 8192, Access::kReadWrite).take();
  Mapping stale = Mapping::map(fd, 8192, Access::kReadWrite).take();  // a lent writer's
  mapping.data()[5000] = std::byte{7};
  std::byte* const address = mapping.data();
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(replace_in_place(mapping, fd, "test").ok());
    EXPECT_EQ(mapping.data(), address);
    EXPECT_EQ(mapping.bytes(), 8192u);
    EXPECT_EQ(mapping.data()[5000], std::byte{7});
    stale.data()[5000] = std::byte{9};
    EXPECT_EQ(mapping.data()[5000], std::byte{7});
  }
  // The descriptor is the new memory's.
  mapping.data()[1] = std::byte{3};
  EXPECT_EQ(Mapping::map(fd, 8192, Access::kReadOnly)->data()[1], std::byte{3});
}

TEST(Mapping, P2_ReadersRunThroughAReplacement) {
  constexpr size_t kBytes = 1 << 20;
  Fd fd = create_memory("test", kBytes).take();
  Mapping mapping = Mapping::map(fd, kBytes, Access::kReadWrite).take();
  std::fill_n(mapping.data(), kBytes, std::byte{42});
  const std::byte* const at = mapping.data();
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, rounds{0};
  std::thread reader([&] {
    while (!stop.load()) {
      for (size_t i = 0; i < kBytes; i += 512) {
        wrong += at[i] != std::byte{42};
      }
      ++rounds;
    }
  });
  for (int i = 0; i < 50 || rounds.load() < 3; ++i) {
    ASSERT_TRUE(replace_in_place(mapping, fd, "test").ok());
  }
  stop = true;
  reader.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Mapping, SizeOfLentMemoryIsSealedAndNewWritersAreRefused) {
  const Fd fd = create_memory("test", 8192).take();
  EXPECT_NE(::ftruncate(fd.get(), 4096), 0);
  EXPECT_NE(::ftruncate(fd.get(), 16384), 0);
  EXPECT_TRUE(size_is_sealed(fd));
  EXPECT_EQ(*size_of(fd), 8192u);
  const Mapping first = Mapping::map(fd, 8192, Access::kReadWrite).take();
  ASSERT_TRUE(forbid_new_writers(fd).ok());
  first.data()[0] = std::byte{1};  // goes on
  EXPECT_FALSE(Mapping::map(fd, 8192, Access::kReadWrite).ok());
  EXPECT_EQ(Mapping::map(fd, 8192, Access::kReadOnly)->data()[0], std::byte{1});
  const Fd read_only = reopen_read_only(fd).take();
  EXPECT_LT(::write(read_only.get(), "x", 1), 0);
  EXPECT_EQ(*size_of(read_only), 8192u);
}

TEST(Mapping, TooMuchIsRefusedWithTheNumbersBeforeAnythingIsMade) {
  const Status status = create_memory("weights", size_t{1} << 60).status();
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_THAT(status.message(), HasSubstr("weights needs 1152921504606846976 bytes"));
  EXPECT_THAT(status.message(), HasSubstr("MemAvailable is "));
}

TEST(Mapping, FilesAreMappedWholeEmptyOrRefused) {
  const std::string path = testing::TempDir() + "mapping-test-" + std::to_string(::getpid());
  EXPECT_EQ(map_file(path).status().code(), Code::kInvalidArgument);
  EXPECT_THAT(map_file(path).status().message(), HasSubstr(path));
  EXPECT_EQ(map_file(testing::TempDir()).status().code(), Code::kInvalidArgument);
  ASSERT_TRUE(write_file_atomically(path, {}).ok());
  const Result<Mapping> empty = map_file(path);
  ASSERT_TRUE(empty.ok());
  EXPECT_FALSE(empty->valid());
  EXPECT_EQ(empty->bytes(), 0u);
  const std::byte bytes[] = {std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_TRUE(write_file_atomically(path, bytes).ok());
  const Result<Mapping> whole = map_file(path);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->bytes(), 3u);
  EXPECT_EQ(whole->data()[2], std::byte{3});
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace changeover::os
