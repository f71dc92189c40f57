// SPDX-License-Identifier: Apache-2.0
#include "kernel_memory.h"

#include <fstream>
#include <string>

namespace flagstone::tools {

std::optional<uint64_t> ResidentHostBytes() {
  std::ifstream status("/proc/self/status");
  uint64_t kib = 0;
  bool found = false;
  for (std::string key; status >> key;) {
    uint64_t value = 0;
    if ((key == "RssAnon:" || key == "RssShmem:") && status >> value) {
      kib += value;
      found = true;
    }
  }
  if (!found) return std::nullopt;
  return kib * 1024;
}

}  // namespace flagstone::tools
