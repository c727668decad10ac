// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// Where the time went between one round and the next. At most one incident is open: from the word
/// that a round is to end until its successor trains. A round that ends before that closes its
/// incident as it stands, and opens another. Pure; bounded.
class IncidentLedger {
   public:
    /// That many are remembered.
    static constexpr std::size_t kRecentLimit = 100;
    /// That many that ended before their first step are told together with the one that did not.
    static constexpr std::size_t kPendingLimit = 16;

    /// `round` is to end: its first sign was at `sign`, it is held for true and told at `now`.
    void begin(RoundId round, bool planned, Instant sign, Instant now);
    /// A change that was planned is a recovery: something failed meanwhile, first seen at `sign`.
    void mark_unplanned(Instant sign) noexcept;
    /// While the round is being stopped, as is heard only now: it had ended by then.
    void seen_at(Instant sign) noexcept;
    /// The same when the round is being stopped already: it trained until `sign`, at most.
    void mark_stop_unplanned(Instant sign) noexcept;
    /// A planned change: the round trained until then.
    void at_boundary(Instant at);
    /// No worker of the round is left, except suspended ones; this is why it ended.
    void stopped(Instant now, Cause cause);
    /// More is known of why it ended.
    void blame(const Cause& cause);
    /// The next round could begin but for a rest, or for nodes under suspicion.
    void held() noexcept { held_ = open_ && !formed_at_; }
    void formed(Instant now, RoundId next, Succession decision);
    /// The new round trains, by its own word. Returns what is to be told: those before it that did
    /// not come so far, and this one. Nothing if none is open, or it is another round's. `reached`:
    /// the last step that is known to have been committed before; `at_least`: others may have been.
    [[nodiscard]] std::vector<Incident> resumed(Instant now, const Resumed& resumed,
                                                std::uint64_t reached, bool at_least = false);
    /// The same for a round that says nothing of itself: its workers run, or have committed `step`.
    [[nodiscard]] std::vector<Incident> running(Instant now, std::uint64_t step);
    /// What was told when the round came to train, again, also while it ends; nothing once another
    /// one has come to train.
    [[nodiscard]] std::vector<Incident> again(RoundId round) const;
    /// The job ends. Returns what was not told: incidents whose round did not come to train.
    /// With `success` the last round did: its training was over.
    [[nodiscard]] std::vector<Incident> close(Instant now, bool success);

    /// A new round was formed and is not known to train yet.
    [[nodiscard]] bool awaits_training() const noexcept { return formed_at_.has_value(); }
    [[nodiscard]] const std::deque<Incident>& recent() const noexcept { return recent_; }
    /// Of all incidents, those not remembered any more included. How long the job has lasted is not
    /// known here.
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
    Instant last_end_ = Instant::min();  ///< Of the last one: no time is counted twice.
    std::vector<Incident> pending_;
    std::vector<Incident> told_;  // Last.
    std::deque<Incident> recent_;
    Goodput goodput_;
};

}  // namespace regroup::rendezvous
