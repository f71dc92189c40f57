// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "flagstone/value.h"

namespace flagstone::tools {

/// Plain data as JSON, for people and scripts to look at.
///
/// null, bool, int, finite float, str, list and dicts with str keys are themselves, in their order.
/// What JSON has no form for is an object with one entry: {"float": "nan" | "inf" | "-inf"},
/// {"bytes": "<hexadecimal>"}, {"dict": [[key, value], ...]}, and an array is described without its
/// content: {"array": {"dtype", "shape", "bytes"}}.
nlohmann::ordered_json ToJson(const Value& value);

/// JSON text in printable ASCII alone, so that no name can drive a terminal; what is not UTF-8 (a
/// path may be so) becomes U+FFFD. `indent` -1: on one line.
std::string Dump(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace flagstone::tools
