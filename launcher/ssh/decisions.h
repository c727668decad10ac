// SPDX-License-Identifier: Apache-2.0
//
// The decisions of `regroup launch-ssh`, as functions of what the hosts have said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/command.h"

namespace regroup::launcher::ssh {

/// A host whose node is ready.
struct ReadyHost {
    std::string name;     ///< In the list, without the user.
    std::string address;  ///< As its sshd sees itself on the connection; empty if it does not say.
};

/// The place in `ready`, which is not empty, of the host that runs the daemon: the first one
/// with an address that is not of its loopback; if there is none, the first one.
[[nodiscard]] std::size_t choose_head(const std::vector<ReadyHost>& ready);

/// The address by which the other hosts reach the head. Its name in the
/// list if the address is unknown, or one that only a neighbour can use.
[[nodiscard]] std::string endpoint_host(const ReadyHost& head);

/// How a host's node has ended; nothing: the connection ended without a report.
using HostEnding = std::optional<CommandEnd>;

/// 255, as ssh itself.
inline constexpr int kExitSshFailed = 255;

/// How the launcher ends, from the endings of the nodes in the order of the list: as the first one
/// that knows the verdict of the job, and success counts before failure; without one, as the first
/// one that failed; else as the first one. `head`: the place of the host that has served the
/// rendezvous, if the launcher knows one: no other host can turn its verdict of failure into
/// success. `by_user`: the user has asked for the end. Then a node that a signal has ended counts
/// more than a verdict of failure, which may only tell that this node has left. Without any report:
/// kExitSshFailed.
[[nodiscard]] CommandEnd common_ending(const std::vector<HostEnding>& endings,
                                       std::optional<std::size_t> head, bool by_user = false);

}  // namespace regroup::launcher::ssh
