// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::launcher {

/// Limits of a host list, so that a short text cannot fill the memory.
inline constexpr std::size_t kHostsMax = 65536;
inline constexpr std::size_t kHostNameMax = 255;  ///< Bytes.

/// The names that a host list of Slurm stands for, in Slurm's order, repeated ones included:
/// "login,n[08-10,12]-ib" is login, n08-ib, n09-ib, n10-ib, n12-ib. Commas and blanks separate
/// the items. The first number of a range gives the number of digits. Of several brackets in one
/// item, the last counts fastest, and the one before it slowest.
/// Errors: invalid_argument, one line with the place in the list and what is wrong there.
[[nodiscard]] Result<std::vector<std::string>> expand_host_list(std::string_view list);

}  // namespace regroup::launcher
