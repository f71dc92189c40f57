// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// A layout as bytes: what a rank declares to the coordinator, and the digest by which equal
/// declarations are known.

#include <cstddef>
#include <span>
#include <vector>

#include "base/digest.h"
#include "flagstone/partition.h"
#include "flagstone/status.h"

namespace flagstone::format {

/// FlatBuffers, the same tables as in the manifest. The layout must be valid and normal
/// (partition/normalize.h). Errors: kResourceExhausted when the encoding would exceed
/// kMaxIndexBytes (header.h).
Result<std::vector<std::byte>> EncodeLayout(const Layout& layout);
/// Bytes are guilty: verifier, bounds, then ValidateLayout; refused unless in normal form.
/// Errors: kCorruption, kUnsupported (an enumerator or a cut rule that this version does not know).
Result<Layout> DecodeLayout(std::span<const std::byte> bytes);

/// XXH3-128 of the canonical encoding (spec/format.md, "Canonical encoding"), never of FlatBuffers
/// bytes.
base::Digest128 LayoutDigest(const Layout& layout);

}  // namespace flagstone::format
