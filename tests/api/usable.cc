// SPDX-License-Identifier: Apache-2.0
#include "usable.h"

#include <iostream>

namespace flagstone::tests {

bool IsUsable(const Checkpoint& checkpoint, Backend backend) {
  LoadOptions options;
  options.backend = backend;
  options.replicated = true;  // or there may be nothing to load
  const auto reader = checkpoint.OpenRank(0, options);
  if (!reader.ok()) return true;  // the test will say
  const auto memory = reader->Allocate();
  const auto report = reader->Load(memory.value().destinations);
  if (report.ok() || report.status().code() != StatusCode::kUnsupported) return true;
  std::cout << "SKIP: " << Name(backend) << ": " << report.status().message() << "\n";
  return false;
}

}  // namespace flagstone::tests
