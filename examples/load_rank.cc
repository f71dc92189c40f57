// SPDX-License-Identifier: Apache-2.0

/// \file
/// Map what one rank saved, without copying it, and print the beginning of each slice.
///
///     load_rank CHECKPOINT RANK

#include <flagstone/flagstone.h>

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace {

// The first elements of a mapped segment, if they are float32.
std::string FirstValues(const flagstone::SegmentInfo& segment, const flagstone::View& view) {
  if (segment.dtype != flagstone::DType::kFloat32) return "";
  std::string text;
  const size_t count = std::min<size_t>(4, view.bytes().size() / sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, view.bytes().data() + i * sizeof(float), sizeof(float));
    text += ' ';
    text += std::to_string(value);
  }
  return text;
}

// [load] Open, map, use: no byte of another rank is read, none is copied, and each is verified.
flagstone::Status PrintRank(const std::string& path, uint32_t rank) {
  const auto checkpoint = flagstone::Checkpoint::Open(path);
  if (!checkpoint.ok()) return checkpoint.status();
  const auto reader = checkpoint->OpenRank(rank);
  if (!reader.ok()) return reader.status();

  for (const flagstone::SegmentInfo& segment : reader->segments()) {
    const auto view = reader->ViewSegment(segment.partition, segment.role);
    if (!view.ok()) return view.status();
    std::printf("%s/%s: %zu bytes of %s at %p:%s\n", segment.partition.c_str(),
                segment.role.c_str(), view->bytes().size(), Name(segment.dtype).data(),
                static_cast<const void*>(view->bytes().data()),
                FirstValues(segment, *view).c_str());
  }
  return flagstone::Status();
}
// [load]

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || argv[1][0] == '-') {
    std::fprintf(stderr, "usage: load_rank CHECKPOINT RANK\n");
    return 2;
  }
  uint32_t rank = 0;
  const std::string_view given = argv[2];
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), rank);
  if (error != std::errc() || end != given.data() + given.size()) {
    std::fprintf(stderr, "'%s' is not the number of a rank\n", argv[2]);
    return 2;
  }
  const flagstone::Status status = PrintRank(argv[1], rank);
  if (status.ok()) return EXIT_SUCCESS;
  std::fprintf(stderr, "load_rank: %s\n", status.ToString().c_str());
  return EXIT_FAILURE;
}
