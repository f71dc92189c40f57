// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// A layout in FlatBuffers tables, as the manifest and a declaration both carry it. Private to
/// format/.

#include <layout_generated.h>

#include "flagstone/partition.h"
#include "format/wire.h"

namespace flagstone::format {

/// What one rank declares may leave boxes of a tensor to others.
enum class LayoutScope : uint8_t { kWhole, kDeclaration };

/// Read verified tables. The layout is checked: bounds, enumerators, ValidateLayout or
/// ValidateDeclaration, normal form.
Result<Layout> ReadLayout(const wire::Layout& table, LayoutScope scope, WireReader& reader);

/// Build the tables of a valid, normal layout.
Result<flatbuffers::Offset<wire::Layout>> WriteLayout(flatbuffers::FlatBufferBuilder& builder,
                                                      const Layout& layout);

/// No fewer bytes than WriteLayout adds, so that a builder is never driven over its 2 GiB.
uint64_t LayoutBound(const Layout& layout);

/// kResourceExhausted when `bound` is above kMaxIndexBytes.
Status CheckBound(uint64_t bound, std::string_view what);

/// A vector of scalars or structs, or null (no field) when it is empty.
template <typename T>
flatbuffers::Offset<flatbuffers::Vector<T>> WriteNumbers(flatbuffers::FlatBufferBuilder& builder,
                                                         const std::vector<T>& numbers) {
  if (numbers.empty()) return 0;
  return builder.CreateVector(numbers);
}
template <typename T>
flatbuffers::Offset<flatbuffers::Vector<const T*>> WriteStructs(
    flatbuffers::FlatBufferBuilder& builder, const std::vector<T>& structs) {
  if (structs.empty()) return 0;
  return builder.CreateVectorOfStructs(structs);
}
template <typename T>
flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<T>>> WriteTables(
    flatbuffers::FlatBufferBuilder& builder, const std::vector<flatbuffers::Offset<T>>& tables) {
  if (tables.empty()) return 0;
  return builder.CreateVector(tables);
}
inline flatbuffers::Offset<flatbuffers::Vector<uint8_t>> WriteBytes(
    flatbuffers::FlatBufferBuilder& builder, std::span<const std::byte> bytes) {
  return builder.CreateVector(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}
inline std::vector<std::byte> BytesOf(const flatbuffers::FlatBufferBuilder& builder) {
  const auto* first = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {first, first + builder.GetSize()};
}

}  // namespace flagstone::format
