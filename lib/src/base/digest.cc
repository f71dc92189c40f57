// SPDX-License-Identifier: Apache-2.0
// XXH_INLINE_ALL here alone: the core gets its digests without a link dependency and without
// exporting xxHash symbols.
#define XXH_INLINE_ALL
#include "base/digest.h"

#include <xxhash.h>

#include <cstring>

namespace flagstone::base {
namespace {

Digest128 Canonical(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  Digest128 out;
  static_assert(sizeof(canonical.digest) == sizeof(out));
  std::memcpy(out.data(), canonical.digest, sizeof(out));
  return out;
}

}  // namespace

uint64_t Digest64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Digest128 DigestOf(std::span<const std::byte> bytes) {
  return Canonical(XXH3_128bits(bytes.data(), bytes.size()));
}

struct Digest128Stream::State {
  XXH3_state_t xxh;
};
Digest128Stream::Digest128Stream() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxh);
}
Digest128Stream::~Digest128Stream() = default;
void Digest128Stream::Update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}
Digest128 Digest128Stream::Finish() const { return Canonical(XXH3_128bits_digest(&state_->xxh)); }

struct Digest64Stream::State {
  XXH3_state_t xxh;
};
Digest64Stream::Digest64Stream() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->xxh);
}
Digest64Stream::~Digest64Stream() = default;
void Digest64Stream::Reset() { XXH3_64bits_reset(&state_->xxh); }
void Digest64Stream::Update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size());
}
uint64_t Digest64Stream::Finish() const { return XXH3_64bits_digest(&state_->xxh); }

}  // namespace flagstone::base
