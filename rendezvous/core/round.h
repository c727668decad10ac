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
#include "rendezvous/core/hang_inquiry.h"
#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// A planned change of a round without a failure: growth, or nodes that leave. It takes place at
/// the next step boundary.
struct Change {
    enum class Kind : std::uint8_t {
        regroup,    ///< All members continue, together with waiting nodes.
        leave,      ///< The members that want to leave do so.
        job_drain,  ///< All members save their state and leave; the job ends.
    };
    /// Which nodes have reported the boundary. All ranks reach it together.
    enum class Boundary : std::uint8_t { ahead, seen_by_leaver, seen_by_stayer };

    Kind kind = Kind::regroup;
    Cause cause{};
    std::string author{};        ///< For a job drain: the name of the node that wants to leave.
    std::set<NodeId> leavers{};  ///< For Kind::leave.
    Instant deadline{};
    Boundary boundary = Boundary::ahead;
    /// A leaving node has left, or may have left, before all others reported the boundary.
    bool leaver_gone = false;
    /// The daemon's process, with which all nodes were to leave, has ended and was restarted.
    bool lost_with_daemon = false;
};

/// The part of a round that has ended with success.
struct Finish {
    std::size_t members = 0;         ///< Members whose workers all ended with success.
    RankSet ranks{};                 ///< Ranks that ended with success.
    std::optional<Instant> since{};  ///< When the daemon heard of the first of them.
    /// People were told that others go on; from then on they are told of each that finishes.
    bool told = false;
    std::set<std::string> gone{};  ///< Names of nodes that will not come back.
};

/// The place of a node in a round.
struct Seat {
    NodeId node{};
    std::string name{};
    std::uint32_t workers = 0;
    Assignment assignment{};
    bool confirmed = false;  ///< The node has reported the round.
    bool dismissed = false;  ///< The node has finished and may exit.
};

/// The state of one round, current or past. Built when the round forms and replaced as a whole; no
/// field of it is ever reset.
struct Round {
    RoundId id = RoundId::none;
    Instant began{};
    Cause cause{};                                            ///< Why it was formed.
    std::vector<Seat> seats{};                                ///< Of all its nodes, by group rank.
    std::size_t members = 0;                                  ///< The remaining members.
    std::size_t unconfirmed = 0;                              ///< Those that must still report it.
    std::map<std::string, std::set<std::string>> commands{};  ///< Of its nodes, by role.
    std::size_t non_elastic_members = 0;  ///< Members whose workers end with the round.
    Finish finish{};
    bool announces_training = false;  ///< Rank 0's node will send Resumed.
    std::uint64_t held_before = 0;    ///< The latest state that it could begin with.
    std::uint64_t step_before = 0;    ///< The highest step of the job before it.
    /// A member has committed a step in this round.
    bool has_committed = false;
    /// When the round committed its first step, while Resumed has not arrived yet.
    std::optional<Instant> trains_since{};

    EvidenceLog evidence{};
    std::map<NodeId, std::uint32_t> said{};  ///< How much of it are the words of a member.
    std::set<NodeId> lost_peers{};           ///< Members that reported a broken link.
    /// Those of `lost_peers` whose workers run: their own end does not explain the break.
    std::set<NodeId> live_breaks{};
    std::set<NodeId> missing{};  ///< Members under suspicion.
    std::optional<Change> change{};
    HangInquiry hang{};

    std::optional<Instant> told_at{};   ///< When the daemon ordered it to change or to end.
    std::optional<Instant> ended_at{};  ///< When the daemon ordered it to end.
    std::optional<RoundEnd> end{};      ///< Set once the daemon ordered it to end.
    Judgement judgement{};              ///< Set once it is over.

    /// Records what a member reports. Beyond a limit its further reports add nothing: the first
    /// ones count, and a member must not make the record grow for as long as it talks.
    void add_report(const NodeId& by, Evidence entry);
    /// Records how a member is now. `runs`: it has workers of this round that are to go on.
    void note_member(const NodeId& member, bool runs, bool is_missing);
    void remove(const NodeId& member, std::uint32_t group_rank);

    /// The seat that has this rank, if any has; it has no rank below that, and perhaps too few.
    [[nodiscard]] const Seat* seat_with(std::uint32_t rank) const;
    [[nodiscard]] std::uint32_t world_size() const noexcept {
        return seats.empty() ? 0 : seats.front().assignment.world_size;
    }
    [[nodiscard]] bool is_elastic() const noexcept {
        return members > 0 && non_elastic_members == 0;
    }
    [[nodiscard]] bool all_finished() const noexcept { return finish.members == seats.size(); }
    /// The round was stopped for a change, and nothing failed since. All members hold the same
    /// state, so that nodes may leave as at a step boundary.
    [[nodiscard]] bool stopped_for_change() const;
    /// Why the round changes or ends, as far as is known; unknown while it trains.
    [[nodiscard]] Cause cause_of_end() const;
};

}  // namespace regroup::rendezvous
