// SPDX-License-Identifier: Apache-2.0
//
// Invariants of a job as a whole: its end, its budget, its size, its progress.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "rendezvous/base/exit_code.h"
#include "rendezvous/core/failure_detector.h"
#include "rendezvous/text/describe.h"
#include "tests/simulation/checker.h"

namespace regroup::simulation {

namespace {

using namespace rendezvous;

class ClosedChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& /*policy*/) override { verdict_.reset(); }
    void on_daemon_start(Instant /*now*/) override { verdict_.reset(); }
    void on_daemon_effects(Instant /*now*/, const RendezvousCore& core,
                           const Effects& effects) override {
        if (verdict_ && (!core.verdict() || !(*core.verdict() == *verdict_))) {
            violated("the job was closed (" + describe(verdict_->reason) + ") and is no longer");
        }
        const bool was_closed = verdict_.has_value();
        verdict_ = core.verdict();
        if (verdict_ && (verdict_->reason == JobEnding() || verdict_->author == Author())) {
            violated("the job was closed without a reason or without an author");
        }
        for (const Send& effect : effects) {
            const auto* closed = std::get_if<Closed>(&effect.message);
            if (closed == nullptr && was_closed) {
                violated("node " + effect.node +
                         " was sent another message than Closed for a closed job");
            }
            if (closed != nullptr && (!verdict_ || !(closed->verdict == *verdict_))) {
                violated("node " + effect.node + " was told another verdict than the job's");
            }
        }
    }

   private:
    std::optional<Verdict> verdict_;
};

class BudgetChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& policy) override {
        policy_ = policy;
        own_faults_.clear();
        rough_ = false;
        forget();
    }
    // Where messages are lost or reordered, an old one may end a round without a failure of a
    // worker.
    void on_trouble(Instant /*now*/, Instant until) override {
        rough_ = rough_ || until == Instant::max();
    }
    void on_daemon_start(Instant /*now*/) override { forget(); }
    void on_worker_end(Instant /*now*/, std::uint32_t /*host*/, RoundId round,
                       bool own_fault) override {
        if (own_fault) {
            own_faults_.insert(round);
        }
    }
    // A group that cannot form counts as a hang of no particular worker.
    void on_stuck(Instant /*now*/, const GroupName& group) override {
        own_faults_.insert(group.round);
    }
    // A node whose workers have finished and that has ended with success does not come back.
    void on_agent_effect(Instant /*now*/, std::uint32_t /*host*/, const agent::AgentCore& core,
                         const agent::AgentEffect& effect) override {
        const auto* quit = std::get_if<agent::Quit>(&effect);
        if (quit != nullptr && quit->exit_code == 0 && !quit->verdict) {
            dismissed_ = std::max(dismissed_, core.report().round);
        }
    }
    void on_daemon_effects(Instant /*now*/, const RendezvousCore& core,
                           const Effects& effects) override {
        for (const Send& effect : effects) {
            if (const auto* assign = std::get_if<Assign>(&effect.message)) {
                check_charge(assign->assignment.round, assign->assignment.restart_count);
            }
            if (const auto* dismissed = std::get_if<Dismissed>(&effect.message)) {
                dismissed_ = std::max(dismissed_, dismissed->round);
            }
        }
        if (core.verdict() && core.verdict()->outcome == Outcome::failed) {
            check_end(core, *core.verdict());
        }
    }

   private:
    void forget() {
        charged_ = 0;
        round_ = RoundId::none;
        dismissed_ = RoundId::none;
    }
    // True if every restart is charged to one budget that is never refilled.
    [[nodiscard]] bool is_plain() const {
        return policy_.on_exit.empty() && policy_.budgets.refill_steps == 0 &&
               !policy_.budgets.hangs;
    }
    void check_charge(RoundId round, std::uint32_t restarts) {
        if (round == round_) {
            return;
        }
        const bool beyond = is_plain() && restarts > policy_.restarts_max;
        if (beyond || restarts < charged_ || restarts > charged_ + 1) {
            violated("round " + std::to_string(number(round)) + " counts " +
                     std::to_string(restarts) + " restarts after " + std::to_string(charged_) +
                     ", with " + std::to_string(policy_.restarts_max) + " allowed");
        }
        if (restarts > charged_ && !own_faults_.contains(round_) && !rough_) {
            violated("round " + std::to_string(number(round_)) +
                     " was charged to the budget although no worker failed by itself in it");
        }
        charged_ = restarts;
        round_ = round;
    }
    void check_end(const RendezvousCore& core, const Verdict& verdict) {
        using Kind = JobEnding::Kind;
        const Kind kind = verdict.reason.kind;
        // Nodes that have finished and left cannot be called back for a restart.
        if (dismissed_ == core.round() && kind == Kind::too_few_left) {
            return;
        }
        if (kind == Kind::losses_used) {
            if (!policy_.budgets.losses) {
                violated("the job failed for lost nodes, although their number is not limited");
            }
            return;
        }
        if (!own_faults_.contains(core.round()) && !rough_) {
            violated("the job failed because of round " + std::to_string(number(core.round())) +
                     " in which no worker failed by itself");
        }
        if (kind == Kind::no_progress) {
            const std::uint32_t limit = policy_.budgets.no_progress_max;
            if (limit == 0 || verdict.exit_code != kExitNoProgress || charged_ + 1 < limit) {
                violated("the job failed for lack of progress after " + std::to_string(charged_) +
                         " restarts, with a limit of " + std::to_string(limit));
            }
        } else if (kind == Kind::exit_code_final) {
            const auto asked = policy_.on_exit.find(verdict.exit_code);
            if (asked == policy_.on_exit.end() || asked->second != Reaction::fail) {
                violated("the job failed at once although nothing asked for it");
            }
        } else if (kind == Kind::nobody_came) {
            if (policy_.nodes_min <= 1 && verdict.reason.quarantined.empty()) {
                violated("the job failed for lack of nodes, although it needs only one");
            }
        } else if (kind == Kind::no_other_node) {
            violated("the job failed as if no other node could join, which no event has shown");
        } else if (is_plain() ? verdict.restarts != policy_.restarts_max ||
                                    charged_ != policy_.restarts_max
                              : !policy_.budgets.hangs && charged_ < policy_.restarts_max) {
            violated("the job failed after " + std::to_string(charged_) + " of " +
                     std::to_string(policy_.restarts_max) + " restarts");
        }
    }

    JobPolicy policy_;
    bool rough_ = false;  // The network loses or reorders messages.
    std::uint32_t charged_ = 0;
    RoundId round_ = RoundId::none;
    RoundId dismissed_ = RoundId::none;  // The last round that some node was free to leave.
    std::set<RoundId> own_faults_;       // Rounds in which a worker failed by itself.
};

class MemoryChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& policy) override {
        policy_ = policy;
        heard_.clear();
    }
    void on_daemon_event(Instant /*now*/, const Event& event) override {
        if (const auto* joined = std::get_if<NodeJoined>(&event)) {
            heard_[joined->node] = attended_;
        } else if (const auto* reported = std::get_if<NodeReported>(&event)) {
            heard_[reported->node] = attended_;
        }
    }
    void on_tick(Instant now, const View& view) override {
        // A daemon that was paused, or that took over, gives all nodes their time again.
        const Duration limit = 3 * policy_.heartbeat_timeout +
                               2 * rendezvous::FailureDetector::kReturnCycle +
                               std::chrono::seconds(2);
        const Instant before = std::exchange(awake_since_, view.daemon_awake_since);
        if (awake_since_ == Instant::max()) {
            return;
        }
        const Duration counts = std::max(Duration::zero(), now - awake_since_ - kUncounted);
        attended_ += before == awake_since_ ? counts - counted_ : Duration::zero();
        counted_ = counts;
        std::erase_if(heard_, [&](const auto& entry) { return attended_ > entry.second + limit; });
        if (view.rendezvous != nullptr && view.rendezvous->nodes_count() > heard_.size()) {
            violated("the daemon remembers " + std::to_string(view.rendezvous->nodes_count()) +
                     " nodes, but only " + std::to_string(heard_.size()) + " were heard lately");
        }
        if (view.in_flight > kInFlightLimit) {
            violated(std::to_string(view.in_flight) + " messages are in the network");
        }
    }

   private:
    static constexpr std::size_t kInFlightLimit = 20000;
    /// Time that does not count after each start of a daemon: nodes may have paused, and its last
    /// note may be a second old.
    static constexpr Duration kUncounted =
        rendezvous::FailureDetector::kReturnPause + std::chrono::seconds(1);
    JobPolicy policy_;
    Instant awake_since_ = Instant::max();
    Duration attended_{};               // Total time during which the daemon was up.
    Duration counted_{};                // The part since `awake_since_`.
    std::map<NodeId, Duration> heard_;  // When each node was last heard, in `attended_` time.
};

