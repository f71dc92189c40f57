// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Checkpoints whose every byte is a function of tensor, role and place, so that a test knows what
/// a load has to give without having kept it. Public API alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flagstone/flagstone.h"
#include "usable.h"

namespace flagstone::testing {

using tests::IsUsable;

/// A new directory for one test, gone after it. Under $TMPDIR: a disk, where direct I/O works.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory();
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Bytes [offset, offset + out.size()) of a tensor's value of a role. A second `seed` gives others.
void FillValue(std::string_view tensor, std::string_view role, uint64_t seed, uint64_t offset,
               std::span<std::byte> out);

/// Partitions of every rule over `world` ranks, with roles of every form, odd sizes, empty and
/// 0-dim tensors, frozen and tied ones, buffers.
Layout EveryRuleLayout(uint32_t world);
/// One flat partition "p" with roles fp32 and exp_avg, of one tensor of `elements`.
Layout FlatLayout(uint32_t world, uint64_t elements);
/// The same cut by another rule, with one role.
Layout OneTensorLayout(uint32_t world, const CutRule& rule, uint64_t elements, DType dtype);

/// The value that a plain role of a tensor has.
Value PlainOf(std::string_view tensor);

struct SaveExtras {
  uint64_t seed = 0;
  bool overwrite = false;
  std::function<void(uint32_t rank, Writer& writer)> also;  ///< State of ranks and client.
};
/// Save what FillValue says by one thread a rank. Failures are the test's.
void SaveAll(const std::filesystem::path& path, const Layout& layout,
             const SaveExtras& extras = {});

/// What a segment's destination has to hold: values, and zeros between them.
std::vector<std::byte> ExpectedSegment(const Layout& layout, const SegmentInfo& segment,
                                       uint64_t seed = 0);

/// Load all segments of a reader into memory of its own and compare.
void ExpectLoads(const Checkpoint& checkpoint, uint32_t rank, const LoadOptions& options = {},
                 uint64_t seed = 0);

/// The backends, for tests that force each.
inline constexpr Backend kBackends[] = {Backend::kUringDirect, Backend::kUring, Backend::kPread,
                                        Backend::kMmap};

/// Flips one bit of a file in place; again flips it back.
void FlipBit(const std::filesystem::path& file, uint64_t offset, int bit);

/// In a child process: 0 when `body` ends well, else its exit status or 128 + signal. What it
/// prints is the test's.
int RunInChild(const std::function<int()>& body);

/// "RssAnon:" or another line of /proc/self/status, in bytes.
uint64_t ProcessMemory(std::string_view line);

#define ASSERT_OK(expression)                                                 \
  do {                                                                        \
    const auto& ok_status_ = (expression);                                    \
    ASSERT_TRUE(ok_status_.ok()) << ::flagstone::testing::TextOf(ok_status_); \
  } while (false)
#define EXPECT_OK(expression)                                                 \
  do {                                                                        \
    const auto& ok_status_ = (expression);                                    \
    EXPECT_TRUE(ok_status_.ok()) << ::flagstone::testing::TextOf(ok_status_); \
  } while (false)

inline std::string TextOf(const Status& status) { return status.ToString(); }
template <typename T>
std::string TextOf(const Result<T>& result) {
  return result.status().ToString();
}

}  // namespace flagstone::testing
