// SPDX-License-Identifier: Apache-2.0
#include "text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>
#include <utility>

namespace flagstone::tools {
namespace {

struct Unit {
  std::string_view name;
  uint64_t bytes;
};

constexpr std::array<Unit, 9> kUnits = {{{"", 1},
                                         {"K", 1'000},
                                         {"M", 1'000'000},
                                         {"G", 1'000'000'000},
                                         {"T", 1'000'000'000'000},
                                         {"KiB", uint64_t{1} << 10},
                                         {"MiB", uint64_t{1} << 20},
                                         {"GiB", uint64_t{1} << 30},
                                         {"TiB", uint64_t{1} << 40}}};

struct Character {
  uint32_t code = 0;
  size_t length = 0;  // 0: the text does not begin with a UTF-8 sequence.
};

// Decodes the first character of a text that is not empty (RFC 3629: no overlong forms, no
// surrogates).
Character DecodeFirst(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return {};
  uint32_t code = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  constexpr std::array<uint32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return {};
  return {code, length};
}

// Controls, line breaks, and the invisible characters by which a name can pass for another.
bool IsHarmful(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || (code >= 0x200B && code <= 0x200F) ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF;
}

void AppendHexadecimal(std::string& out, uint32_t number, int digits) {
  for (int i = digits - 1; i >= 0; --i) out += "0123456789abcdef"[number >> (4 * i) & 0xF];
}

void AppendEscaped(std::string& out, uint32_t code) {
  if (code == '\n') {
    out += "\\n";
  } else if (code == '\r') {
    out += "\\r";
  } else if (code == '\t') {
    out += "\\t";
  } else if (code < 0x80) {
    out += "\\x";
    AppendHexadecimal(out, code, 2);
  } else {
    out += "\\u{";
    AppendHexadecimal(out, code, 4);
    out += '}';
  }
}

// Columns on the screen, near enough: characters, not bytes.
size_t Width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::optional<uint64_t> ParseSize(std::string_view text) {
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc()) return std::nullopt;
  const std::string_view suffix(parsed.ptr, static_cast<size_t>(end - parsed.ptr));
  for (const Unit& unit : kUnits) {
    if (suffix != unit.name) continue;
    if (number > UINT64_MAX / unit.bytes) return std::nullopt;
    return number * unit.bytes;
  }
  return std::nullopt;
}

std::string FormatNumber(double number, int digits) {
  std::array<char, 64> text{};
  const int length = std::snprintf(text.data(), text.size(), "%.*f", digits, number);
  return {text.data(), static_cast<size_t>(std::clamp(length, 0, 63))};
}

std::string FormatBytes(uint64_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " B";
  constexpr std::array<std::string_view, 6> kNames = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double number = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  // 999.95 would be shown as 1000.0.
  while (number >= 999.95 && unit + 1 < kNames.size()) {
    number /= 1000;
    ++unit;
  }
  const int digits = number < 9.995 ? 2 : 1;
  return FormatNumber(number, digits) + " " + std::string(kNames[unit]);
}

std::string FormatCount(uint64_t count) {
  const std::string digits = std::to_string(count);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string FormatTime(int64_t nanoseconds) {
  constexpr int64_t kSecond = 1'000'000'000;
  int64_t seconds = nanoseconds / kSecond;
  int64_t rest = nanoseconds % kSecond;
  if (rest < 0) {
    rest += kSecond;
    --seconds;
  }
  const std::time_t time = seconds;
  std::tm date{};
  std::array<char, 40> text{};
  if (gmtime_r(&time, &date) == nullptr ||
      std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &date) == 0) {
    return std::to_string(nanoseconds) + " ns";
  }
  std::string fraction = std::to_string(rest / 1000);
  return std::string(text.data()) + "." + std::string(6 - fraction.size(), '0') + fraction + " UTC";
}

std::string Escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character character = DecodeFirst(text);
    if (character.length == 0) {
      out += "\\x";
      AppendHexadecimal(out, static_cast<uint8_t>(text[0]), 2);
      text.remove_prefix(1);
      continue;
    }
    if (IsHarmful(character.code)) {
      AppendEscaped(out, character.code);
    } else {
      out += text.substr(0, character.length);
    }
    text.remove_prefix(character.length);
  }
  return out;
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (const Column& column : columns_) widths_.push_back(Width(column.title));
}

void Table::AddRow(const std::vector<std::string>& cells) {
  std::vector<std::string>& row = rows_.emplace_back();
  for (size_t i = 0; i < columns_.size() && i < cells.size(); ++i) {
    row.push_back(Escape(cells[i]));
    widths_[i] = std::max(widths_[i], Width(row.back()));
  }
}

void Table::Print(std::FILE* file, std::string_view indent) const {
  const auto print_row = [&](const auto& cell_of) {
    std::string line(indent);
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string& cell = cell_of(i);
      const std::string padding(widths_[i] - std::min(widths_[i], Width(cell)), ' ');
      if (i > 0) line += "  ";
      line += columns_[i].align == Align::kRight ? padding + cell : cell + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    std::fprintf(file, "%s\n", line.c_str());
  };
  print_row([&](size_t i) -> const std::string& { return columns_[i].title; });
  for (const std::vector<std::string>& row : rows_) {
    print_row([&](size_t i) -> const std::string& { return row[i]; });
  }
}

}  // namespace flagstone::tools
