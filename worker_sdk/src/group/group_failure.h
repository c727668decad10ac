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
    /// The operation that met the failure; empty if none did, or if the caller fills in the current
    /// one.
    std::string operation{};
    /// The rank of this group to which a connection has broken, if that is what this rank has met.
    std::optional<std::uint32_t> broken_to{};
    /// The failure follows from a failure on another rank, which sends its own notice.
    bool follows = false;
    /// A system error that the end of another rank may have caused.
    bool may_be_peer = false;
};

}  // namespace regroup
