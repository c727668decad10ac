// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace regroup::fuzz {

/// The bytes that this process has allocated, for targets that bound it. Counted from the first
/// call on.
struct Memory {
    std::size_t live = 0;       ///< Bytes that are allocated now.
    std::size_t allocated = 0;  ///< Bytes that have ever been allocated.
};
[[nodiscard]] const Memory& memory();

}  // namespace regroup::fuzz
