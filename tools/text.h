// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Text for people: sizes, escaped names, tables.

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flagstone::tools {

/// A size: an integer, alone or with K M G T (powers of 1000) or KiB MiB GiB TiB (powers of 1024).
/// Nothing for any other text and for a size above 2^64 - 1.
std::optional<uint64_t> ParseSize(std::string_view text);

/// "512 B", "1.74 GB" (10^9 bytes), as sizes are shown everywhere.
std::string FormatBytes(uint64_t bytes);
/// "124,439,808".
std::string FormatCount(uint64_t count);
/// "2026-01-31 12:00:00.000000 UTC" of nanoseconds since 1970.
std::string FormatTime(int64_t nanoseconds);
/// "1.2" with so many digits after the point.
std::string FormatNumber(double number, int digits);

/// `text` with everything escaped that could drive a terminal or mislead the eye: control
/// characters (as \n, \t, \x1b), bytes that are not UTF-8 (\xff), C1 controls and the invisible
/// characters that turn the direction of writing or break lines (\u{202e}). Other text, names in
/// any script included, stays as it is.
std::string Escape(std::string_view text);

/// A table whose columns are as wide as their widest cell. Cells are escaped when they are added.
class Table {
 public:
  enum class Align : uint8_t { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns);
  /// One cell a column.
  void AddRow(const std::vector<std::string>& cells);
  void Print(std::FILE* file, std::string_view indent = "") const;

 private:
  std::vector<Column> columns_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace flagstone::tools
