// SPDX-License-Identifier: Apache-2.0
#include "format/value_codec.h"

#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/endian.h"
#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "flagstone/tensor.h"
#include "format/rank_index.h"

namespace flagstone::format {
namespace {

using base::Join;

// These values are frozen in the file format: the alternatives of Value::Storage, in order.
enum class Tag : uint8_t { kNull, kBool, kInt, kFloat, kStr, kBytes, kList, kDict, kArray };
constexpr uint64_t kTags = 9;
static_assert(std::variant_size_v<Value::Storage> == kTags);
static_assert(std::is_same_v<std::variant_alternative_t<8, Value::Storage>, Array>);

// The plain part may count this much: 16 for each value, and the bytes of str, bytes and small
// arrays (as ValidateValue counts).
constexpr uint64_t kMaxPlainBytes = uint64_t{16} << 20;
constexpr uint64_t kValueCost = 16;
constexpr size_t kMaxDimensions = 64;

class ValueWriter {
 public:
  ValueWriter(ArrayBytes arrays, std::vector<std::byte>& out) : arrays_(arrays), out_(out) {}

  // What is refused here is what would not fit the encoding; DecodeValue checks the rest.
  Status Write(const Value& value, int depth) {
    if (depth > Value::kMaxDepth) {
      return Fail(Join("is nested deeper than ", Value::kMaxDepth, " levels"));
    }
    const auto& storage = value.storage();
    Put(static_cast<uint8_t>(storage.index()));
    if (const auto* flag = value.get_if<bool>()) {
      Put(uint8_t{*flag});
    } else if (const auto* integer = value.get_if<int64_t>()) {
      Put(static_cast<uint64_t>(*integer));
    } else if (const auto* number = value.get_if<double>()) {
      Put(std::bit_cast<uint64_t>(*number));
    } else if (const auto* text = value.get_if<std::string>()) {
      return PutCounted(std::as_bytes(std::span(*text)));
    } else if (const auto* bytes = value.get_if<Value::Bytes>()) {
      return PutCounted(*bytes);
    } else if (const auto* list = value.get_if<Value::List>()) {
      FLAGSTONE_RETURN_IF_ERROR(PutCount(list->size()));
      for (const Value& item : *list) FLAGSTONE_RETURN_IF_ERROR(Write(item, depth + 1));
    } else if (const auto* dict = value.get_if<Value::Dict>()) {
      FLAGSTONE_RETURN_IF_ERROR(PutCount(dict->size()));
      for (const auto& [key, item] : *dict) {
        FLAGSTONE_RETURN_IF_ERROR(Write(key, depth + 1));
        FLAGSTONE_RETURN_IF_ERROR(Write(item, depth + 1));
      }
    } else if (const auto* array = value.get_if<Array>()) {
      return WriteArray(*array);
    }
    return {};
  }

 private:
  Status WriteArray(const Array& array) {
    const auto count = ElementCount(array.shape);
    const auto size = count ? base::CheckedMultiply(*count, SizeOf(array.dtype)) : std::nullopt;
    const bool apart = arrays_ == ArrayBytes::kSegments && size && *size > kInlineArrayBytes;
    const bool fits = size && (*size == array.bytes.size() || (apart && array.bytes.empty()));
    if (SizeOf(array.dtype) == 0 || array.shape.size() > kMaxDimensions || !fits) {
      return Fail(Join("holds an array of ", array.bytes.size(), " bytes whose dtype ",
                       Name(array.dtype), " and shape ", base::ShapeText(array.shape),
                       " do not make as many"));
    }
    Put(static_cast<uint8_t>(array.dtype));
    Put(static_cast<uint8_t>(array.shape.size()));
    for (const uint64_t size_of_dimension : array.shape) Put(size_of_dimension);
    if (!apart) out_.insert(out_.end(), array.bytes.begin(), array.bytes.end());
    return {};
  }

  template <typename T>
  void Put(T number) {
    std::byte bytes[sizeof(T)];
    base::StoreLittle(bytes, number);
    out_.insert(out_.end(), bytes, bytes + sizeof(T));
  }

  Status PutCount(size_t count) {
    if (count > kMaxPlainBytes) return TooLarge();
    Put(static_cast<uint32_t>(count));
    return {};
  }

  Status PutCounted(std::span<const std::byte> bytes) {
    FLAGSTONE_RETURN_IF_ERROR(PutCount(bytes.size()));
    out_.insert(out_.end(), bytes.begin(), bytes.end());
    return {};
  }

