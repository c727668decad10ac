// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>

namespace regroup::fuzz {

/// The bytes that this process has allocated, for targets that bound it. Counted from the first
/// call on, whichever thread allocates.
struct Memory {
    std::atomic<std::size_t> live = 0;       ///< Bytes that are allocated now.
    std::atomic<std::size_t> allocated = 0;  ///< Bytes that have ever been allocated.
};
[[nodiscard]] const Memory& memory();

}  // namespace regroup::fuzz
