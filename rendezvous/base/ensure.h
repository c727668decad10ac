// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace regroup::base {

/// Prints the broken invariant with its place and aborts. Never returns.
[[noreturn]] void ensure_failed(const char* expression, const char* file, int line) noexcept;

}  // namespace regroup::base

/// States an invariant, in every build type. A broken one is a bug of ours and aborts; it is never
/// the answer to bad input.
#define ENSURE(expression)         \
    (static_cast<bool>(expression) \
         ? static_cast<void>(0)    \
         : ::regroup::base::ensure_failed(#expression, __FILE__, __LINE__))
