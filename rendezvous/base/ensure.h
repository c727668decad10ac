// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace regroup::base {

/// Prints the broken invariant with its place and aborts. Never returns.
[[noreturn]] void ensure_failed(const char* expression, const char* file, int line) noexcept;

}  // namespace regroup::base

/// Checks an invariant, in every build type. A broken invariant is a bug in regroup and aborts the
/// process. Bad input must not be checked with it.
#define ENSURE(expression)         \
    (static_cast<bool>(expression) \
         ? static_cast<void>(0)    \
         : ::regroup::base::ensure_failed(#expression, __FILE__, __LINE__))