class StormChecker final : public Checker {
   public:
    void on_daemon_event(Instant now, const Event& /*event*/) override { count(now); }
    void on_agent_event(Instant now, std::uint32_t /*host*/,
                        const agent::AgentEvent& /*event*/) override {
        count(now);
    }

   private:
    static constexpr std::uint64_t kEventsPerSecond = 20000;
    void count(Instant now) {
        const auto second = std::chrono::floor<std::chrono::seconds>(now);
        events_ = second == second_ ? events_ + 1 : 1;
        second_ = second;
        if (events_ > kEventsPerSecond) {
            violated(std::to_string(events_) +
                     " events within one second: nodes and daemon exchange messages without end");
        }
    }
    std::chrono::time_point<std::chrono::steady_clock, std::chrono::seconds> second_{};
    std::uint64_t events_ = 0;
};

class ProgressChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& policy) override {
        policy_ = policy;
        departed_ = RoundId::none;
    }
    void on_agent_effect(Instant /*now*/, std::uint32_t /*host*/, const agent::AgentCore& core,
                         const agent::AgentEffect& effect) override {
        const auto* quit = std::get_if<agent::Quit>(&effect);
        if (quit != nullptr && quit->exit_code == 0 && !quit->verdict) {
            departed_ = core.report().round;
        }
    }
    void on_calm(Instant now, const View& view) override {
        if (view.verdict_was_forgotten) {
            return;
        }
        if (view.rendezvous == nullptr) {
            violated("no daemon runs, or no node has joined it");
            return;
        }
        const RendezvousCore& core = *view.rendezvous;
        std::size_t alive = 0;
        std::size_t members = 0;
        bool finishing = departed_ != RoundId::none && core.round() == departed_;
        for (const HostView& host : view.hosts) {
            if (host.agent == nullptr) {
                continue;
            }
            if (core.is_quarantined(core.name_of(host.node)) &&
                host.agent->report().round != core.round()) {
                continue;  // The quarantined node comes back when its time is over.
            }
            const bool is_late =
                host.awake_since == Instant::max() || now < after(host.awake_since, kJoinLimit);
            if (core.phase() == Phase::closed && is_late) {
                continue;  // The agent is about to hear of it.
            }
            ++alive;
            const NodeReport& report = host.agent->report();
            if (core.phase() == Phase::training && report.round == core.round() &&
                (report.state == NodeState::running || report.state == NodeState::finished)) {
                ++members;
                finishing = finishing || report.state == NodeState::finished;
            }
        }
        if (core.phase() == Phase::closed) {
            if (alive > 0) {
                violated("the job is closed but " + std::to_string(alive) +
                         " agents have not ended");
            }
            return;
        }
        if (core.is_backing_off()) {
            return;  // The last rounds failed at once, and the next one waits for the back-off.
        }
        if (finishing) {
            return;  // No node joins a round that is about to end.
        }
        const std::size_t expected = std::min<std::size_t>(alive, policy_.nodes_max);
        if (core.phase() != Phase::training || members != expected) {
            violated("faults have stopped and " + std::to_string(alive) + " nodes live, but " +
                     std::to_string(members) + " of " + std::to_string(expected) +
                     " run the daemon's round: " + describe(core.situation(now)));
        }
    }

   private:
    JobPolicy policy_;
    static constexpr Duration kJoinLimit = std::chrono::seconds(15);
    RoundId departed_ = RoundId::none;  // The last round that a node has finished and left.
};

}  // namespace

std::unique_ptr<Checker> make_closed_checker() {
    return std::make_unique<ClosedChecker>();
}
std::unique_ptr<Checker> make_budget_checker() {
    return std::make_unique<BudgetChecker>();
}
std::unique_ptr<Checker> make_memory_checker() {
    return std::make_unique<MemoryChecker>();
}
std::unique_ptr<Checker> make_storm_checker() {
    return std::make_unique<StormChecker>();
}
std::unique_ptr<Checker> make_progress_checker() {
    return std::make_unique<ProgressChecker>();
}

}  // namespace regroup::simulation
