// A folder of a test's own, removed with it.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

namespace changeover::safetensors {

class TestFolder : public ::testing::Test {
 protected:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "changeover-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~TestFolder() override {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }

  void put(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  std::string get(const std::string& name) const {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::filesystem::path folder_;
};

}  // namespace changeover::safetensors
