// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/error.h>

#include <cstdint>
#include <optional>
#include <string>

namespace regroup {

/// Why a group has ended. The helper thread of "cpu" throws it, which ends the group.
struct GroupFailure {
    Errc code = Errc::disconnected;
    std::string cause{};
    /// The operation that met it; empty if none did, or if the caller is to fill in the one under
    /// way.
    std::string operation{};
    /// The rank of this group to which a connection has broken, if that is what this rank has met.
    std::optional<std::uint32_t> broken_to{};
    /// It follows from what has failed on another rank, which is telling.
    bool follows = false;
    /// Something broke in the system, of which the end of another rank may be the reason.
    bool may_be_peer = false;
};

}  // namespace regroup
