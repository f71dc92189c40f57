// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Little-endian integers at any address. The format is little-endian, and so is every machine it
/// runs on so far: tensor bytes are stored as they lie in memory.

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

namespace flagstone::base {

static_assert(std::endian::native == std::endian::little,
              "tensor bytes are stored as they lie in memory: a big-endian port must swap them");

template <std::unsigned_integral T>
T LoadLittle(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <std::unsigned_integral T>
void StoreLittle(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

}  // namespace flagstone::base
