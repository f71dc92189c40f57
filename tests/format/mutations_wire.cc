// SPDX-License-Identifier: Apache-2.0
// What is wrong in FlatBuffers and in plain data: M20 to M33, and the manifest's own M57 to M60.
#include <algorithm>
#include <utility>

#include "base/endian.h"
#include "base/range.h"
#include "format/rank_index.h"
#include "mutations.h"
#include "raw_wire.h"

namespace flagstone::test {
namespace {

using Code = StatusCode;
constexpr auto F = Decoder::kManifest;
constexpr auto L = Decoder::kLayout;

// A manifest whose client state is these bytes: numbers as bytes, strings as themselves.
struct Client {
  FileBytes bytes;

  Client& operator<<(int byte) {
    bytes.push_back(static_cast<std::byte>(byte));
    return *this;
  }
  Client& operator<<(std::string_view text) {
    for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
    return *this;
  }
  Client& U32(uint32_t number) {
    bytes.resize(bytes.size() + 4);
    base::StoreLittle(&bytes[bytes.size() - 4], number);
    return *this;
  }
  Client& U64(uint64_t number) {
    bytes.resize(bytes.size() + 8);
    base::StoreLittle(&bytes[bytes.size() - 8], number);
    return *this;
  }

  operator FileBytes() const { return WrapManifest(RawManifestBody({SmallManifest(), bytes, 0})); }
};

template <typename Edit>
FileBytes ManifestWith(Edit edit) {
  RawManifest raw;
  edit(raw);
  return WrapManifest(RawManifestBody(raw), [&](format::Header& header) {
    header.required_features = raw.manifest.required_features;
  });
}

std::vector<Mutation> PlainDataMutations() {
  Client deep;
  for (int i = 0; i < 64; ++i) (deep << 6).U32(1);
  deep << 0;
  Client large;
  (large << 6).U32(1048576);  // 16 a value: the list itself is one too many
  large.bytes.resize(large.bytes.size() + 1048576);
  Client heavy;
  (heavy << 5).U32((16 << 20) - 15);
  heavy.bytes.resize(heavy.bytes.size() + (16 << 20) - 15);
  Client nested;  // Each list claims what is left.
  for (int i = 0; i < 60; ++i) (nested << 6).U32(static_cast<uint32_t>(4000 - 5 * i));
  nested.bytes.resize(4200);
  Client dimensions;
  dimensions << 8 << 0 << 65;
  for (int i = 0; i < 65; ++i) dimensions.U64(1);
  dimensions << 0;
  return {
      {"M24", "tag", F, Client() << 9, Code::kUnsupported, "a value of kind 9"},
      {"M25", "bool", F, Client() << 1 << 2, Code::kCorruption, "the bool 2"},
      {"M26", "utf8", F, (Client() << 4).U32(2) << "\xC3(", Code::kCorruption, "not UTF-8"},
      {"M27", "str-beyond", F, (Client() << 4).U32(2) << "a", Code::kCorruption, "ends within"},
      {"M27", "list-beyond", F, (Client() << 6).U32(~0u), Code::kCorruption, "no room"},
      {"M27", "nested-lists", F, nested, Code::kCorruption, "no room"},
      {"M27", "empty", F, Client(), Code::kCorruption, "ends within a value"},
      {"M28", "depth", F, deep, Code::kCorruption, "deeper than 64"},
      {"M29", "list-key", F, ((Client() << 7).U32(1) << 6).U32(0) << 0, Code::kCorruption,
       "dict key"},
      {"M30", "same-keys", F,
       (((Client() << 7).U32(2) << 4).U32(1) << "a" << 0 << 4).U32(1) << "a" << 0,
       Code::kCorruption, "the dict key '\\x01\\x00\\x00\\x00a' twice"},
      {"M31", "array-dtype", F, Client() << 8 << 46 << 0, Code::kUnsupported, "dtype 46"},
      {"M31", "array-dimensions", F, dimensions, Code::kCorruption, "65 dimensions"},
      {"M31", "array-overflow", F, (Client() << 8 << 0 << 2).U64(1ull << 32).U64(1ull << 32),
       Code::kCorruption, "which no file can hold"},
      {"M31", "array-beyond", F, (Client() << 8 << 0 << 1).U64(4096) << 0, Code::kCorruption,
       "ends within"},
      {"M32", "trailing", F, Client() << 0 << 0, Code::kCorruption, "followed by 1 bytes"},
      {"M33", "many-values", F, large, Code::kCorruption, "more than 16777216 bytes"},
      {"M33", "many-bytes", F, heavy, Code::kCorruption, "more than 16777216 bytes"},
  };
}

std::vector<Mutation> ManifestMutations() {
  return {
      {"M57", "world-layout", F,
       ManifestWith([](RawManifest& raw) { raw.manifest.layout.world_size = 3; }),
       Code::kCorruption, "world size 2 in its header, 3 in its layout"},
      {"M57", "world-files", F,
       ManifestWith([](RawManifest& raw) { raw.manifest.files.pop_back(); }), Code::kCorruption,
       "names 1 rank files"},
      {"M58", "order", F, ManifestWith([](RawManifest& raw) {
         std::swap(raw.manifest.files[0], raw.manifest.files[1]);
       }),
       Code::kCorruption, "entry of rank file 0 is of rank 1"},
      {"M58", "reserved", F, ManifestWith([](RawManifest& raw) { raw.reserved = 1; }),
       Code::kCorruption, "or malformed"},
      {"M59", "length", F,
       ManifestWith([](RawManifest& raw) { raw.manifest.files[1].file_length += 1; }),
       Code::kCorruption, "not a multiple of 4096"},
      {"M59", "index-empty", F,
       ManifestWith([](RawManifest& raw) { raw.manifest.files[0].index_length = 0; }),
       Code::kCorruption, "does not fit"},
      {"M59", "index-beyond", F,
       ManifestWith([](RawManifest& raw) { raw.manifest.files[0].index_length = 4 * 4096 + 1; }),
       Code::kCorruption, "does not fit"},
      {"M60", "digest", F, ManifestWith([](RawManifest& raw) {
         raw.manifest.required_features = format::kFeatureNoData;
       }),
       Code::kCorruption, "an index digest, but no data"},
  };
}

}  // namespace

std::vector<Mutation> WireMutations() {
  FileBytes cut = RawManifestBody({});
  cut.resize(cut.size() / 2);
  std::vector<Mutation> all = {
      {"M20", "cut", F, WrapManifest(cut), Code::kCorruption, "not a well-formed FlatBuffer"},
      {"M20", "tiny", F, WrapManifest(FileBytes(4)), Code::kCorruption, "at least 8 are needed"},
      {"M20", "identifier", L, MalformedLayout(Malformed::kWrongIdentifier), Code::kCorruption,
       "identifier 'FSLA'"},
      {"M20", "index-as-body", F, WrapManifest(RawIndexBytes({})), Code::kCorruption,
       "identifier 'FSMF'"},
      {"M20", "too-many-tables", L, MalformedLayout(Malformed::kSharedTables), Code::kCorruption,
       "not a well-formed FlatBuffer"},
      {"M21", "cuts", L, MalformedLayout(Malformed::kMisalignedCuts), Code::kCorruption,
       "misaligned"},
      {"M21", "pieces", L, MalformedLayout(Malformed::kMisalignedPieces), Code::kCorruption,
       "misaligned"},
      {"M22", "shape", L, MalformedLayout(Malformed::kSharedShape), Code::kCorruption,
       "more than once"},
      {"M23", "cut", L, MalformedLayout(Malformed::kUnknownCut), Code::kUnsupported,
       "the cut rule 7"},
      {"M23", "no-cut", L, MalformedLayout(Malformed::kNoCut), Code::kCorruption,
       "without a cut rule"},
  };
  for (Mutation& mutation : PlainDataMutations()) all.push_back(std::move(mutation));
  for (Mutation& mutation : ManifestMutations()) all.push_back(std::move(mutation));
  return all;
}

}  // namespace flagstone::test
