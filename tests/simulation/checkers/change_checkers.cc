// SPDX-License-Identifier: Apache-2.0
//
// Invariants of standbys, and of changes of a healthy round.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "rendezvous/base/exit_code.h"
#include "rendezvous/text/describe.h"
#include "tests/simulation/checker.h"

namespace regroup::simulation {

namespace {

using namespace rendezvous;

// Standbys have their workers started, and take the ranks of lost nodes at once.
class StandbyChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& policy) override {
        policy_ = policy;
        on_daemon_start({});
        numbered_ = false;
        unlucky_.clear();
    }
    void on_daemon_start(Instant /*now*/) override {
        round_ = RoundId::none;
        places_.clear();
    }
    void on_agent_start(Instant /*now*/, std::uint32_t host) override { unlucky_.erase(host); }
    void on_worker_end(Instant /*now*/, std::uint32_t host, RoundId round,
                       bool /*own_fault*/) override {
        if (round == RoundId::none) {
            // The agent does not start it again before the node's next round.
            unlucky_.insert(host);
        }
    }
    void on_daemon_event(Instant /*now*/, const Event& event) override {
        const auto* joined = std::get_if<NodeJoined>(&event);
        numbered_ = numbered_ || (joined != nullptr && joined->offer.slot);
    }
    void on_daemon_effects(Instant now, const RendezvousCore& core,
                           const Effects& effects) override {
        std::map<NodeId, std::uint32_t> places;
        for (const Send& effect : effects) {
            const auto* assign = std::get_if<Assign>(&effect.message);
            if (assign != nullptr && assign->assignment.round > round_) {
                places[effect.node] = assign->assignment.group_rank;
            }
        }
        if (!places.empty()) {
            check_places(core.round(), places);
            round_ = core.round();
            places_ = std::move(places);
        }
        if (core.phase() == Phase::forming) {
            check_waiting(now, core);
        }
    }
    void on_tick(Instant now, const View& view) override {
        const RendezvousCore* core = view.rendezvous;
        if (core == nullptr || core->phase() != Phase::training || policy_.standbys_max == 0 ||
            !view.reliable) {
            standbys_since_ = Instant::max();
            return;
        }
        const JobStatus status = core->status(now);
        std::size_t standbys = 0;
        std::size_t ready = 0;
        for (std::size_t i = 0; i < view.hosts.size(); ++i) {
            const HostView& host = view.hosts[i];
            const bool is_standby =
                std::any_of(status.nodes.begin(), status.nodes.end(), [&](const auto& row) {
                    return row.id == host.node && row.place == JobStatus::Membership::standby;
                });
            const bool settled = is_standby && host.agent != nullptr &&
                                 host.agent->report().state == NodeState::stopped &&
                                 !host.agent->leaving() &&
                                 host.undisturbed_since != Instant::max() &&
                                 now > after(host.undisturbed_since, settling());
            standbys += settled ? 1 : 0;
            const bool warm = is_standby && (host.agent == nullptr || host.agent->has_workers() ||
                                             unlucky_.contains(static_cast<std::uint32_t>(i)));
            ready += warm ? 1 : 0;
        }
        const bool lacks =
            status.elastic && ready < std::min<std::size_t>(standbys, policy_.standbys_max);
        standbys_since_ = lacks ? std::min(standbys_since_, now) : Instant::max();
        if (lacks && now > after(standbys_since_, settling())) {
            violated("of " + std::to_string(standbys) + " standbys only " + std::to_string(ready) +
                     " have their workers started, with " + std::to_string(policy_.standbys_max) +
                     " wanted");
        }
    }

   private:
    [[nodiscard]] Duration settling() const {
        return 2 * policy_.heartbeat_timeout + std::chrono::seconds(10);
    }
    // A node of a full round that is in the next full round keeps its group rank.
    void check_places(RoundId round, const std::map<NodeId, std::uint32_t>& places) {
        if (numbered_ || places.size() != places_.size() || places.size() != policy_.nodes_max) {
            return;
        }
        for (const auto& [node, group_rank] : places) {
            const auto before = places_.find(node);
            if (before != places_.end() && before->second != group_rank) {
                violated("node " + node + " had group rank " + std::to_string(before->second) +
                         " and has " + std::to_string(group_rank) + " in round " +
                         std::to_string(number(round)) + ", which is of the same size");
            }
        }
    }
    // With the maximum number of nodes, the daemon need not wait.
    void check_waiting(Instant now, const RendezvousCore& core) {
        if (core.nodes_count() < policy_.nodes_max || core.is_backing_off()) {
            return;
        }
        const JobStatus status = core.status(now);
        const auto ready =
            std::count_if(status.nodes.begin(), status.nodes.end(), [](const auto& row) {
                return row.place == JobStatus::Membership::waiting &&
                       (row.state == NodeState::stopped || row.state == NodeState::finished);
            });
        const bool awaits = status.situation.kind == Situation::Kind::awaiting;
        if (static_cast<std::size_t>(ready) >= policy_.nodes_max && !awaits) {
            violated(std::to_string(ready) + " nodes are ready, of " +
                     std::to_string(policy_.nodes_max) +
                     " at most, and no round is formed: " + describe(status.situation));
        }
    }

