// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Decoded files as JSON, complete: two values give equal JSON exactly when they are equal.

#include <nlohmann/json.hpp>

#include "format/header.h"
#include "format/manifest.h"
#include "format/rank_index.h"

namespace flagstone::test {

nlohmann::ordered_json ToJson(const Value& value);
nlohmann::ordered_json ToJson(const Layout& layout);
nlohmann::ordered_json ToJson(const format::Header& header);
nlohmann::ordered_json ToJson(const format::Manifest& manifest);
nlohmann::ordered_json ToJson(const format::RankIndex& index);

}  // namespace flagstone::test