  static Status Fail(std::string message) {
    return Status(StatusCode::kInvalidArgument, std::move(message));
  }
  static Status TooLarge() {
    return Fail(Join("has more than ", kMaxPlainBytes, " bytes of plain data"));
  }

  ArrayBytes arrays_;
  std::vector<std::byte>& out_;
};

class ValueReader {
 public:
  ValueReader(std::span<const std::byte> bytes, ArrayBytes arrays)
      : bytes_(bytes), arrays_(arrays), values_left_(bytes.size()) {}

  std::span<const std::byte> rest() const { return bytes_; }

  Result<Value> Read(int depth) {
    if (depth > Value::kMaxDepth) {
      return Fail(Join("is nested deeper than ", Value::kMaxDepth, " levels"));
    }
    FLAGSTONE_ASSIGN_OR_RETURN(const auto tag, Take<uint8_t>());
    switch (static_cast<Tag>(tag)) {
      case Tag::kNull:
        return Value();
      case Tag::kBool:
        return ReadBool();
      case Tag::kInt: {
        FLAGSTONE_ASSIGN_OR_RETURN(const auto bits, Take<uint64_t>());
        return Value(static_cast<int64_t>(bits));
      }
      case Tag::kFloat: {
        FLAGSTONE_ASSIGN_OR_RETURN(const auto bits, Take<uint64_t>());
        return Value(std::bit_cast<double>(bits));
      }
      case Tag::kStr:
        return ReadStr();
      case Tag::kBytes: {
        FLAGSTONE_ASSIGN_OR_RETURN(const auto bytes, TakeCounted());
        return Value(Value::Bytes(bytes.begin(), bytes.end()));
      }
      case Tag::kList:
        return ReadList(depth);
      case Tag::kDict:
        return ReadDict(depth);
      case Tag::kArray:
        return ReadArray();
    }
    return Status(
        StatusCode::kUnsupported,
        Join("holds a value of kind ", tag, ", which this version of Flagstone does not know"));
  }

 private:
  Result<Value> ReadBool() {
    FLAGSTONE_ASSIGN_OR_RETURN(const auto flag, Take<uint8_t>());
    if (flag > 1) return Fail(Join("holds the bool ", flag));
    return Value(flag == 1);
  }

  Result<Value> ReadStr() {
    FLAGSTONE_ASSIGN_OR_RETURN(const auto bytes, TakeCounted());
    std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!base::IsUtf8(text)) {
      return Fail(Join("holds the str ", base::Quote(text), ", which is not UTF-8"));
    }
    return Value(std::move(text));
  }

  Result<Value> ReadList(int depth) {
    FLAGSTONE_ASSIGN_OR_RETURN(const uint32_t count, TakeCount(1));
    Value::List list;
    list.reserve(count);
    for (uint32_t i = 0; i < count; ++i) {
      FLAGSTONE_ASSIGN_OR_RETURN(Value item, Read(depth + 1));
      list.push_back(std::move(item));
    }
    return Value(std::move(list));
  }

  Result<Value> ReadDict(int depth) {
    FLAGSTONE_ASSIGN_OR_RETURN(const uint32_t count, TakeCount(2));
    Value::Dict dict;
    dict.reserve(count);
    // The encoding is canonical, so keys are equal when their bytes are.
    std::unordered_set<std::string_view> seen;
    for (uint32_t i = 0; i < count; ++i) {
      const auto* start = reinterpret_cast<const char*>(bytes_.data());
      const size_t before = bytes_.size();
      FLAGSTONE_ASSIGN_OR_RETURN(Value key, Read(depth + 1));
      if (key.get_if<Value::List>() || key.get_if<Value::Dict>() || key.get_if<Array>()) {
        return Fail("has a dict key that is a list, dict or array");
      }
      const std::string_view encoded(start, before - bytes_.size());
      if (!seen.insert(encoded).second) {
        return Fail(Join("has the dict key ", base::Quote(encoded.substr(1)), " twice"));
      }
      FLAGSTONE_ASSIGN_OR_RETURN(Value item, Read(depth + 1));
      dict.emplace_back(std::move(key), std::move(item));
    }
    return Value(std::move(dict));
  }

