// SPDX-License-Identifier: Apache-2.0
#include "flagstone/value.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/range.h"
#include "base/text.h"
#include "flagstone/tensor.h"

namespace flagstone {
namespace {

using base::Join;
using base::Quote;

constexpr uint64_t kMaxPlainBytes = uint64_t{16} << 20;
constexpr uint64_t kInlineArrayBytes = 4096;

// A text that is equal for two keys exactly when the keys are equal; kind first, so that 1 and True
// stay apart.
std::string KeyText(const Value& key) {
  std::string out(1, static_cast<char>('0' + key.storage().index()));
  if (const auto* flag = key.get_if<bool>()) out += *flag ? '1' : '0';
  if (const auto* number = key.get_if<int64_t>()) out += Join(*number);
  if (const auto* number = key.get_if<double>()) {
    char bits[sizeof(double)];
    std::memcpy(bits, number, sizeof(bits));
    out.append(bits, sizeof(bits));
  }
  if (const auto* text = key.get_if<std::string>()) out += *text;
  if (const auto* bytes = key.get_if<Value::Bytes>()) {
    out.append(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  }
  return out;
}

bool IsScalar(const Value& value) {
  return !value.get_if<Value::List>() && !value.get_if<Value::Dict>() && !value.get_if<Array>();
}

class Validator {
 public:
  explicit Validator(std::string_view what) : what_(what) {}

  Status Check(const Value& value, int depth) {
    if (depth > Value::kMaxDepth)
      return Fail(Join("is nested deeper than ", Value::kMaxDepth, " levels"));
    plain_bytes_ += 16;  // what a value costs beside its text; bounds lists of nulls too
    if (const auto* text = value.get_if<std::string>()) {
      plain_bytes_ += text->size();
      if (!base::IsUtf8(*text))
        return Fail(Join("holds the str ", Quote(*text), ", which is not UTF-8; use bytes"));
    } else if (const auto* bytes = value.get_if<Value::Bytes>()) {
      plain_bytes_ += bytes->size();
    } else if (const auto* list = value.get_if<Value::List>()) {
      for (const Value& item : *list) {
        if (Status status = Check(item, depth + 1); !status.ok()) return status;
      }
    } else if (const auto* dict = value.get_if<Value::Dict>()) {
      if (Status status = CheckDict(*dict, depth); !status.ok()) return status;
    } else if (const auto* array = value.get_if<Array>()) {
      if (Status status = CheckArray(*array); !status.ok()) return status;
    }
    if (plain_bytes_ > kMaxPlainBytes) {
      return Fail(Join("has more than ", kMaxPlainBytes,
                       " bytes of plain data; put large data into arrays"));
    }
    return {};
  }

 private:
  Status CheckDict(const Value::Dict& dict, int depth) {
    std::set<std::string> seen;
    for (const auto& [key, item] : dict) {
      if (!IsScalar(key)) return Fail("has a dict key that is a list, dict or array");
      if (Status status = Check(key, depth + 1); !status.ok()) return status;
      std::string text = KeyText(key);
      if (!seen.insert(text).second)
        return Fail(Join("has the dict key ", Quote(text.substr(1)), " twice"));
      if (Status status = Check(item, depth + 1); !status.ok()) return status;
    }
    return {};
  }

  Status CheckArray(const Array& array) {
    const auto count = ElementCount(array.shape);
    const auto bytes = count ? base::CheckedMultiply(*count, SizeOf(array.dtype)) : std::nullopt;
    if (SizeOf(array.dtype) == 0 || array.shape.size() > 64 || !bytes ||
        *bytes != array.bytes.size()) {
      return Fail(Join("holds an array of ", array.bytes.size(), " bytes whose dtype ",
                       Name(array.dtype), " and shape ", base::ShapeText(array.shape),
                       " do not make as many"));
    }
    if (array.bytes.size() <= kInlineArrayBytes) plain_bytes_ += array.bytes.size();
    return {};
  }

  Status Fail(std::string reason) const {
    return Status(StatusCode::kInvalidArgument, Join(what_, " ", reason));
  }

  std::string_view what_;
  uint64_t plain_bytes_ = 0;
};

}  // namespace

Value::Value() = default;
Value::Value(bool value) : storage_(value) {}
Value::Value(int value) : storage_(int64_t{value}) {}
Value::Value(int64_t value) : storage_(value) {}
Value::Value(double value) : storage_(value) {}
Value::Value(const char* value) : storage_(std::string(value)) {}
Value::Value(std::string value) : storage_(std::move(value)) {}
Value::Value(std::string_view value) : storage_(std::string(value)) {}
Value::Value(Bytes value) : storage_(std::move(value)) {}
Value::Value(List value) : storage_(std::move(value)) {}
Value::Value(Dict value) : storage_(std::move(value)) {}
Value::Value(Array value) : storage_(std::move(value)) {}
Value::Value(const Value&) = default;
Value& Value::operator=(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(Value&&) noexcept = default;
Value::~Value() = default;

bool Value::is_null() const { return std::holds_alternative<std::monostate>(storage_); }

const Value* Value::Find(std::string_view key) const {
  const auto* dict = get_if<Dict>();
  if (!dict) return nullptr;
  for (const auto& [name, value] : *dict) {
    if (const auto* text = name.get_if<std::string>(); text && *text == key) return &value;
  }
  return nullptr;
}

void Value::Set(std::string_view key, Value value) {
  if (!std::holds_alternative<Dict>(storage_)) storage_ = Dict();
  auto& dict = std::get<Dict>(storage_);
  for (auto& [name, old] : dict) {
    if (const auto* text = name.get_if<std::string>(); text && *text == key) {
      old = std::move(value);
      return;
    }
  }
  dict.emplace_back(Value(key), std::move(value));
}

bool Value::operator==(const Value& other) const {
  if (storage_.index() != other.storage_.index()) return false;
  if (const auto* number = get_if<double>()) {
    return std::memcmp(number, other.get_if<double>(), sizeof(double)) == 0;
  }
  return storage_ == other.storage_;
}

Status ValidateValue(const Value& value, std::string_view what) {
  return Validator(what).Check(value, 1);
}

std::optional<uint64_t> ElementCount(const std::vector<uint64_t>& shape) {
  // A zero anywhere makes the tensor empty, even where the other factors alone would overflow.
  if (std::find(shape.begin(), shape.end(), uint64_t{0}) != shape.end()) return 0;
  uint64_t count = 1;
  for (const uint64_t size : shape) {
    const auto product = base::CheckedMultiply(count, size);
    if (!product) return std::nullopt;
    count = *product;
  }
  return count;
}

}  // namespace flagstone
