// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// The inquiry into a hang of one round. The members save the stacks of all workers, then the rank
/// that the others wait for is ended. A report that a rank is in a collective for long (see
/// Hang::in_collective) is no hang yet: first the members tell the positions of their ranks. Pure.
class HangInquiry {
   public:
    enum class Stage : std::uint8_t {
        asking,  ///< The members tell positions.
        moving,  ///< It is no hang; the members are asked again at the deadline.
        saving,  ///< The members save stacks.
        told,    ///< The culprit is named, and is not ended.
        ending,  ///< The member with the culprit ends it.
    };
    /// A hang, from the first report of it until the round ends because of it.
    struct Case {
        Stage stage = Stage::saving;
        NodeId node{};  ///< The node that reported it.
        Hang hang{};
        Instant sign{};  ///< Since when there was no progress.
        Instant deadline{};
        std::uint32_t alarm = 0;
        std::set<NodeId> unanswered{};          ///< Members that have not answered the alarm.
        std::vector<RankPosition> positions{};  ///< Those of the others, until they are judged.
        /// The rank that the round waits for, as far as it is known.
        std::optional<HangCulprit> culprit{};
        NodeId culprit_node{};
    };
    /// The members with workers.
    struct Working {
        std::size_t count = 0;
        std::function<std::set<NodeId>()> ids{};
    };
    enum class News : std::uint8_t {
        none,
        opened,    ///< A hang.
        answered,  ///< The members have told all that they will, for the present stage.
    };

    /// A member of `working` reports. The result says whether this
    /// opened a case, or whether the members have answered, as far as they will.
    [[nodiscard]] News heard(Instant now, const NodeId& node, const NodeReport& report,
                             const Working& working);
    /// The node's workers have finished, or it is gone.
    void forget(const NodeId& node);
    /// Nodes could not answer before `until`.
    void prolong(Instant until);
    /// There is nothing to inquire any more.
    void close() noexcept { open_.reset(); }

    /// The rank that the round waits for, by the positions of the ranks that have answered.
    /// `finished`: a rank that takes part in nothing any more. `node_of`: the name of its node.
    [[nodiscard]] std::optional<HangCulprit> suspect(
        std::span<const RankPosition> positions, const std::optional<HangCulprit>& finished,
        const std::function<std::string(std::uint32_t rank)>& node_of) const;
    /// The positions show a hang: the members save stacks, unless they have.
    void confirm(Instant now, std::optional<HangCulprit> culprit, std::string text,
                 const Working& working);
    /// The positions show none.
    void dismiss(Instant now);
    /// The members are asked for positions, perhaps once more.
    void ask(Instant now, const Working& working);
    /// The culprit stays as it is.
    void leave_alone();
    /// `node` is to end the worker.
    void accuse(Instant now, HangCulprit culprit, const NodeId& node);

    [[nodiscard]] const std::optional<Case>& open() const noexcept { return open_; }
    /// Takes the positions that have been told for the present alarm.
    [[nodiscard]] std::vector<RankPosition> take_positions() {
        return std::exchange(open_->positions, {});
    }
    /// It is known that the round hangs.
    [[nodiscard]] bool is_hang() const noexcept {
        return open_ && open_->stage != Stage::asking && open_->stage != Stage::moving;
    }
    /// The member's order; nullopt: there is none.
    [[nodiscard]] std::optional<FromDaemon> order_for(const NodeId& node, RoundId round) const;

   private:
    /// All members are to answer a new alarm.
    void begin(Instant now, Stage stage, Duration limit, const Working& working);

    std::optional<Case> open_;
    std::set<NodeId> hanging_;  // Members with workers that report a hang.
    std::uint32_t alarms_ = 0;
};

}  // namespace regroup::rendezvous
