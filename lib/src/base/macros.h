// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Passing failures on. Private: no public header includes this.

#include <utility>

#include "flagstone/status.h"

#define FLAGSTONE_CONCAT_INNER(a, b) a##b
#define FLAGSTONE_CONCAT(a, b) FLAGSTONE_CONCAT_INNER(a, b)

/// Return from the calling function when `expression` (a Status) is not ok.
#define FLAGSTONE_RETURN_IF_ERROR(expression)                                          \
  do {                                                                                 \
    if (::flagstone::Status flagstone_status = (expression); !flagstone_status.ok()) { \
      return flagstone_status;                                                         \
    }                                                                                  \
  } while (false)

/// Evaluate `expression` (a Result<T>) once; return its status on failure, else move its value into
/// `declaration`. Expands to several statements: not for the single-statement body of an if. Wrap a
/// declaration that has commas in parentheses-free `auto`.
#define FLAGSTONE_ASSIGN_OR_RETURN(declaration, expression)                                    \
  FLAGSTONE_ASSIGN_OR_RETURN_INNER(FLAGSTONE_CONCAT(flagstone_result_, __LINE__), declaration, \
                                   expression)
#define FLAGSTONE_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                             \
  if (!result.ok()) return result.status();                               \
  declaration = *std::move(result)
