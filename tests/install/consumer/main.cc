// SPDX-License-Identifier: Apache-2.0
#include <flagstone/flagstone.h>

#include <iostream>

int main() {
  // A value of a class with exported members crosses the library's border here, not only a function.
  const flagstone::Status status(flagstone::StatusCode::kNotFound, "nothing is here");
  const flagstone::Status copy = status;
  if (copy.ok() || flagstone::StatusCodeName(copy.code()) != "kNotFound") return 1;
  std::cout << flagstone::LibraryVersion() << '\n';
}
