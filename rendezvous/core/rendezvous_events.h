// SPDX-License-Identifier: Apache-2.0
//
// The events that a RendezvousCore receives, and the effects that it returns.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "rendezvous/core/job_policy.h"
#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

// Events: what happened outside.

/// A node's first message on a connection. The caller has filled in `offer.address`.
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
/// The node's connection broke. The node becomes suspect and has a short time to reconnect.
struct NodeDisconnected {
    NodeId node;
};
/// The node said that it leaves, or another process said so for it (`killed`).
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
/// An operator lets a quarantined node, by its name, take part in rounds again.
struct ReleaseRequested {
    std::string node;
    std::string author;
    std::string reason;
};
/// A new round has committed its first step.
struct NodeResumed {
    NodeId node;
    Resumed resumed;
};
/// A rank of the round lets the others wait. Nothing is decided by it: the members tell people.
struct SlowRankFound {
    RoundId round = RoundId::none;
    SlowRank slow{};
};
/// The state machine was restored from a journal. No node is connected; each has
/// `FailureDetector::absence_limit` to come back, over all restarts. The rounds go on.
struct Restarted {};
/// The first event of a job that follows one of the same id. Its rounds have higher numbers than
/// `last`, so that a round of the old job cannot be mistaken for one of the new.
struct JobFollows {
    JobPolicy policy;
    RoundId last = RoundId::none;
};
using Event = std::variant<NodeJoined, NodeReported, NodeDisconnected, NodeLeft, StopRequested,
                           DrainRequested, ReleaseRequested, NodeResumed, Restarted, JobFollows,
                           SlowRankFound>;

/// The messages that the caller must send, in this order.
struct Send {
    NodeId node;
    FromDaemon message;
};
using Effects = std::vector<Send>;

}  // namespace regroup::rendezvous
