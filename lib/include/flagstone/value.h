// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Plain data: what client state, a rank's own state, hyper-parameters and plain roles are made of.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "flagstone/dtype.h"
#include "flagstone/export.h"
#include "flagstone/status.h"

namespace flagstone {

/// A dense row-major array inside plain data, for example an RNG state.
struct Array {
  DType dtype = DType::kUint8;
  std::vector<uint64_t> shape;
  std::vector<std::byte> bytes;  ///< product(shape) * SizeOf(dtype) bytes, little-endian.

  bool operator==(const Array&) const = default;
};

/// One value of plain data: null, bool, int, float, str, bytes, list, dict or array.
///
/// A dict keeps the order of its entries; its keys are null, bool, int, float, str or bytes and
/// occur once. Values compare by content, floats by their bits (so a NaN equals itself and 0.0
/// differs from -0.0).
class FLAGSTONE_EXPORT Value {
 public:
  using Bytes = std::vector<std::byte>;
  using List = std::vector<Value>;
  using Dict = std::vector<std::pair<Value, Value>>;
  /// The index of an alternative is frozen in the file format (spec/format.md, "Plain data").
  using Storage =
      std::variant<std::monostate, bool, int64_t, double, std::string, Bytes, List, Dict, Array>;

  /// Deepest nesting that is accepted: a scalar has depth 1, a list of scalars depth 2.
  static constexpr int kMaxDepth = 64;

  Value();
  Value(bool value);              // NOLINT: implicit by design, as the literals of a config are
  Value(int value);               // NOLINT
  Value(int64_t value);           // NOLINT
  Value(double value);            // NOLINT
  Value(const char* value);       // NOLINT
  Value(std::string value);       // NOLINT
  Value(std::string_view value);  // NOLINT
  Value(Bytes value);             // NOLINT
  Value(List value);              // NOLINT
  Value(Dict value);              // NOLINT
  Value(Array value);             // NOLINT
  Value(const Value&);
  Value& operator=(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(Value&&) noexcept;
  ~Value();

  bool is_null() const;
  const Storage& storage() const { return storage_; }
  Storage& storage() { return storage_; }

  /// The alternative T (bool, int64_t, double, std::string, Bytes, List, Dict, Array), or nullptr.
  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&storage_);
  }

  /// The entry of a dict under a str key; nullptr when this is no dict or has none.
  const Value* Find(std::string_view key) const;
  /// Add or replace the entry under a str key. A null becomes an empty dict first; any other kind
  /// is replaced by one.
  void Set(std::string_view key, Value value);

  bool operator==(const Value& other) const;

 private:
  Storage storage_;
};

/// Check what the format demands of plain data: depth <= kMaxDepth, scalar unique keys, arrays
/// whose bytes match their shape, str in valid UTF-8, at most 16 MiB outside arrays above 4 KiB.
/// `what` names the value in the message.
FLAGSTONE_EXPORT Status ValidateValue(const Value& value, std::string_view what);

}  // namespace flagstone