    JobPolicy policy_;
    RoundId round_ = RoundId::none;
    std::map<NodeId, std::uint32_t> places_;   // Group ranks in `round_`.
    bool numbered_ = false;                    // Some node asks for a fixed slot.
    std::set<std::uint32_t> unlucky_;          // Hosts whose waiting workers have ended.
    Instant standbys_since_ = Instant::max();  // Since when workers of standbys are missing.
};

// A drained node leaves. The others keep their step, and repeat none.
class BoundaryChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& policy) override {
        settling_ = 3 * policy.heartbeat_timeout + std::chrono::seconds(10);
        limit_ = 3 * policy.prepare_timeout + 3 * policy.shutdown_timeout + policy.last_call +
                 std::chrono::minutes(2);
        groups_.clear();
        last_.clear();
        names_.clear();
        drained_.clear();
        stopped_.clear();
    }
    void on_trouble(Instant now, Instant until) override {
        trouble_until_ = std::max({trouble_until_, after(now, settling_), after(until, settling_)});
    }
    void on_process_end(Instant now, std::uint32_t /*host*/, std::uint64_t life,
                        bool success) override {
        last_.erase(life);
        if (!success) {
            on_trouble(now, now);
        }
    }
    void on_daemon_start(Instant now) override {
        on_trouble(now, now);
        drained_.clear();
        names_.clear();
    }
    void on_daemon_gone(Instant now) override { on_trouble(now, now); }
    void on_daemon_event(Instant /*now*/, const Event& event) override {
        if (const auto* joined = std::get_if<NodeJoined>(&event)) {
            names_[joined->node] = joined->offer.name;
        } else if (const auto* left = std::get_if<NodeLeft>(&event)) {
            names_.erase(left->node);
        } else if (const auto* drain = std::get_if<DrainRequested>(&event)) {
            for (const auto& [node, name] : names_) {
                if (name == drain->node) {
                    wanted_.insert(node);
                }
            }
        }
    }
    void on_daemon_effects(Instant now, const RendezvousCore& core,
                           const Effects& effects) override {
        for (const Send& effect : effects) {
            if (const auto* stop = std::get_if<Stop>(&effect.message)) {
                stopped_.insert(stop->round);
            }
        }
        for (const NodeId& node : std::exchange(wanted_, {})) {
            if (core.nodes_called(node) > 0) {
                drained_.emplace(node, now);
            }
        }
    }
    void on_group_formed(Instant now, const GroupName& group, std::uint64_t step,
                         const std::vector<MemberView>& members) override {
        for (const MemberView& member : members) {
            const auto last = last_.find(member.life);
            if (last == last_.end()) {
                continue;
            }
            const Group& before = groups_[last->second];
            const bool waited_for = !stopped_.contains(before.round);
            if (before.suspends && waited_for && before.agreed > trouble_until_ &&
                now > trouble_until_ && (step < before.step || member.step != before.step)) {
                violated("round " + std::to_string(number(before.round)) + " was changed at step " +
                         std::to_string(before.step) +
                         " and nothing had gone wrong, but a rank that kept step " +
                         std::to_string(member.step) + " goes on from step " +
                         std::to_string(step) + " in round " + std::to_string(number(group.round)));
            }
        }
        for (const MemberView& member : members) {
            last_[member.life] = group.id;
        }
        groups_[group.id] = {group.round, step, false, {}};
    }
    void on_vote(Instant now, const GroupName& group, bool suspend) override {
        Group& voting = groups_[group.id];
        ++voting.step;
        voting.suspends = suspend;
        voting.agreed = now;
    }
    void on_agent_effect(Instant now, std::uint32_t host, const agent::AgentCore& core,
                         const agent::AgentEffect& effect) override {
        const auto* quit = std::get_if<agent::Quit>(&effect);
        const auto* pause = std::get_if<agent::PauseWorkers>(&effect);
        if (pause != nullptr && pause->leave) {
            told_to_leave_[host] = {now, after(now, pause->limit * 9 / 10),
                                    core.report().state == NodeState::running};
        }
        if (quit == nullptr) {
            return;
        }
        const auto told = told_to_leave_.find(host);
        const bool in_order = told != told_to_leave_.end() && told->second.trained &&
                              told->second.at > trouble_until_ && now > trouble_until_ &&
                              now < told->second.until;
        if (in_order && !quit->verdict && quit->exit_code != kExitRequeue && quit->exit_code != 0 &&
            core.report().draining.empty()) {
            violated("host " + std::to_string(host) +
                     " was told to leave at a step boundary, nothing had gone wrong, and it ended "
                     "with code " +
                     std::to_string(quit->exit_code));
        }
        told_to_leave_.erase(host);
    }
    void on_agent_start(Instant /*now*/, std::uint32_t host) override {
        told_to_leave_.erase(host);
    }
    void on_tick(Instant now, const View& view) override {
        if (view.rendezvous == nullptr || !view.reliable) {
            return;
        }
        for (const HostView& host : view.hosts) {
            const auto drained = drained_.find(host.node);
            if (drained == drained_.end() || host.agent == nullptr ||
                host.undisturbed_since == Instant::max() ||
                host.agent->report().state == NodeState::finished) {
                continue;
            }
            const Instant since =
                std::max({drained->second, host.undisturbed_since, trouble_until_});
            if (now > after(since, limit_ + 4 * view.step_limit)) {
                violated("node " + host.node + " was to be drained " +
                         format_duration(now - drained->second) + " ago and is still there");
            }
        }
    }

   private:
    struct Group {
        RoundId round = RoundId::none;
        std::uint64_t step = 0;
        bool suspends = false;
        Instant agreed{};  // When the ranks agreed on its last step.
    };
    struct Told {
        Instant at{};
        Instant until{};  // Less than the limit: the agent's clock may be fast.
        bool trained = false;
    };
    Duration settling_{};
    Duration limit_{};
    Instant trouble_until_{};
    std::map<std::uint64_t, Group> groups_;
    std::map<std::uint64_t, std::uint64_t> last_;  // By process: the group that it was in last.
    std::map<NodeId, std::string> names_;
    // Rounds that were stopped before their boundary. Whether that is allowed is checked elsewhere.
    std::set<RoundId> stopped_;
    std::set<NodeId> wanted_;  // Nodes to drain, by the event in progress.
    std::map<NodeId, Instant> drained_;
    std::map<std::uint32_t, Told> told_to_leave_;  // By host.
};

