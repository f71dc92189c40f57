// SPDX-License-Identifier: Apache-2.0
#include "mutations.h"

#include <algorithm>
#include <utility>

#include "base/endian.h"
#include "base/range.h"
#include "format/header.h"
#include "format/layout_codec.h"
#include "raw_wire.h"

namespace flagstone::test {
namespace {

using Code = StatusCode;
constexpr uint64_t kPage = base::kPageBytes;

// A sound header page of a rank file of kHeaderFileLength bytes.
format::Header SoundHeader() {
  format::Header header;
  header.kind = format::FileKind::kRankFile;
  header.save_id = GoldenSaveId();
  header.rank = 1;
  header.world_size = 2;
  header.file_length = kHeaderFileLength;
  header.index_offset = 4 * kPage;
  header.index_length = 300;
  return header;
}

FileBytes Page(const format::Header& header) {
  const auto page = format::EncodeHeader(header);
  return {page.begin(), page.end()};
}

template <typename Edit>
FileBytes HeaderWith(Edit edit) {
  format::Header header = SoundHeader();
  edit(header);
  return Page(header);
}

template <typename T>
FileBytes PageWith(size_t at, T value) {
  return EditHeaderPage(Page(SoundHeader()),
                        [&](std::span<std::byte> page) { base::StoreLittle(&page[at], value); });
}

FileBytes SoundManifest() { return WrapManifest(RawManifestBody({})); }

}  // namespace

std::string Mutation::FileName() const {
  constexpr const char* kEndings[] = {".manifest", ".header", ".index", ".layout"};
  return rule + "-" + name + kEndings[static_cast<size_t>(decoder)];
}

Status Decode(Decoder decoder, std::span<const std::byte> bytes) {
  switch (decoder) {
    case Decoder::kManifest:
      return format::DecodeManifest(bytes).status();
    case Decoder::kHeader:
      return format::DecodeHeader(bytes, format::FileKind::kRankFile, kHeaderFileLength).status();
    case Decoder::kIndex:
      return format::DecodeRankIndex(bytes).status();
    case Decoder::kLayout:
      return format::DecodeLayout(bytes).status();
  }
  return Status(Code::kInternal, "no such decoder");
}

std::vector<Mutation> HeaderMutations() {
  constexpr auto H = Decoder::kHeader;
  constexpr auto F = Decoder::kManifest;
  FileBytes flipped = SoundManifest();
  flipped[200] ^= std::byte{1};
  FileBytes body = SoundManifest();
  body[kPage + 40] ^= std::byte{1};
  FileBytes tail = SoundManifest();
  tail.back() = std::byte{1};
  FileBytes longer = SoundManifest();
  longer.resize(longer.size() + kPage);
  FileBytes shorter = SoundManifest();
  shorter.resize(kPage);
  FileBytes foreign = SoundManifest();
  foreign[0] = std::byte{'P'};
  FileBytes cut = Page(SoundHeader());
  cut.resize(4095);
  using Header = format::Header;
  return {
      {"M1", "magic", F, foreign, Code::kInvalidArgument, "not a Flagstone file (looks like "},
      {"M1", "empty", F, {}, Code::kInvalidArgument, "not a Flagstone file (looks like empty)"},
      {"M2", "short-page", H, cut, Code::kCorruption,
       "truncated: the header page has 4095 of 4096"},
      {"M3", "page-digest", F, flipped, Code::kCorruption, "header page does not match its digest"},
      {"M4", "big-endian", H, PageWith(32, uint32_t{0x04030201}), Code::kUnsupported, "big-endian"},
      {"M4", "mark", H, PageWith(32, uint32_t{0x01020305}), Code::kCorruption, "endianness mark"},
      {"M5", "major", H, PageWith(12, uint16_t{2}), Code::kUnsupported, "format version 2.1"},
      {"M6", "reserved", H, PageWith(63, uint8_t{1}), Code::kCorruption, "reserved byte"},
      {"M7", "kind", H, PageWith(8, uint32_t{3}), Code::kCorruption, "unknown kind 3"},
      {"M7", "other-kind", H, HeaderWith([](Header& h) { h.kind = format::FileKind::kManifest; }),
       Code::kCorruption, "a manifest where a rank file belongs"},
      {"M8", "feature", H, HeaderWith([](Header& h) { h.required_features = 1ull << 9; }),
       Code::kUnsupported, "feature of bit 9"},
      {"M8", "feature-63", F,
       WrapManifest(RawManifestBody({}), [](Header& h) { h.required_features = 1ull << 63 | 1; }),
       Code::kUnsupported, "feature of bit 63"},
      {"M9", "world-0", H, HeaderWith([](Header& h) { h.world_size = 0; }), Code::kCorruption,
       "world size 0"},
      {"M9", "world-huge", H, HeaderWith([](Header& h) { h.world_size = 1u << 20 | 1; }),
       Code::kCorruption, "world size 1048577"},
      {"M10", "rank", H, HeaderWith([](Header& h) { h.rank = 2; }), Code::kCorruption, "rank 2"},
      {"M10", "manifest-rank", F, WrapManifest(RawManifestBody({}), [](Header& h) { h.rank = 1; }),
       Code::kCorruption, "rank 1 does not belong to a manifest"},
      {"M11", "longer", F, longer, Code::kCorruption, "its header says"},
      {"M11", "truncated", F, shorter, Code::kCorruption, "truncated: the file has 4096 bytes"},
      {"M12", "length", F,
       [] {
         FileBytes file = WrapManifest(RawManifestBody({}), [](Header& h) { h.file_length += 8; });
         file.resize(file.size() + 8);
         return file;
       }(),
       Code::kCorruption, "is not a multiple of 4096"},
      {"M13", "index-offset", H, HeaderWith([](Header& h) { h.index_offset = 3 * kPage + 8; }),
       Code::kCorruption, "the index may not begin at 12296"},
      {"M13", "index-in-header", H, HeaderWith([](Header& h) { h.index_offset = 0; }),
       Code::kCorruption, "the index may not begin at 0"},
      {"M13", "manifest-index", F,
       WrapManifest(RawManifestBody({}), [](Header& h) { h.index_offset = 2 * kPage; }),
       Code::kCorruption, "the index may not begin at 8192"},
      {"M14", "index-empty", H, HeaderWith([](Header& h) { h.index_length = 0; }),
       Code::kCorruption, "an index of 0 bytes"},
      {"M14", "index-beyond", H, HeaderWith([](Header& h) { h.index_length = kPage + 1; }),
       Code::kCorruption, "an index of 4097 bytes"},
      {"M14", "index-huge", H, HeaderWith([](Header& h) { h.index_length = ~uint64_t{0}; }),
       Code::kCorruption, "an index of 18446744073709551615 bytes"},
      {"M14", "gap", H, HeaderWith([](Header& h) { h.index_offset = 3 * kPage; }),
       Code::kCorruption, "does not end in the last page"},
      {"M15", "no-data", H, HeaderWith([](Header& h) { h.required_features = 1; }),
       Code::kCorruption, "belongs to manifests"},
      {"M16", "rest", H, PageWith(136, uint8_t{1}), Code::kCorruption, "unused byte"},
      {"M16", "rest-end", H, PageWith(4095, uint8_t{1}), Code::kCorruption, "unused byte"},
      {"M18", "body", F, body, Code::kCorruption, "does not match its digest"},
      {"M19", "tail", F, tail, Code::kCorruption, "is not zero"},
  };
}

std::vector<Mutation> AllMutations() {
  std::vector<Mutation> all;
  for (auto* group : {HeaderMutations, WireMutations, LayoutMutations, IndexMutations}) {
    for (Mutation& mutation : group()) all.push_back(std::move(mutation));
  }
  return all;
}

}  // namespace flagstone::test
