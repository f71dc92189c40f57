// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// A reader of whole files, written from spec/format.md's "What covers what" and not from the
/// library's own: header page, index, digest pages, chunks, and zero everywhere else.

#include <optional>
#include <span>
#include <string>

#include "golden_maker.h"

namespace flagstone::test {

class FileChecker {
 public:
  /// `manifest` must decode.
  explicit FileChecker(format::Manifest manifest) : manifest_(std::move(manifest)) {}

  /// What is wrong with the file of `rank`, beginning with the rule's number; "" when nothing is.
  std::string Check(uint32_t rank, std::span<const std::byte> file);

 private:
  std::string CheckIndex(uint32_t rank, std::span<const std::byte> bytes);
  std::string CheckDigests(std::span<const std::byte> file) const;
  std::string CheckSegments(std::span<const std::byte> file) const;

  /// Ranges of the file between the members of a segment.
  struct Gap {
    uint64_t offset = 0;
    uint64_t size = 0;
  };
  std::vector<Gap> GapsOf(uint32_t rank) const;

  format::Manifest manifest_;
  // The index decoded last: most of many almost equal files have the same.
  FileBytes index_bytes_;
  std::string index_problem_;
  format::RankIndex index_;
  std::vector<Gap> gaps_;
};

/// All files of a checkpoint.
std::string CheckCheckpoint(const Files& files);

}  // namespace flagstone::test
