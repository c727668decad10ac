// SPDX-License-Identifier: Apache-2.0
//
// What a RendezvousCore is told, and what it wants done.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "rendezvous/core/job_policy.h"
#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

// Events: what happened outside.

/// A node's first word on a connection. The caller has filled in `offer.address`.
struct NodeJoined {
    NodeId node;
    JobPolicy policy;
    Offer offer;
    NodeReport report;
};
struct NodeReported {
    NodeId node;
    NodeReport report;
};
/// The node's connection broke. Only a suspicion: it has a moment to come back.
struct NodeDisconnected {
    NodeId node;
};
/// The node said goodbye, or (`killed`) its goodbye was said for it.
struct NodeLeft {
    NodeId node;
    std::string reason;
    bool killed = false;
};
/// An operator ends the job for everyone.
struct StopRequested {
    std::string author;
    std::string reason;
};
/// An operator wants a node, by its name, to leave at the next step boundary.
struct DrainRequested {
    std::string node;
    std::string author;
    std::string reason;
};
/// A new round has committed its first step.
struct NodeResumed {
    NodeId node;
    Resumed resumed;
};
/// This machine was brought to its present state from a journal: no node is connected, and all have
/// `FailureDetector::absence_limit` to come back, over all restarts. Their rounds go on.
struct Restarted {};
/// The first event of a job that follows one of the same id: its rounds have higher numbers than
/// `last`, so that nobody takes one of the old job for one of the new.
struct JobFollows {
    JobPolicy policy;
    RoundId last = RoundId::none;
};
using Event = std::variant<NodeJoined, NodeReported, NodeDisconnected, NodeLeft, StopRequested,
                           DrainRequested, NodeResumed, Restarted, JobFollows>;

/// What the shell must now do: send these, in this order.
struct Send {
    NodeId node;
    FromDaemon message;
};
using Effects = std::vector<Send>;

}  // namespace regroup::rendezvous
