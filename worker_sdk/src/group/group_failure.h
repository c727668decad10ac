// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/error.h>

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/base/round_scope.h"

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
    /// With `broken_to`: what is known about that rank, as the rest of a sentence about it.
    std::string how{};
    /// The failure follows from a failure on another rank, which sends its own notice.
    bool follows = false;
    /// A collective whose time is up. The other ranks may know which rank is missing.
    struct Expired {
        std::uint64_t number = 0;
        Duration limit{};
    };
    std::optional<Expired> expired{};
    /// A system error that the end of another rank may have caused.
    bool may_be_peer = false;
    /// Another rank has met it, and has told this one.
    bool reported = false;
};

/// Whether the failure came from another rank. Of ranks that do not agree about an operation none
/// is more to blame than another.
[[nodiscard]] inline std::optional<RoundScope::PeerFault> peer_fault(const GroupFailure& failure) {
    if (!failure.reported && (failure.expired || failure.code == Errc::deadline_exceeded)) {
        return RoundScope::PeerFault::awaited;
    }
    const bool is_lost = failure.code == Errc::disconnected || failure.follows ||
                         failure.broken_to || failure.may_be_peer || failure.reported;
    return is_lost ? std::optional(RoundScope::PeerFault::lost) : std::nullopt;
}

}  // namespace regroup
