// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The digests of the format: XXH3 with seed 0. They find accidents, not attackers
/// (spec/security.md).

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace flagstone::base {

/// XXH3-64.
uint64_t Digest64(std::span<const std::byte> bytes);

/// XXH3-128 in its canonical (big-endian) byte order.
using Digest128 = std::array<std::byte, 16>;
Digest128 DigestOf(std::span<const std::byte> bytes);

/// XXH3-128 of bytes that come in pieces.
class Digest128Stream {
 public:
  Digest128Stream();
  Digest128Stream(const Digest128Stream&) = delete;
  Digest128Stream& operator=(const Digest128Stream&) = delete;
  ~Digest128Stream();
  void Update(std::span<const std::byte> bytes);
  Digest128 Finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// XXH3-64 of bytes that come in pieces.
class Digest64Stream {
 public:
  Digest64Stream();
  Digest64Stream(const Digest64Stream&) = delete;
  Digest64Stream& operator=(const Digest64Stream&) = delete;
  ~Digest64Stream();
  void Reset();
  void Update(std::span<const std::byte> bytes);
  uint64_t Finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace flagstone::base
