// SPDX-License-Identifier: Apache-2.0
//
// Evidence of what went wrong in a round, and the judgement at the end of the round.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/core/cause.h"

namespace regroup::rendezvous {

namespace heard {

struct WorkerFailed {
    WorkerFailure failure{};
};
struct NodeGone {
    std::string node{};
    Departure how{};
    /// The node had neither finished nor left as planned. If false, the node is only named.
    bool was_needed = true;
};
struct LinkBroken {
    NodeId said_by{};
    causes::LinkBroke link{};
};
struct RoundAbandoned {
    std::string node{};
    bool store_spent = false;
    /// False: another node had reached the step boundary already, or the round was ending.
    bool ends_round = true;
};
/// A hang for which no agent reports that it ended a worker.
struct HangFound {
    WorkerFailure failure{};
    causes::Hung cause{};
    bool proven = false;
};
struct Superseded {
    causes::Superseded cause{};
};
struct BegunBehind {
    causes::BegunBehind cause{};
};

}  // namespace heard

/// One observation about a round. Entries are kept in order of arrival. Messages from several nodes
/// may overtake each other, so the first entry is not always the cause.
struct Evidence {
    using WorkerFailed = heard::WorkerFailed;
    using NodeGone = heard::NodeGone;
    using LinkBroken = heard::LinkBroken;
    using RoundAbandoned = heard::RoundAbandoned;
    using HangFound = heard::HangFound;
    using Superseded = heard::Superseded;
    using BegunBehind = heard::BegunBehind;
    Instant at{};  ///< The time of the first sign.
    std::variant<WorkerFailed, NodeGone, LinkBroken, RoundAbandoned, HangFound, Superseded,
                 BegunBehind>
        what{};

    template <class Alternative>
    [[nodiscard]] const Alternative* as() const noexcept {
        return std::get_if<Alternative>(&what);
    }
    /// True if this entry ends a round at once. A broken link may end it later.
    [[nodiscard]] bool is_decisive() const noexcept;
};

/// Why the daemon ordered a round to end.
struct RoundEnd {
    std::optional<std::size_t> by{};  ///< Index of the evidence; nullopt: a planned change.
    Cause planned{};                  ///< The reason of the planned change.
    /// A member left as planned, or may have left, before all others were known to be at the same
    /// boundary. Failures of the others may follow from that.
    bool leaver_may_be_gone = false;
};

/// The cause of a round's end, and the budget that is charged for it.
struct Judgement {
    enum class Charge : std::uint8_t {
        none,
        failure,  ///< `failure`.
        losses,   ///< `lost` nodes.
        network,  ///< No node can be blamed; the next round follows after a back-off.
    };
    Cause cause{};
    Charge charge = Charge::none;
    std::optional<WorkerFailure> failure{};  ///< The first one, charged or not.
    /// Nothing shows that the node of `failure` is to blame.
    bool blameless = false;
    std::vector<std::string> lost{};  ///< Names of the nodes whose loss is charged.
};

/// The index of the first broken link that both of its ends have reported; nullopt if there is
/// none.
[[nodiscard]] std::optional<std::size_t> find_mutual_break(std::span<const Evidence> evidence);

/// Judges a round after its last worker has stopped. Pure. Rules, in this order:
///  1. A lost node explains every other failure, except a failure that the worker itself declared
///     final.
///  2. Among reported failures, a root failure counts before a failure that may follow from it (see
///     `outranks`). Of two with equal weight the first counts. If the round ended for another
///     reason, only failures count of which the worker said that its peers did not cause them.
///  3. A broken link, or an abandoned round, is explained by a worker that crashed. A worker that
///     ended with an error explains it too, if no other worker lost a live peer and this worker had
///     not reported a lost peer before.
///  4. An error does not explain that a node could not serve the store: workers end with an error
///     when they lose the store.
[[nodiscard]] Judgement judge(std::span<const Evidence> evidence, const RoundEnd& end);

}  // namespace regroup::rendezvous
