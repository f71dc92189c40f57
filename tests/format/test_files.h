// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Files of the repository, for tests.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace flagstone::test {

inline std::filesystem::path TestPath(const std::string& name) {
  return std::filesystem::path(FLAGSTONE_SOURCE_FOLDER) / name;
}

/// The bytes of a file, by its path in the repository; a test failure when it cannot be read.
inline std::vector<std::byte> ReadTestFile(const std::string& name) {
  std::ifstream in(TestPath(name), std::ios::binary);
  EXPECT_TRUE(in.good()) << name << " cannot be read";
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

}  // namespace flagstone::test
