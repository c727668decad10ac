// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// Records where the time went between one round and the next. At most one incident is open: from
/// the order to end a round until the next round trains. If the next round ends before it trains,
/// its incident is closed as it is, and another one opens. Pure; bounded.
class IncidentLedger {
   public:
    /// Incidents that are kept for `recent`.
    static constexpr std::size_t kRecentLimit = 100;
    /// Incidents cut short that are reported together with the next complete one.
    static constexpr std::size_t kPendingLimit = 16;

    /// `round` is to end. The first sign was at `sign`; the daemon gave the order at `now`.
    void begin(RoundId round, bool planned, Instant sign, Instant now);
    /// Turns a planned change into a recovery: something failed meanwhile, first seen at `sign`.
    void mark_unplanned(Instant sign) noexcept;
    /// A report says that the round, which is being stopped, had ended as early as `sign`.
    void seen_at(Instant sign) noexcept;
    /// Like `mark_unplanned`, while the round is being stopped: it trained until `sign` at most.
    void mark_stop_unplanned(Instant sign) noexcept;
    /// In a planned change: the round trained until `at`.
    void at_boundary(Instant at);
    /// No worker of the round is left, except suspended ones. `cause`: why the round ended.
    void stopped(Instant now, Cause cause);
    /// Replaces the cause: more is known about the end of the round.
    void blame(const Cause& cause);
    /// Only a back-off, or nodes under suspicion, keep the next round from beginning.
    void held() noexcept { held_ = open_ && !formed_at_; }
    void formed(Instant now, RoundId next, Succession decision);
    /// The new round reports that it trains. Returns the incidents to report: this one, after those
    /// before it that were cut short. Empty if none is open, or if it belongs to another round.
    /// `reached`: the last step known to be committed before; `at_least`: there may be later ones.
    [[nodiscard]] std::vector<Incident> resumed(Instant now, const Resumed& resumed,
                                                std::uint64_t reached, bool at_least = false);
    /// The same for a round that does not send Resumed: its workers run, or have committed `step`.
    [[nodiscard]] std::vector<Incident> running(Instant now, std::uint64_t step);
    /// The incidents that were reported when `round` began to train, also while it ends. Empty once
    /// another round has begun to train.
    [[nodiscard]] std::vector<Incident> again(RoundId round) const;
    /// The job ends. Returns the incidents not reported yet, whose rounds did not begin to train.
    /// With `success` the last round counts as having trained.
    [[nodiscard]] std::vector<Incident> close(Instant now, bool success);

    /// A new round was formed and is not known to train yet.
    [[nodiscard]] bool awaits_training() const noexcept { return formed_at_.has_value(); }
    [[nodiscard]] const std::deque<Incident>& recent() const noexcept { return recent_; }
    /// Sums over all incidents, including those no longer kept. `lasted` is left at zero.
    [[nodiscard]] const Goodput& goodput() const noexcept { return goodput_; }

   private:
    void keep(Instant end);
    void abandon(Instant end);
    [[nodiscard]] std::vector<Incident> complete(Instant end);

    bool open_ = false;
    bool held_ = false;
    Incident incident_;
    Instant told_at_{};
    std::optional<Instant> boundary_at_;
    std::optional<Instant> stopped_at_;
    std::optional<Instant> formed_at_;
    Instant last_end_ = Instant::min();  ///< End of the last incident: no time is counted twice.
    std::vector<Incident> pending_;
    std::vector<Incident> told_;  ///< The last incidents that were reported.
    std::deque<Incident> recent_;
    Goodput goodput_;
};

}  // namespace regroup::rendezvous
