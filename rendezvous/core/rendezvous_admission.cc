// SPDX-License-Identifier: Apache-2.0
//
// Who may join a RendezvousCore's job.
#include "rendezvous/core/contradiction.h"
#include "rendezvous/core/rendezvous_core.h"
#include "rendezvous/core/wording.h"

namespace regroup::rendezvous {

std::optional<Refused> RendezvousCore::refusal(Instant now, const NodeJoined& event) const {
    const std::string who = "node " + event.offer.name;
    const auto name = [&](const NodeId& id, const Node& node) {
        // Two launchers of one host have one name.
        return "node " + node.offer.name +
               (node.offer.name == event.offer.name ? " (" + id + ")" : "");
    };
    std::string other = "the job";
    bool has_peer = nodes_.empty();
    for (const auto& [id, node] : nodes_) {
        if (id != event.node) {
            other = name(id, node);
            break;
        }
    }
    for (auto node = nodes_.begin(); node != nodes_.end() && !has_peer; ++node) {
        has_peer = node->first != event.node && node->second.offer.role == event.offer.role;
    }
    JobPolicy policy = event.policy;
    if (!has_peer) {
        policy.program = policy_.program;  // Another role may run another program.
    }
    if (const auto found = contradiction(policy_, policy)) {
        // Nodes that may be back have its state, and are not to be sent away for a flag.
        return Refused{Errc::invalid_argument,
                       who + " contradicts " + other + ": " + *found + "; give all nodes the same" +
                           (event.offer.ends_with_daemon
                                ? ", or begin another job (--rdzv-id, or another --state)"
                                : "")};
    }
    if (event.offer.workers == 0 || event.offer.workers > kWorkersLimit) {
        return Refused{Errc::invalid_argument,
                       who + " offers " + counted(event.offer.workers, "worker") +
                           "; it must be 1 to " + std::to_string(kWorkersLimit)};
    }
    if (event.offer.slot && *event.offer.slot >= policy_.nodes_max) {
        return Refused{Errc::invalid_argument, "--node-rank " + std::to_string(*event.offer.slot) +
                                                   " of " + who + " is outside --nnodes " +
                                                   nodes_range(policy_)};
    }
    if (!nodes_.contains(event.node) && nodes_.size() >= kNodesLimit) {
        return Refused{Errc::overloaded,
                       "the job has " + std::to_string(nodes_.size()) + " nodes already"};
    }
    if (!event.offer.slot) {
        return std::nullopt;
    }
    for (const auto& [id, node] : nodes_) {
        if (node.offer.slot != event.offer.slot || id == event.node) {
            continue;
        }
        // A claimant of the same slot replaces a node that is as good as lost; two live ones with
        // the same number are a mistake in somebody's command line.
        if (!detector_.suspects(id) &&
            now - detector_.heard_at(id) < policy_.heartbeat_timeout / 2) {
            return Refused{Errc::invalid_argument, who + " and " + name(id, node) +
                                                       " both claim --node-rank " +
                                                       std::to_string(*event.offer.slot)};
        }
    }
    return std::nullopt;
}

}  // namespace regroup::rendezvous
