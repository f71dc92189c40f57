// SPDX-License-Identifier: Apache-2.0
#include "format/wire.h"

#include <cstring>

#include "format/header.h"

namespace flagstone::format {

WireReader::WireReader(std::span<const std::byte> bytes, std::string_view what)
    : bytes_(bytes), what_(what), budget_(bytes.size()) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(uint64_t) == 0 || bytes.empty()) return;
  aligned_.resize((bytes.size() + sizeof(uint64_t) - 1) / sizeof(uint64_t));
  std::memcpy(aligned_.data(), bytes.data(), bytes.size());
  bytes_ = std::as_bytes(std::span(aligned_)).first(bytes.size());
}

bool WireReader::Frame(const char* identifier) {
  if (bytes_.size() < kMinWireBytes) {
    Fail(base::Join("has ", bytes_.size(), " bytes; at least ", kMinWireBytes, " are needed"));
  } else if (bytes_.size() > kMaxIndexBytes) {
    Fail(base::Join("has ", bytes_.size(), " bytes; at most ", kMaxIndexBytes, " are allowed"));
  } else if (!flatbuffers::BufferHasIdentifier(data(), identifier)) {
    Fail(base::Join("does not carry the identifier ", base::Quote(identifier)));
  }
  return ok();
}

std::string_view WireReader::Text(const flatbuffers::String* text) {
  // 4 bytes each of the reference and of the length, and a terminator.
  if (text == nullptr || !ok() || !Charge(9 + uint64_t{text->size()})) return {};
  return {text->c_str(), text->size()};
}

bool WireReader::Charge(uint64_t size) {
  if (size <= budget_) {
    budget_ -= size;
    return ok();
  }
  budget_ = 0;
  Fail("reaches the same bytes more than once");
  return false;
}

void WireReader::Fail(std::string_view message) {
  if (ok()) status_ = Status(StatusCode::kCorruption, base::Join(what_, " ", message));
}

void WireReader::FailUnsupported(std::string_view message) {
  if (!ok()) return;
  status_ = Status(StatusCode::kUnsupported, base::Join(what_, " ", message,
                                                        ", which this version of Flagstone does "
                                                        "not know"));
}

}  // namespace flagstone::format
