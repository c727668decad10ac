// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "worker_sdk/src/net/socket.h"

namespace regroup::cpu {

/// Identifies an open file to other processes of the machine while its owner keeps it open. The
/// file needs no name.
struct FileTicket {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::int32_t process = 0;
    std::int32_t descriptor = -1;

    /// Invalid if `file` is closed.
    [[nodiscard]] static FileTicket of(const UniqueFd& file);
    /// Opens the file with flags of open(2). Returns a closed descriptor if this process cannot
    /// reach it: the owner is on another machine, in another container, or runs as another user.
    [[nodiscard]] UniqueFd open(int flags) const;
};

}  // namespace regroup::cpu
