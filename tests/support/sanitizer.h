// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace regroup::testing {

/// Whether the address or the thread sanitizer is compiled in: both keep shadow memory, and are
/// slow.
constexpr bool has_sanitizer() noexcept {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
    return __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
    return false;
#endif
}

}  // namespace regroup::testing
