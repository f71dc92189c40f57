// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Bytes that Flagstone would never write, with digests that match them, so that what is wrong is
/// found behind the digests. Of the tests, only raw_wire.cc includes FlatBuffers.

#include <cstdint>
#include <functional>
#include <optional>

#include "golden_maker.h"

namespace flagstone::test {

/// A manifest file around a body: header page, digests, padding. `edit` changes the header before
/// it is digested.
FileBytes WrapManifest(const FileBytes& body,
                       const std::function<void(format::Header&)>& edit = {});

/// The header page's digest made anew after `edit` changed its bytes.
FileBytes EditHeaderPage(FileBytes file, const std::function<void(std::span<std::byte>)>& edit);

/// What of a body is not in Manifest.
struct RawManifest {
  format::Manifest manifest = SmallManifest();
  std::optional<FileBytes> client_bytes;  ///< Instead of the encoding of client_state.
  uint32_t reserved = 0;
};
FileBytes RawManifestBody(const RawManifest& raw);

struct RawIndex {
  format::RankIndex index = SmallIndex();
  std::optional<FileBytes> state_bytes;  ///< Instead of the encoding of rank_state.
  FileBytes plain_tail;                  ///< Behind the values of the first plain column.
  bool drop_last_member = false;         ///< Of the first plain column, but not its value.
  bool split_columns = false;            ///< A plain column for each value.
};
FileBytes RawIndexBytes(const RawIndex& raw);

/// A layout's bytes without any check.
FileBytes RawLayoutBytes(const Layout& layout);

/// Small layouts that only a FlatBuffers builder can make wrong.
enum class Malformed {
  kNoMembersVector,   ///< Well-formed: absent vectors are empty ones.
  kEmptyUnaligned,    ///< Well-formed: an empty 8-byte vector lies 4 bytes off.
  kMisalignedCuts,    ///< The elements of FlatCut.cuts lie 4 bytes off.
  kMisalignedPieces,  ///< Those of ExplicitCut.pieces.
  kSharedShape,       ///< 200 tensors, one vector of 64 sizes.
  kSharedTables,      ///< 256 references to a table of 256 references to a table.
  kUnknownCut,
  kNoCut,
  kBoxOutOfRange,
  kBoxesFalling,
  kBoxNumbersMissing,
  kBoxNumbersLeft,
  kWrongIdentifier,
};
FileBytes MalformedLayout(Malformed kind);

/// True when the FlatBuffers at hand is the version that the committed files were made with.
bool IsGoldenFlatBuffers();

}  // namespace flagstone::test
