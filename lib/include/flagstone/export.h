// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Symbol visibility of the shared library.
///
/// Written by hand in the C++11 attribute form: `class [[nodiscard]] FLAGSTONE_EXPORT X` does not
/// compile with g++ 12 when the macro is the GNU `__attribute__` form.
#define FLAGSTONE_EXPORT [[gnu::visibility("default")]]
