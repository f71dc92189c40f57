// SPDX-License-Identifier: Apache-2.0
#include "flagstone/dtype.h"

#include <array>
#include <cstddef>

namespace flagstone {
namespace {

struct Entry {
  DType dtype;
  uint64_t size;
  std::string_view name;
};

// Row i describes the DType of value i; the names and sizes are torch's (c10/core/ScalarType.h),
// sizes of the storage element.
constexpr auto kEntries = std::to_array<Entry>({
    {DType::kUint8, 1, "uint8"},
    {DType::kInt8, 1, "int8"},
    {DType::kInt16, 2, "int16"},
    {DType::kInt32, 4, "int32"},
    {DType::kInt64, 8, "int64"},
    {DType::kUint16, 2, "uint16"},
    {DType::kUint32, 4, "uint32"},
    {DType::kUint64, 8, "uint64"},
    {DType::kBool, 1, "bool"},
    {DType::kFloat16, 2, "float16"},
    {DType::kBFloat16, 2, "bfloat16"},
    {DType::kFloat32, 4, "float32"},
    {DType::kFloat64, 8, "float64"},
    {DType::kComplex32, 4, "complex32"},
    {DType::kComplex64, 8, "complex64"},
    {DType::kComplex128, 16, "complex128"},
    {DType::kFloat8E4M3Fn, 1, "float8_e4m3fn"},
    {DType::kFloat8E5M2, 1, "float8_e5m2"},
    {DType::kFloat8E4M3FnUz, 1, "float8_e4m3fnuz"},
    {DType::kFloat8E5M2FnUz, 1, "float8_e5m2fnuz"},
    {DType::kFloat8E8M0Fnu, 1, "float8_e8m0fnu"},
    {DType::kFloat4E2M1FnX2, 1, "float4_e2m1fn_x2"},
    {DType::kQInt8, 1, "qint8"},
    {DType::kQUint8, 1, "quint8"},
    {DType::kQInt32, 4, "qint32"},
    {DType::kQUint4x2, 1, "quint4x2"},
    {DType::kQUint2x4, 1, "quint2x4"},
    {DType::kBits1x8, 1, "bits1x8"},
    {DType::kBits2x4, 1, "bits2x4"},
    {DType::kBits4x2, 1, "bits4x2"},
    {DType::kBits8, 1, "bits8"},
    {DType::kBits16, 2, "bits16"},
    {DType::kUint1, 1, "uint1"},
    {DType::kUint2, 1, "uint2"},
    {DType::kUint3, 1, "uint3"},
    {DType::kUint4, 1, "uint4"},
    {DType::kUint5, 1, "uint5"},
    {DType::kUint6, 1, "uint6"},
    {DType::kUint7, 1, "uint7"},
    {DType::kInt1, 1, "int1"},
    {DType::kInt2, 1, "int2"},
    {DType::kInt3, 1, "int3"},
    {DType::kInt4, 1, "int4"},
    {DType::kInt5, 1, "int5"},
    {DType::kInt6, 1, "int6"},
    {DType::kInt7, 1, "int7"},
});

constexpr bool RowsAreInOrder() {
  for (size_t i = 0; i < kEntries.size(); ++i) {
    if (static_cast<size_t>(kEntries[i].dtype) != i) return false;
  }
  return true;
}
static_assert(RowsAreInOrder());

constexpr auto kAll = [] {
  std::array<DType, kEntries.size()> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = kEntries[i].dtype;
  return all;
}();

const Entry* Find(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  return index < kEntries.size() ? &kEntries[index] : nullptr;
}

}  // namespace

std::span<const DType> AllDTypes() { return kAll; }

uint64_t SizeOf(DType dtype) {
  const Entry* entry = Find(dtype);
  return entry ? entry->size : 0;
}

std::string_view Name(DType dtype) {
  const Entry* entry = Find(dtype);
  return entry ? entry->name : "unknown";
}

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

}  // namespace flagstone
