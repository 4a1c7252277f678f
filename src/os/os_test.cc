#include <gtest/gtest.h>

#include "os/clock.h"
#include "os/entropy.h"
#include "os/mapping.h"

namespace changeover::os {
namespace {

TEST(Mapping, P2_ReplaceInPlaceKeepsAddressAndContent) {
  Fd fd = create_memory("test", 8192).take();
  Mapping mapping = Mapping::map(fd, 8192, Access::kReadWrite).take();
  Mapping stale = Mapping::map(fd, 8192, Access::kReadWrite).take();  // a lent writer's
  mapping.data()[5000] = std::byte{7};
  std::byte* const address = mapping.data();
  ASSERT_TRUE(replace_in_place(mapping, fd, "test").ok());
  EXPECT_EQ(mapping.data(), address);
  EXPECT_EQ(mapping.data()[5000], std::byte{7});
  stale.data()[5000] = std::byte{9};
  EXPECT_EQ(mapping.data()[5000], std::byte{7});
}

}  // namespace
}  // namespace changeover::os
