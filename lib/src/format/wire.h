// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The one door to FlatBuffers bytes. Private to format/, and included by its .cc files alone.
///
/// Bytes are guilty (spec/security.md): length and digest are the caller's, then the verifier with
/// stated limits, then the alignment of elements, then bounds. Two things that the verifier lets
/// through are stopped here. Elements of a vector may be misaligned, since it checks the alignment
/// of the vector's length only. And many references may lead to one object, by which a small file
/// decodes into a huge value; so everything that is reached is charged to a budget of the bytes
/// that are there, and a writer never shares.

#include <flatbuffers/flatbuffers.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/endian.h"
#include "base/text.h"
#include "flagstone/status.h"

namespace flagstone::format {

/// Deepest chain of tables in the schemas is 5 (Manifest, Layout, Partition, Role, Shape). Tables
/// of fields that a newer minor version added are not visited.
inline constexpr flatbuffers::uoffset_t kMaxTableDepth = 8;
/// Each table is reached by an offset of 4 bytes and begins with another.
inline constexpr uint64_t kMinTableBytes = 8;
/// Root offset and file identifier.
inline constexpr uint64_t kMinWireBytes = 8;

/// Reads verified tables. The first failure sticks: accessors then return nothing, and the caller
/// asks ok() once a table.
class WireReader {
 public:
  /// Bytes that do not begin on 8 bytes in memory are copied, so that elements can be read in
  /// place. `what` names the bytes in messages. Both are borrowed.
  WireReader(std::span<const std::byte> bytes, std::string_view what);

  /// The verified root table; nullptr on failure.
  template <typename Root>
  const Root* Verify(const char* identifier) {
    if (!Frame(identifier)) return nullptr;
    flatbuffers::Verifier::Options options;
    options.max_depth = kMaxTableDepth;
    // More visits than there is room for tables: something is shared. Bounds the verifier's time.
    options.max_tables = static_cast<flatbuffers::uoffset_t>(bytes_.size() / kMinTableBytes);
    flatbuffers::Verifier verifier(data(), bytes_.size(), options);
    if (!verifier.VerifyBuffer<Root>(identifier)) {
      Fail("is not a well-formed FlatBuffer of its kind");
      return nullptr;
    }
    return flatbuffers::GetRoot<Root>(data());
  }

  /// The characters of a string; "" when absent.
  std::string_view Text(const flatbuffers::String* text);

  /// The elements of a vector of scalars or structs, after the check of their alignment. An empty
  /// vector may lie anywhere: builders leave it unaligned.
  template <typename T>
  std::span<const T> Elements(const flatbuffers::Vector<T>* vector) {
    return ElementsAs<T>(vector);
  }
  template <typename T>
  std::span<const T> Elements(const flatbuffers::Vector<const T*>* vector) {
    return ElementsAs<T>(vector);
  }
  std::vector<uint64_t> Numbers(const flatbuffers::Vector<uint64_t>* vector) {
    const auto elements = Elements(vector);
    return {elements.begin(), elements.end()};
  }
  std::vector<uint32_t> Numbers(const flatbuffers::Vector<uint32_t>* vector) {
    const auto elements = Elements(vector);
    return {elements.begin(), elements.end()};
  }
  std::span<const std::byte> Bytes(const flatbuffers::Vector<uint8_t>* vector) {
    return std::as_bytes(Elements(vector));
  }

  /// How many tables a vector holds; 0 when absent, or when there cannot be as many.
  template <typename T>
  uint32_t Count(const flatbuffers::Vector<flatbuffers::Offset<T>>* vector) {
    if (vector == nullptr) return 0;
    return Charge(4 + vector->size() * kMinTableBytes) ? vector->size() : 0;
  }

  /// The enumerator of a byte, or kUnsupported when it is not below `count`.
  template <typename Enum, typename Wire>
  Enum Enumerator(Wire value, uint64_t count, std::string_view field) {
    if (static_cast<uint64_t>(value) >= count) {
      FailUnsupported(base::Join("has the ", field, " ", static_cast<uint64_t>(value)));
      return Enum{};
    }
    return static_cast<Enum>(value);
  }

  /// kCorruption: "<what> <message>".
  void Fail(std::string_view message);
  /// kUnsupported: "<what> <message>, which this version of Flagstone does not know".
  void FailUnsupported(std::string_view message);
  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  std::string_view what() const { return what_; }

 private:
  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(bytes_.data()); }
  bool Frame(const char* identifier);
  bool Charge(uint64_t size);

  template <typename T, typename Vector>
  std::span<const T> ElementsAs(const Vector* vector) {
    if (vector == nullptr) return {};
    const uint8_t* first = vector->Data();
    if (vector->size() != 0 && static_cast<size_t>(first - data()) % alignof(T) != 0) {
      Fail("holds a vector whose elements are misaligned");
    }
    if (!ok() || !Charge(8 + uint64_t{vector->size()} * sizeof(T))) return {};
    return {reinterpret_cast<const T*>(first), vector->size()};
  }

  std::span<const std::byte> bytes_;
  std::string_view what_;
  std::vector<uint64_t> aligned_;
  uint64_t budget_;
  Status status_;
};

}  // namespace flagstone::format
