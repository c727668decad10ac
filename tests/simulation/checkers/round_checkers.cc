// SPDX-License-Identifier: Apache-2.0
//
// Invariants of rounds, their numbers and their ranks.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tests/simulation/checker.h"

namespace regroup::simulation {

namespace {

using namespace rendezvous;

class RanksChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& /*policy*/) override {
        forget();
        launched_.clear();
        highest_told_ = RoundId::none;
        lives_differ_ = false;
    }
    void on_daemon_start(Instant /*now*/) override { forget(); }
    // A round number is used once over all lives of the daemon. Exception: a life that began with
    // nodes that did not know the last round, and more than kGap rounds behind.
    void on_agent_effect(Instant /*now*/, std::uint32_t host, const agent::AgentCore& /*core*/,
                         const agent::AgentEffect& effect) override {
        if (const auto* launch = std::get_if<agent::BeginRound>(&effect)) {
            const Assignment& mine = launch->assignment;
            const Assignment& first = launched_.emplace(mine.round, mine).first->second;
            if (lives_differ_) {
                return;
            }
            if (mine.world_size != first.world_size || mine.master_addr != first.master_addr ||
                mine.master_port != first.master_port || mine.reason != first.reason) {
                violated("host " + std::to_string(host) + " launched round " + text(mine.round) +
                         " with another assignment than others");
            }
        }
    }
    void on_daemon_event(Instant /*now*/, const Event& event) override {
        if (const auto* joined = std::get_if<NodeJoined>(&event)) {
            workers_[joined->node] = joined->offer.workers;
            speaker_ = joined->node;
            spoken_of_ = joined->report.round;
        }
    }

    void on_daemon_effects(Instant /*now*/, const RendezvousCore& /*core*/,
                           const Effects& effects) override {
        std::vector<const Assignment*> fresh;
        // A daemon ignores the report of a refused node.
        const bool refused = std::any_of(effects.begin(), effects.end(), [&](const Send& effect) {
            return effect.node == speaker_ && std::holds_alternative<Refused>(effect.message);
        });
        const RoundId spoken_of = std::exchange(spoken_of_, RoundId::none);
        heard_ = refused ? heard_ : std::max(heard_, spoken_of);
        for (const Send& effect : effects) {
            const auto* assign = std::get_if<Assign>(&effect.message);
            if (assign == nullptr) {
                continue;
            }
            const Assignment& told = assign->assignment;
            if (told.round > round_) {
                lives_differ_ = lives_differ_ || (round_ == RoundId::none && !knows_the_past());
                round_ = told.round;
                highest_told_ = std::max(highest_told_, round_);
                told_.clear();
                fresh.clear();
            }
            const auto [known, is_new] = told_.emplace(effect.node, told);
            if (!is_new && !(known->second == told)) {
                violated("node " + effect.node + " was given two different assignments for round " +
                         text(told.round));
            }
            if (is_new) {
                fresh.push_back(&known->second);
                check_workers(effect.node, told);
            }
        }
        if (!fresh.empty()) {
            check_world(std::move(fresh));
        }
    }

   private:
    void forget() {
        round_ = RoundId::none;
        told_.clear();
        heard_ = RoundId::none;
    }
    [[nodiscard]] bool knows_the_past() const {
        return highest_told_ == RoundId::none ||
               (heard_ > RoundId::none && number(heard_) + kGap >= number(highest_told_));
    }

    void check_workers(const NodeId& node, const Assignment& told) {
        if (!workers_.contains(node)) {
            violated("node " + node + " was assigned round " + text(told.round) +
                     " but never joined");
        }
        by_rank_[told.group_rank] = workers_[node];
    }

    void check_world(std::vector<const Assignment*> world) {
        std::sort(world.begin(), world.end(), [](const Assignment* a, const Assignment* b) {
            return a->group_rank < b->group_rank;
        });
        const Assignment& first = *world.front();
        std::uint32_t group_rank = 0;
        std::uint32_t rank = 0;
        for (const Assignment* one : world) {
            if (one->group_rank != group_rank || one->first_rank != rank) {
                violated("round " + text(first.round) + " has a gap or a double at group rank " +
                         std::to_string(group_rank) + ", first rank " + std::to_string(rank));
            }
            if (one->world_size != first.world_size || one->reason != first.reason ||
                one->group_world_size != world.size() || one->master_addr != first.master_addr ||
                one->master_port != first.master_port ||
                one->restart_count != first.restart_count) {
                violated("members of round " + text(first.round) +
                         " were told different worlds, masters or reasons");
            }
            rank += by_rank_[one->group_rank];
            ++group_rank;
        }
        if (rank != first.world_size) {
            violated("round " + text(first.round) + " has " + std::to_string(rank) +
                     " workers but a world size of " + std::to_string(first.world_size));
        }
    }

