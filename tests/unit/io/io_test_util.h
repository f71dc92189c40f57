// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// What the tests of io share: files of known bytes, blocks seen by a consumer, and a check that
/// nothing is left over.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "flagstone/memory.h"
#include "io/file_system.h"
#include "io/transfer.h"
#include "support/temporary_directory.h"

namespace flagstone::io {

/// The bytes of every test file: a function of the offset, so that misplaced bytes are seen.
void FillExpected(uint64_t offset, std::span<std::byte> out);
std::vector<std::byte> Expected(uint64_t offset, uint64_t size);

/// A pass when `status` is ok, else its text.
::testing::AssertionResult IsOk(const Status& status);
template <typename T>
::testing::AssertionResult IsOk(const Result<T>& result) {
  return IsOk(result.status());
}

/// Write `size` expected bytes to a new file, on disk when it returns.
void WriteTestFile(const std::filesystem::path& path, uint64_t size);

std::shared_ptr<File> OpenForReading(FileSystem& fs, const std::filesystem::path& path);

/// Run `body` in a child process; what it returns is the failure, empty when there is none. nullopt
/// when it says "SKIP: ...": then `skipped` has the reason.
std::optional<std::string> RunInChild(const std::function<std::string()>& body,
                                      std::string* skipped);

/// Memory whose address is `modulo` more than a multiple of 4096, with guard bytes around that
/// CheckGuards looks at.
class GuardedMemory {
 public:
  GuardedMemory(uint64_t size, uint64_t modulo);
  std::span<std::byte> bytes() const { return bytes_; }
  bool GuardsIntact() const;

 private:
  HostBuffer buffer_;
  std::span<std::byte> bytes_;
};

/// Checks what ReadRanges hands over: every block once, whole, with the expected bytes.
class BlockChecker {
 public:
  explicit BlockChecker(std::span<const ReadRange> ranges);
  BlockConsumer consumer();
  /// All blocks of all ranges came.
  ::testing::AssertionResult Complete() const;

 private:
  Status See(const ReadRange& range, uint64_t offset, std::span<const std::byte> bytes);

  std::span<const ReadRange> ranges_;
  std::vector<std::vector<bool>> seen_;  // By range and block.
};

/// After each test there are as many descriptors, threads and counted bytes as before.
class IoTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  flagstone::testing::TemporaryDirectory directory_;

 private:
  uint64_t descriptors_ = 0;
  uint64_t threads_ = 0;
  uint64_t mapped_bytes_ = 0;
};

/// Backends that can read `file` here, by trying; pread and mmap are always among them.
std::vector<Backend> WorkingBackends(FileSystem& fs, const std::shared_ptr<File>& file);
bool Works(FileSystem& fs, const std::shared_ptr<File>& file, Backend backend);

}  // namespace flagstone::io
