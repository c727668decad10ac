// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/evidence.h"
#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// A change that was asked for although nothing is wrong with the round: growth, or nodes that
/// leave. It takes place at the next step boundary.
struct Change {
    enum class Kind : std::uint8_t {
        regroup,    ///< All members go on, with nodes that wait.
        leave,      ///< Members that want to leave do so.
        job_drain,  ///< All members save their state and leave; the job ends.
    };
    /// Nodes that have been seen at the boundary. All ranks get there together.
    enum class Boundary : std::uint8_t { ahead, seen_by_leaver, seen_by_stayer };

    Kind kind = Kind::regroup;
    Cause cause{};
    std::string author{};        ///< Of a job drain: the name of the node that wants to leave.
    std::set<NodeId> leavers{};  ///< Of Kind::leave.
    Instant deadline{};
    Boundary boundary = Boundary::ahead;
    /// A leaver has left, or may have, before all others were seen at the boundary.
    bool leaver_gone = false;
    /// The process that all were to leave with is gone, and was started again to begin anew.
    bool lost_with_daemon = false;
};

/// A hang, from the first word of it until the round ends because of it.
struct Inquiry {
    NodeId node{};  ///< Who said so.
    Hang hang{};
    Instant sign{};  ///< Since when nothing moved.
    Instant deadline{};
    std::uint32_t alarm = 0;
    std::set<NodeId> unanswered{};  ///< Members whose stacks are not saved yet.
    /// On whom the round hangs; until then the stacks are being saved.
    std::optional<HangCulprit> culprit{};
    NodeId culprit_node{};
};

/// Everything that is true of one round, present or past. Built when the round forms and replaced
/// as a whole; no field of it is ever reset.
struct Round {
    RoundId id = RoundId::none;
    Instant began{};
    Cause cause{};                                         ///< Why it was formed.
    std::map<NodeId, Assignment> members{};                ///< Those that are still there.
    std::vector<std::pair<NodeId, std::string>> roster{};  ///< All: ids and names, by group rank.
    std::size_t non_elastic_members = 0;                   ///< Their workers end with the round.
    std::size_t finished = 0;                   ///< Members whose workers all ended with success.
    std::set<NodeId> dismissed{};               ///< Members that have finished, and may go.
    std::set<std::string> finished_and_gone{};  ///< Names; they do not come back.
    std::set<NodeId> unconfirmed{};             ///< Members that have not said that they run it.
    bool announces_training = false;            ///< It will say itself when it trains.
    std::uint64_t held_before = 0;              ///< The furthest state that it could begin with.
    std::uint64_t step_before = 0;              ///< The furthest step of the job by then.
    /// Some member has committed a step in this very round.
    bool has_committed = false;
    /// It has committed a step, and its word that it trains has not come yet.
    std::optional<Instant> trains_since{};

    std::vector<Evidence> evidence{};
    std::optional<Change> change{};
    std::optional<Inquiry> inquiry{};
    std::uint32_t alarms = 0;
    std::set<NodeId> hanging{};  ///< Members with workers that say that the round hangs.

    std::optional<Instant> told_at{};   ///< When it was told to change or to end.
    std::optional<Instant> ended_at{};  ///< When it was told to end.
    std::optional<RoundEnd> end{};      ///< Once it was told to end.
    Judgement judgement{};              ///< Once it is over.

    [[nodiscard]] bool is_elastic() const noexcept {
        return !members.empty() && non_elastic_members == 0;
    }
    [[nodiscard]] bool all_finished() const noexcept { return finished == roster.size(); }
    /// The first sign of a broken link, if there is one.
    [[nodiscard]] std::optional<Instant> link_broke_at() const;
    /// It was stopped for a change, and nothing else has happened since: all members are where they
    /// were, so that nodes may leave from there as from a step boundary.
    [[nodiscard]] bool stopped_for_change() const;
    /// Some node is gone that it needed.
    [[nodiscard]] bool has_lost_nodes() const;
    /// Why it changes or ends, as far as is known; unknown while it trains.
    [[nodiscard]] Cause cause_of_end() const;
};

}  // namespace regroup::rendezvous
