// SPDX-License-Identifier: Apache-2.0
#include "io/memory_limit.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"

namespace flagstone::io {
namespace {

using base::Join;
using base::Quote;
using Path = std::filesystem::path;

std::vector<std::string> Lines(const Path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> Fields(std::string_view line, char separator) {
  std::vector<std::string> fields;
  while (!line.empty()) {
    const size_t end = std::min(line.find(separator), line.size());
    if (end > 0) fields.emplace_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return fields;
}

std::optional<uint64_t> Number(std::string_view text) {
  uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr == text.data()) return std::nullopt;
  return number;
}

// The one number that a file holds; nothing for "max" or when it cannot be read.
std::optional<uint64_t> NumberIn(const Path& file) {
  const auto lines = Lines(file);
  return lines.empty() ? std::nullopt : Number(lines[0]);
}

// "key value" or "key: value kB".
std::optional<uint64_t> Entry(const Path& file, std::string_view key) {
  for (const std::string& line : Lines(file)) {
    const auto fields = Fields(line, ' ');
    if (fields.size() >= 2 && fields[0] == key) return Number(fields[1]);
  }
  return std::nullopt;
}

// mountinfo writes blanks, tabs, newlines and backslashes in octal (proc(5)).
std::string Unescape(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      const int code = (text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0');
      result += static_cast<char>(code);
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

// Where cgroups are mounted, and which of them the mount shows at its top.
struct Mount {
  Path point;
  std::string top;
};

// The mount of version 2, or that of version 1 with the memory controller.
std::optional<Mount> FindMount(const Path& root, bool version2) {
  for (const std::string& line : Lines(root / "proc/self/mountinfo")) {
    // id parent device top point options [optional...] - type source super-options
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    const auto before = Fields(std::string_view(line).substr(0, dash), ' ');
    const auto after = Fields(std::string_view(line).substr(dash + 3), ' ');
    if (before.size() < 5 || after.size() < 3) continue;
    if (after[0] != (version2 ? "cgroup2" : "cgroup")) continue;
    if (!version2 && std::ranges::count(Fields(after[2], ','), "memory") == 0) continue;
    return Mount{root / Path(Unescape(before[4])).relative_path(), Unescape(before[3])};
  }
  return std::nullopt;
}

// This process's cgroup as /proc tells it, of version 2 or of the memory controller of version 1.
std::optional<std::string> FindGroup(const Path& root, bool version2) {
  for (const std::string& line : Lines(root / "proc/self/cgroup")) {
    // number:controllers:path; the path may hold colons.
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = Fields(std::string_view(line).substr(first + 1, second - first - 1), ',');
    const bool fits = version2 ? controllers.empty() : std::ranges::count(controllers, "memory") > 0;
    if (fits) return line.substr(second + 1);
  }
  return std::nullopt;
}

// The folder of the group below its mount. In a container the mount may show a group of which the
// path says more, or less, than the container sees: then its top is the process's own.
Path FolderOf(const Mount& mount, const std::string& group) {
  std::string_view below = group;
  if (mount.top != "/") {
    if (!below.starts_with(mount.top)) return mount.point;
    below.remove_prefix(mount.top.size());
  }
  if (below.find("..") != std::string_view::npos) return mount.point;
  const Path folder = mount.point / Path(below).relative_path();
  std::error_code error;
  return std::filesystem::is_directory(folder, error) ? folder : mount.point;
}

// What one cgroup's files say; nothing where it sets no limit.
std::optional<MemoryLimit> LimitOf(const Path& folder, bool version2) {
  const auto limit = NumberIn(folder / (version2 ? "memory.max" : "memory.limit_in_bytes"));
  // Version 1 says "none" by the largest multiple of a page.
  if (!limit || *limit >= uint64_t{1} << 62) return std::nullopt;
  const uint64_t used =
      NumberIn(folder / (version2 ? "memory.current" : "memory.usage_in_bytes")).value_or(0);
  const Path stat = folder / "memory.stat";
  const std::string prefix = version2 ? "" : "total_";
  const uint64_t cache = Entry(stat, prefix + "inactive_file").value_or(0) +
                         Entry(stat, prefix + "active_file").value_or(0);
  const uint64_t needed = used > cache ? used - cache : 0;
  return MemoryLimit{*limit, *limit > needed ? *limit - needed : 0, true, folder};
}

}  // namespace

Result<MemoryLimit> ReadMemoryLimit(const Path& root) {
  const Path meminfo = root / "proc/meminfo";
  const auto total = Entry(meminfo, "MemTotal:");
  if (!total) {
    return Status(StatusCode::kIoError,
                  Join("cannot tell how much memory there is: ", Quote(meminfo.string()),
                       " has no line MemTotal"),
                  {meminfo.string(), "", std::nullopt});
  }
  const uint64_t available = Entry(meminfo, "MemAvailable:").value_or(*total);
  MemoryLimit least{*total * 1024, available * 1024, false, meminfo};
  for (const bool version2 : {true, false}) {
    const auto mount = FindMount(root, version2);
    const auto group = FindGroup(root, version2);
    if (!mount || !group) continue;
    // Every group above this one limits it as well.
    for (Path folder = FolderOf(*mount, *group);; folder = folder.parent_path()) {
      const auto limit = LimitOf(folder, version2);
      // A limit above the machine's memory is none.
      if (limit && limit->limit_bytes < *total * 1024 &&
          (!least.is_cgroup || limit->available_bytes < least.available_bytes)) {
        least = *limit;
      }
      if (folder == mount->point) break;
    }
  }
  return least;
}

}  // namespace flagstone::io
