// SPDX-License-Identifier: Apache-2.0
// What saves leave beside the checkpoint for each other: any bytes may lie there.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "store/file_coordinator.h"
#include "store/names.h"
#include "store/publish.h"
#include "store/record.h"

namespace flagstone::store {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

void TryRecord(std::string_view text) {
  if (const auto attempt = DecodeAttempt(text)) {
    Require(DecodeAttempt(EncodeAttempt(*attempt)) == attempt);
  }
  if (const auto answer = DecodeAnswer(text)) {
    Require(DecodeAnswer(EncodeAnswer(*answer)) == answer);
  }
  if (const auto owner = DecodeOwner(text)) Require(owner->timeout_ms > 0);
}

}  // namespace
}  // namespace flagstone::store

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flagstone::store;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  TryRecord(text);
  if (const auto value = UnframeValue(text)) TryRecord(*value);
  if (const auto latest = ParseLatest(text)) Require(IsCheckpointName(latest->name));
  ParseName(text);
  return 0;
}
