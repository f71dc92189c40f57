// SPDX-License-Identifier: Apache-2.0
#include "golden_description.h"

#include "base/text.h"
#include "to_json.h"

namespace flagstone::test {
namespace {

// The segments' bytes: short ones whole, of others how they begin.
nlohmann::ordered_json DataJson(const format::RankIndex& index, std::span<const std::byte> file) {
  constexpr uint64_t kShown = 32;
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const format::PlacedSegment& segment : index.placement.segments) {
    const auto bytes = file.subspan(segment.offset, std::min(segment.bytes, kShown));
    out.push_back(base::Hex(bytes));
  }
  return out;
}

}  // namespace

std::string DescribeGolden(const Files& files) {
  nlohmann::ordered_json out;
  for (const auto& [name, bytes] : files) {
    const bool manifest = name == format::kManifestName;
    const auto kind = manifest ? format::FileKind::kManifest : format::FileKind::kRankFile;
    const auto header = format::DecodeHeader(std::span(bytes).first(4096), kind, bytes.size());
    if (!header.ok()) return "";
    out[name]["header"] = ToJson(*header);
    if (manifest) {
      const auto decoded = format::DecodeManifest(bytes);
      if (!decoded.ok()) return "";
      out[name]["manifest"] = ToJson(*decoded);
    } else {
      const auto index = format::DecodeRankIndex(
          std::span(bytes).subspan(header->index_offset, header->index_length));
      if (!index.ok()) return "";
      out[name]["index"] = ToJson(*index);
      out[name]["segments_begin_with"] = DataJson(*index, bytes);
    }
  }
  return out.dump(1) + "\n";
}

}  // namespace flagstone::test