// A planned change interrupts no worker in a step.
class PrepareChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& policy) override {
        limit_ = policy.prepare_timeout * 9 / 10;  // A clock may be fast.
        drain_limit_ = policy.shutdown_timeout * 6 / 10;
        settling_ = 3 * policy.heartbeat_timeout + std::chrono::seconds(10);
        prepared_.clear();
        asked_.clear();
    }
    void on_agent_start(Instant /*now*/, std::uint32_t host) override { asked_.erase(host); }
    void on_agent_event(Instant now, std::uint32_t host, const agent::AgentEvent& event) override {
        if (std::holds_alternative<agent::QuitRequested>(event)) {
            asked_.emplace(host, now);
        }
    }
    void on_trouble(Instant now, Instant until) override {
        trouble_until_ = std::max({trouble_until_, after(now, settling_), after(until, settling_)});
    }
    void on_process_end(Instant now, std::uint32_t /*host*/, std::uint64_t /*life*/,
                        bool success) override {
        if (!success) {
            on_trouble(now, now);
        }
    }
    void on_daemon_start(Instant now) override { on_trouble(now, now); }
    void on_daemon_gone(Instant now) override { on_trouble(now, now); }
    void on_daemon_restored(Instant now, const RendezvousCore& /*core*/) override {
        on_trouble(now, now);
    }
    void on_daemon_effects(Instant now, const RendezvousCore& /*core*/,
                           const Effects& effects) override {
        for (const Send& effect : effects) {
            if (const auto* prepare = std::get_if<Prepare>(&effect.message)) {
                prepared_.emplace(prepare->round, std::pair(now, after(now, limit_)));
            }
        }
    }
    void on_aborted(Instant now, std::uint32_t host, std::uint64_t /*life*/, RoundId round,
                    bool trained) override {
        const auto prepared = prepared_.find(round);
        if (trained && prepared != prepared_.end() && prepared->second.first > trouble_until_ &&
            now > trouble_until_ && now < prepared->second.second && !is_short_of_time(now)) {
            violated("a worker on host " + std::to_string(host) +
                     " was interrupted in a step of round " + std::to_string(number(round)) +
                     ", which was to change at a step boundary, and nothing had gone wrong");
        }
    }

   private:
    // A node that a signal asked to end has less time, and saves its state within that time.
    bool is_short_of_time(Instant now) const {
        return std::any_of(asked_.begin(), asked_.end(), [&](const auto& asked) {
            return now >= after(asked.second, drain_limit_);
        });
    }
    Duration limit_{};
    Duration settling_{};
    Duration drain_limit_{};
    std::map<std::uint32_t, Instant> asked_;  // By host: when it was first asked to quit.
    std::map<RoundId, std::pair<Instant, Instant>> prepared_;  // When, and its deadline.
    Instant trouble_until_{};
};

}  // namespace

std::unique_ptr<Checker> make_standby_checker() {
    return std::make_unique<StandbyChecker>();
}
std::unique_ptr<Checker> make_boundary_checker() {
    return std::make_unique<BoundaryChecker>();
}
std::unique_ptr<Checker> make_prepare_checker() {
    return std::make_unique<PrepareChecker>();
}

}  // namespace regroup::simulation