    RoundId round_ = RoundId::none;
    std::map<NodeId, Assignment> told_;
    std::map<RoundId, Assignment> launched_;
    RoundId highest_told_ = RoundId::none;      // By any life; the message may still be in transit.
    static constexpr std::uint64_t kGap = 100;  // The gap in numbers that a new daemon leaves.
    RoundId heard_ = RoundId::none;             // The highest that this life was told.
    NodeId speaker_;                            // The node that joins in this step,
    RoundId spoken_of_ = RoundId::none;         // and the round that it reports.
    bool lives_differ_ = false;  // A life could not know the rounds of an earlier one.
    std::map<NodeId, std::uint32_t> workers_;
    std::map<std::uint32_t, std::uint32_t> by_rank_;  // Workers by group rank.
};

class RoundOrderChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& /*policy*/) override {
        floor_ = floor_before_ = round_ = RoundId::none;
        launched_.clear();
    }
    void on_daemon_start(Instant /*now*/) override {
        floor_ = floor_before_ = round_ = RoundId::none;
    }
    void on_daemon_event(Instant /*now*/, const Event& event) override {
        if (const auto* joined = std::get_if<NodeJoined>(&event)) {
            speaker_ = joined->node;
            spoken_of_ = joined->report.round;
        }
    }
    // A refused node is not part of the job. Example: the warden of a dead node that has been
    // replaced.
    void on_daemon_effects(Instant /*now*/, const RendezvousCore& core,
                           const Effects& effects) override {
        const bool refused = std::any_of(effects.begin(), effects.end(), [&](const Send& effect) {
            return effect.node == speaker_ && std::holds_alternative<Refused>(effect.message);
        });
        const RoundId spoken_of = std::exchange(spoken_of_, RoundId::none);
        floor_ = refused ? floor_ : std::max(floor_, spoken_of);
        if (core.round() < round_) {
            violated("the daemon went back from round " + text(round_) + " to " +
                     text(core.round()));
        }
        if (core.round() > round_ && core.round() <= floor_before_) {
            violated("round " + text(core.round()) + " was formed although a node had reported " +
                     text(floor_before_));
        }
        round_ = core.round();
        floor_before_ = floor_;
    }
    void on_agent_start(Instant /*now*/, std::uint32_t host) override {
        launched_[host] = RoundId::none;
    }
    void on_agent_effect(Instant /*now*/, std::uint32_t host, const agent::AgentCore& /*core*/,
                         const agent::AgentEffect& effect) override {
        if (const auto* launch = std::get_if<agent::BeginRound>(&effect)) {
            RoundId& last = launched_[host];
            if (launch->assignment.round <= last) {
                violated("host " + std::to_string(host) + " launched round " +
                         text(launch->assignment.round) + " after round " + text(last));
            }
            last = launch->assignment.round;
        }
    }

   private:
    RoundId floor_ = RoundId::none;         // The highest round in any join so far.
    NodeId speaker_;                        // The node that joins in this step,
    RoundId spoken_of_ = RoundId::none;     // and the round that it reports.
    RoundId floor_before_ = RoundId::none;  // `floor_` before the present step.
    RoundId round_ = RoundId::none;
    std::map<std::uint32_t, RoundId> launched_;
};

class OneRoundChecker final : public Checker {
   public:
    void on_worker_start(Instant /*now*/, std::uint32_t host, RoundId round) override {
        auto& alive = alive_[host];
        for (const auto& [other, count] : alive) {
            if (other != round && count > 0) {
                violated("host " + std::to_string(host) + " launched round " + text(round) +
                         " while a worker of round " + text(other) + " was alive");
            }
        }
        ++alive[round];
    }
    void on_worker_suspended(Instant now, std::uint32_t host, RoundId round) override {
        on_worker_end(now, host, round, false);
    }
    void on_worker_end(Instant /*now*/, std::uint32_t host, RoundId round,
                       bool /*own_fault*/) override {
        auto& alive = alive_[host];
        if (round == RoundId::none) {
            return;  // It was suspended.
        }
        if (--alive[round] == 0) {
            alive.erase(round);
        }
    }

