// SPDX-License-Identifier: Apache-2.0
// Every decoder of the format, on any bytes. What is accepted must mean the same when it is written
// and read again, and where the bytes lie in memory must not matter. Digests would keep a fuzzer
// from what is behind them, so each input is tried a second time with its digests made to match.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/digest.h"
#include "base/endian.h"
#include "base/range.h"
#include "format/header.h"
#include "format/layout_codec.h"
#include "format/manifest.h"
#include "format/rank_index.h"
#include "format/value_codec.h"

namespace flagstone {
namespace {

using Bytes = std::span<const std::byte>;

void Require(bool holds) {
  if (!holds) std::abort();
}

// The same bytes, 1 past a multiple of 8.
template <typename Decode>
void RequireSameElsewhere(Bytes bytes, const Decode& decode) {
  std::vector<std::byte> moved(1);
  moved.insert(moved.end(), bytes.begin(), bytes.end());
  const auto here = decode(bytes);
  const auto there = decode(Bytes(moved).subspan(1));
  Require(here.ok() == there.ok());
  Require(here.ok() ? *here == *there : here.status() == there.status());
}

template <typename Decode, typename Encode>
void RoundTrip(Bytes bytes, const Decode& decode, const Encode& encode) {
  RequireSameElsewhere(bytes, decode);
  const auto once = decode(bytes);
  if (!once.ok()) return;
  const auto encoded = encode(*once);
  Require(encoded.ok());
  const auto twice = decode(Bytes(*encoded));
  Require(twice.ok() && *twice == *once);
  Require(*encode(*twice) == *encoded);
}

void TryIndex(Bytes bytes) { RoundTrip(bytes, format::DecodeRankIndex, format::EncodeRankIndex); }

void TryFile(Bytes file) {
  RoundTrip(file, format::DecodeManifest, format::EncodeManifest);
  const Bytes page = file.first(std::min<size_t>(file.size(), base::kPageBytes));
  const auto header = format::DecodeHeader(page, format::FileKind::kRankFile, file.size());
  if (!header.ok()) return;
  const auto again = format::EncodeHeader(*header);
  Require(*format::DecodeHeader(again, format::FileKind::kRankFile, file.size()) == *header);
  const Bytes index = file.subspan(header->index_offset, header->index_length);
  if (base::DigestOf(index) == header->index_digest) TryIndex(index);
}

// The file with the digests that its own fields call for.
std::vector<std::byte> WithDigests(Bytes file) {
  constexpr size_t kDigestAt = 16, kIndexOffsetAt = 104, kIndexLengthAt = 112, kIndexDigestAt = 120;
  std::vector<std::byte> out(file.begin(), file.end());
  if (out.size() < base::kPageBytes) return out;
  const auto offset = base::LoadLittle<uint64_t>(&out[kIndexOffsetAt]);
  const auto length = base::LoadLittle<uint64_t>(&out[kIndexLengthAt]);
  if (base::InBounds(offset, length, out.size())) {
    const auto digest = base::DigestOf(Bytes(out).subspan(offset, length));
    std::copy(digest.begin(), digest.end(), out.begin() + kIndexDigestAt);
  }
  std::fill_n(out.begin() + kDigestAt, sizeof(base::Digest128), std::byte{0});
  const auto digest = base::DigestOf(Bytes(out).first(base::kPageBytes));
  std::copy(digest.begin(), digest.end(), out.begin() + kDigestAt);
  return out;
}

void TryValue(Bytes bytes, format::ArrayBytes arrays) {
  const auto decode = [&](Bytes b) { return format::DecodeValue(b, arrays, "value"); };
  const auto encode = [&](const Value& value) -> Result<std::vector<std::byte>> {
    std::vector<std::byte> out;
    if (Status status = format::AppendValue(value, arrays, "value", out); !status.ok())
      return status;
    return out;
  };
  RoundTrip(bytes, decode, encode);
  // The encoding is canonical: what was accepted is what would be written.
  if (const auto value = decode(bytes); value.ok()) {
    Require(std::ranges::equal(*encode(*value), bytes));
  }
}

void TryAll(Bytes bytes) {
  TryFile(bytes);
  TryFile(WithDigests(bytes));
  TryIndex(bytes);
  RoundTrip(bytes, format::DecodeLayout, format::EncodeLayout);
  TryValue(bytes, format::ArrayBytes::kInline);
  TryValue(bytes, format::ArrayBytes::kSegments);
  static_cast<void>(format::DescribeForeign(bytes));
}

}  // namespace
}  // namespace flagstone

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  flagstone::TryAll({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
