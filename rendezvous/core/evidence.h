// SPDX-License-Identifier: Apache-2.0
//
// The evidence against a round, and the judgement at its end.
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
    /// The round needed it: it had neither finished nor left as planned. Else it is named only.
    bool was_needed = true;
};
struct LinkBroken {
    NodeId said_by{};
    causes::LinkBroke link{};
};
struct RoundAbandoned {
    std::string node{};
    bool store_spent = false;
    /// It was not told so by a word that another node got first.
    bool ends_round = true;
};
/// A hang of which no agent reports the end of a worker.
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

/// One thing that was heard of a round. Kept in the order in which it was heard: words of several
/// nodes overtake each other, so that the first is not always the cause.
struct Evidence {
    using WorkerFailed = heard::WorkerFailed;
    using NodeGone = heard::NodeGone;
    using LinkBroken = heard::LinkBroken;
    using RoundAbandoned = heard::RoundAbandoned;
    using HangFound = heard::HangFound;
    using Superseded = heard::Superseded;
    using BegunBehind = heard::BegunBehind;
    Instant at{};  ///< The first sign of it.
    std::variant<WorkerFailed, NodeGone, LinkBroken, RoundAbandoned, HangFound, Superseded,
                 BegunBehind>
        what{};

    template <class Alternative>
    [[nodiscard]] const Alternative* as() const noexcept {
        return std::get_if<Alternative>(&what);
    }
    /// It ends a round at once. A broken link may do so later.
    [[nodiscard]] bool is_decisive() const noexcept;
};

/// How a round was told to end.
struct RoundEnd {
    std::optional<std::size_t> by{};  ///< The evidence; nothing: a change was planned.
    Cause planned{};                  ///< Why, if it was.
    /// A member left as planned, or may have, before all others were known to have come as far:
    /// failures of the others may follow from that.
    bool leaver_may_be_gone = false;
};

/// The failure, and the node that it is charged to.
struct Judgement {
    enum class Charge : std::uint8_t {
        none,
        failure,  ///< `failure`.
        losses,   ///< `lost` nodes.
        network,  ///< Nobody that could be named; tried again after a pause.
    };
    Cause cause{};
    Charge charge = Charge::none;
    std::optional<WorkerFailure> failure{};  ///< The first one, charged or not.
    /// Of `failure`: nothing shows that its node is to blame.
    bool blameless = false;
    std::vector<std::string> lost{};  ///< Names of the nodes whose loss is charged.
};

/// The pair of evidence that shows a link broken at both ends, told last; else nothing.
[[nodiscard]] std::optional<std::size_t> find_mutual_break(std::span<const Evidence> evidence);

/// Judges a round once its last worker is out. Pure. Rules, in this order:
///  1. A lost node explains whatever else failed, except what says of itself that it cannot be
///     tried again.
///  2. Of failures that are told, one that began it counts before one that followed; of the same
///     weight, the first. Where the round had ended for another reason, only what says of itself
///     that it is none of the peers' fault counts.
///  3. A link that broke, or a round that was given up, is explained by a worker that crashed; or
///     by one that ended with an error, if that may be why: nobody else lost a live peer, and it
///     had not said itself that it lost one.
///  4. An error is not why a node could not serve the store: workers end with one for want of it.
[[nodiscard]] Judgement judge(std::span<const Evidence> evidence, const RoundEnd& end);

}  // namespace regroup::rendezvous