   private:
    std::map<std::uint32_t, std::map<RoundId, int>> alive_;
};

class StaleRoundChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& policy) override {
        heartbeat_ = policy.heartbeat_timeout;
        saving_limit_ = policy.prepare_timeout + policy.shutdown_timeout + std::chrono::seconds(20);
        limit_ = limit_before_ = {};
        since_.clear();
        leaving_.clear();
    }
    void on_agent_effect(Instant /*now*/, std::uint32_t host, const agent::AgentCore& /*core*/,
                         const agent::AgentEffect& effect) override {
        const auto* pause = std::get_if<agent::PauseWorkers>(&effect);
        if (pause != nullptr && pause->leave) {
            leaving_[host] = pause->round;
        }
    }
    void on_tick(Instant now, const View& view) override {
        note_network(now, view);
        since_.resize(view.hosts.size());
        for (std::size_t i = 0; i < view.hosts.size(); ++i) {
            const HostView& host = view.hosts[i];
            if (!runs_what_is_over(view, host)) {
                since_[i] = {};
                continue;
            }
            const RoundId round = host.agent->report().round;
            if (since_[i].round != round) {
                since_[i] = {round, now};
            }
            // A worker that saves its state to leave is not interrupted.
            const auto leaving = leaving_.find(static_cast<std::uint32_t>(i));
            const bool saves = leaving != leaving_.end() && leaving->second == round;
            const Duration more = saves ? saving_limit_ : Duration::zero();
            const Instant from = std::max(since_[i].at, host.undisturbed_since);
            // The limit of a better network counts from its beginning, since the worse one may have
            // lost messages before. The limit of the worse network holds in any case.
            const Instant by_this = after(std::max(from, better_since_), limit_ + more);
            const Instant by_worst = after(from, std::max(limit_, limit_before_) + more);
            if (now > std::min(by_this, by_worst)) {
                violated("node " + host.node + " has been running round " + text(round) +
                         ", which is over, for " + format_duration(now - from));
            }
        }
    }

   private:
    // A reminder needs a heartbeat, its answer, and perhaps a new connection; in a lossy network,
    // several. The network becomes better in the middle of a job, when faults stop.
    void note_network(Instant now, const View& view) {
        const Duration limit = (view.reliable ? 2 : 20) * heartbeat_ + 6 * view.network_limit +
                               std::chrono::seconds(3);
        if (limit < limit_) {
            limit_before_ = limit_;
            better_since_ = now;
        }
        limit_ = limit;
    }
    static bool runs_what_is_over(const View& view, const HostView& host) {
        return view.rendezvous != nullptr && host.agent != nullptr &&
               host.undisturbed_since != Instant::max() &&
               host.agent->report().state == NodeState::running &&
               ((view.rendezvous->phase() != Phase::training &&
                 view.rendezvous->phase() != Phase::changing) ||
                view.rendezvous->round() != host.agent->report().round);
    }

    struct Seen {
        RoundId round = RoundId::none;
        Instant at = Instant::max();
    };
    Duration heartbeat_{};
    Duration saving_limit_{};
    Duration limit_{};         // In the present network,
    Duration limit_before_{};  // and before it became better.
    Instant better_since_{};
    std::map<std::uint32_t, RoundId> leaving_;  // By host: the round that it was to leave.
    std::vector<Seen> since_;  // By host: the stale round that it has been running, and since when.
};

}  // namespace

std::unique_ptr<Checker> make_ranks_checker() {
    return std::make_unique<RanksChecker>();
}
std::unique_ptr<Checker> make_round_order_checker() {
    return std::make_unique<RoundOrderChecker>();
}
std::unique_ptr<Checker> make_one_round_checker() {
    return std::make_unique<OneRoundChecker>();
}
std::unique_ptr<Checker> make_stale_round_checker() {
    return std::make_unique<StaleRoundChecker>();
}

}  // namespace regroup::simulation