  Result<Value> ReadArray() {
    Array array;
    FLAGSTONE_ASSIGN_OR_RETURN(const auto dtype, Take<uint8_t>());
    array.dtype = static_cast<DType>(dtype);
    if (SizeOf(array.dtype) == 0) {
      return Status(StatusCode::kUnsupported,
                    Join("holds an array of dtype ", dtype,
                         ", which this version of Flagstone does not know"));
    }
    FLAGSTONE_ASSIGN_OR_RETURN(const auto dimensions, Take<uint8_t>());
    if (dimensions > kMaxDimensions) {
      return Fail(Join("holds an array of ", dimensions, " dimensions"));
    }
    for (uint8_t i = 0; i < dimensions; ++i) {
      FLAGSTONE_ASSIGN_OR_RETURN(const auto size, Take<uint64_t>());
      array.shape.push_back(size);
    }
    const auto count = ElementCount(array.shape);
    const auto size = count ? base::CheckedMultiply(*count, SizeOf(array.dtype)) : std::nullopt;
    if (!size || *size > kMaxFileBytes) {
      return Fail(Join("holds an array of shape ", base::ShapeText(array.shape),
                       ", which no file can hold"));
    }
    const bool small = *size <= kInlineArrayBytes;
    if (small) FLAGSTONE_RETURN_IF_ERROR(Spend(*size));
    if (small || arrays_ == ArrayBytes::kInline) {
      FLAGSTONE_ASSIGN_OR_RETURN(const auto bytes, TakeBytes(*size));
      array.bytes.assign(bytes.begin(), bytes.end());
    }
    return Value(std::move(array));
  }

  Result<std::span<const std::byte>> TakeBytes(uint64_t size) {
    if (size > bytes_.size()) {
      return Fail(
          Join("ends within a value: ", size, " bytes are needed, ", bytes_.size(), " are left"));
    }
    const auto taken = bytes_.first(static_cast<size_t>(size));
    bytes_ = bytes_.subspan(static_cast<size_t>(size));
    return taken;
  }

  template <typename T>
  Result<T> Take() {
    FLAGSTONE_ASSIGN_OR_RETURN(const auto bytes, TakeBytes(sizeof(T)));
    return base::LoadLittle<T>(bytes.data());
  }

  // A count of items of `values` values each. They are paid for here and not one by one, since room
  // is reserved for all: lists nested in lists may not each claim the same bytes.
  Result<uint32_t> TakeCount(uint64_t values) {
    FLAGSTONE_ASSIGN_OR_RETURN(const auto count, Take<uint32_t>());
    const uint64_t total = count * values;
    if (total > values_left_) {
      return Fail(Join("states ", count, " items, for which there is no room"));
    }
    values_left_ -= total;
    FLAGSTONE_RETURN_IF_ERROR(Spend(total * kValueCost));
    return count;
  }

  Result<std::span<const std::byte>> TakeCounted() {
    FLAGSTONE_ASSIGN_OR_RETURN(const auto size, Take<uint32_t>());
    FLAGSTONE_RETURN_IF_ERROR(Spend(size));
    return TakeBytes(size);
  }

  Status Spend(uint64_t cost) {
    if (cost > left_) {
      return Fail(Join("has more than ", kMaxPlainBytes,
                       " bytes of plain data; put large data into arrays"));
    }
    left_ -= cost;
    return {};
  }

  static Status Fail(std::string message) {
    return Status(StatusCode::kCorruption, std::move(message));
  }

  std::span<const std::byte> bytes_;
  ArrayBytes arrays_;
  uint64_t values_left_;  // A value takes at least its tag.
  uint64_t left_ = kMaxPlainBytes - kValueCost;
};

Status Named(const Status& status, StatusCode code, std::string_view what) {
  return Status(code, Join(what, " ", status.message()));
}

}  // namespace

Status AppendValue(const Value& value, ArrayBytes arrays, std::string_view what,
                   std::vector<std::byte>& out) {
  const size_t before = out.size();
  if (Status status = ValueWriter(arrays, out).Write(value, 1); !status.ok()) {
    return Named(status, status.code(), what);
  }
  // The rules are written down once, in the reader.
  const auto written = std::span(out).subspan(before);
  if (auto back = DecodeValue(written, arrays, what); !back.ok()) {
    return Status(StatusCode::kInvalidArgument, back.status().message());
  }
  return {};
}

Result<Value> TakeValue(std::span<const std::byte>& bytes, ArrayBytes arrays,
                        std::string_view what) {
  ValueReader reader(bytes, arrays);
  Result<Value> value = reader.Read(1);
  if (!value.ok()) return Named(value.status(), value.status().code(), what);
  bytes = reader.rest();
  return value;
}

Result<Value> DecodeValue(std::span<const std::byte> bytes, ArrayBytes arrays,
                          std::string_view what) {
  Result<Value> value = TakeValue(bytes, arrays, what);
  if (value.ok() && !bytes.empty()) {
    return Status(StatusCode::kCorruption,
                  Join(what, " is followed by ", bytes.size(), " bytes that belong to nothing"));
  }
  return value;
}

}  // namespace flagstone::format
