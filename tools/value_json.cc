// SPDX-License-Identifier: Apache-2.0
#include "value_json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>

#include "flagstone/dtype.h"

namespace flagstone::tools {
namespace {

using Json = nlohmann::ordered_json;

Json FromDouble(double number) {
  if (std::isfinite(number)) return number;
  const char* const name = std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
  return Json{{"float", name}};
}

Json FromBytes(const Value::Bytes& bytes) {
  std::string digits;
  digits.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    digits += "0123456789abcdef"[std::to_integer<unsigned>(byte >> 4)];
    digits += "0123456789abcdef"[std::to_integer<unsigned>(byte & std::byte{0xF})];
  }
  return Json{{"bytes", std::move(digits)}};
}

Json FromDict(const Value::Dict& dict) {
  const bool named = std::all_of(dict.begin(), dict.end(), [](const auto& entry) {
    return entry.first.template get_if<std::string>() != nullptr;
  });
  if (!named) {
    Json entries = Json::array();
    for (const auto& [key, value] : dict) {
      entries.push_back(Json::array({ToJson(key), ToJson(value)}));
    }
    return Json{{"dict", std::move(entries)}};
  }
  // Straight into the vector below the ordered map: its own insertion looks through all keys, and
  // a hostile file may hold a million. The format has seen to it that they are unique.
  Json::object_t object;
  object.reserve(dict.size());
  for (const auto& [key, value] : dict) {
    object.Json::object_t::Container::emplace_back(*key.get_if<std::string>(), ToJson(value));
  }
  return object;
}

Json FromArray(const Array& array) {
  return Json{
      {"array",
       {{"dtype", Name(array.dtype)}, {"shape", array.shape}, {"bytes", array.bytes.size()}}}};
}

}  // namespace

nlohmann::ordered_json ToJson(const Value& value) {
  return std::visit(
      [](const auto& content) -> Json {
        using T = std::decay_t<decltype(content)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nullptr;
        } else if constexpr (std::is_same_v<T, double>) {
          return FromDouble(content);
        } else if constexpr (std::is_same_v<T, Value::Bytes>) {
          return FromBytes(content);
        } else if constexpr (std::is_same_v<T, Value::List>) {
          Json list = Json::array();
          for (const Value& element : content) list.push_back(ToJson(element));
          return list;
        } else if constexpr (std::is_same_v<T, Value::Dict>) {
          return FromDict(content);
        } else if constexpr (std::is_same_v<T, Array>) {
          return FromArray(content);
        } else {
          return content;
        }
      },
      value.storage());
}

std::string Dump(const nlohmann::ordered_json& json, int indent) {
  std::string text = json.dump(indent, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  // The one control character that JSON lets stand.
  for (size_t at = text.find('\x7f'); at != std::string::npos; at = text.find('\x7f', at)) {
    text.replace(at, 1, "\\u007f");
  }
  return text;
}

}  // namespace flagstone::tools
