// SPDX-License-Identifier: Apache-2.0
//
// Invariants of the state that the workers of a leaving node save.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "rendezvous/base/exit_code.h"
#include "tests/simulation/checker.h"

namespace regroup::simulation {

namespace {

using namespace rendezvous;

// While a daemon has enough nodes for a round, a node whose state is older than a later round's
// saves nothing.
class LeaveChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& policy) override {
        nodes_min_ = policy.nodes_min;
        patience_ = policy.shutdown_timeout * 4 / 10;  // Half of it, and a clock may be fast.
        processes_.clear();
        is_forgotten_ = is_over_ = false;
        asked_.clear();
    }
    // Failing workers do not matter here, as long as the daemon hears all agents.
    void on_trouble(Instant /*now*/, Instant /*until*/) override {}
    // A daemon without durable state has forgotten the job, and the first nodes that join begin
    // another one.
    void on_daemon_start(Instant /*now*/) override { is_forgotten_ = !processes_.empty(); }
    void on_daemon_gone(Instant now) override { unheard(now); }
    void on_daemon_restored(Instant now, const RendezvousCore& /*core*/) override { unheard(now); }
    void on_agent_end(Instant now, std::uint32_t /*host*/) override { unheard(now); }
    void on_tick(Instant now, const View& view) override {
        for (const HostView& host : view.hosts) {
            if (host.agent != nullptr && host.undisturbed_since > now - kSettling) {
                unheard(now);
            }
        }
        // Where messages are lost or late, the daemon may not hear of the most advanced node.
        const bool is_rough = !view.reliable || view.network_limit > std::chrono::seconds(1);
        if (is_rough || view.daemon_awake_since > now - kSettling) {
            unheard(now);
        }
    }
    void on_daemon_event(Instant now, const Event& event) override {
        if (std::holds_alternative<NodeDisconnected>(event)) {
            unheard(now);
        }
    }
    void on_daemon_effects(Instant now, const RendezvousCore& core,
                           const Effects& /*effects*/) override {
        is_over_ = core.verdict().has_value();
        if (core.nodes_count() < nodes_min_) {
            unheard(now);
        }
    }
    void on_agent_start(Instant /*now*/, std::uint32_t host) override { asked_.erase(host); }
    void on_agent_event(Instant now, std::uint32_t host, const agent::AgentEvent& event) override {
        if (std::holds_alternative<agent::QuitRequested>(event)) {
            asked_.emplace(host, now);
        }
    }
    void on_group_formed(Instant now, const GroupName& group, std::uint64_t step,
                         const std::vector<MemberView>& members) override {
        last_formed_at_ = now;
        for (const MemberView& member : members) {
            processes_[member.life] = {group.id, step};
        }
    }
    void on_commit(Instant /*now*/, std::uint32_t /*host*/, std::uint64_t life,
                   const GroupName& group, std::uint64_t step) override {
        processes_[life] = {group.id, step};
    }
    void on_process_end(Instant /*now*/, std::uint32_t /*host*/, std::uint64_t life,
                        bool /*success*/) override {
        processes_.erase(life);
    }
    void on_left(Instant now, std::uint32_t host, std::uint64_t life, std::uint64_t step) override {
        // Before the first step all workers have the initial state.
        const auto asked = asked_.find(host);
        const bool hurried = asked != asked_.end() && now >= after(asked->second, patience_);
        const auto self = processes_.find(life);
        if (step == 0 || is_forgotten_ || is_over_ || now < trouble_until_ || hurried ||
            self == processes_.end() || now <= after(last_formed_at_, kSettling)) {
            return;
        }
        for (const auto& [other, process] : processes_) {
            if (process.step > step && process.group > self->second.group) {
                violated("host " + std::to_string(host) + " left with step " +
                         std::to_string(step) + " saved, and a later round had come to step " +
                         std::to_string(process.step));
            }
        }
    }

   private:
    void unheard(Instant now) { trouble_until_ = after(now, kSettling); }

    static constexpr Duration kSettling = std::chrono::seconds(5);

    std::uint32_t nodes_min_ = 1;
    Duration patience_{};
    bool is_forgotten_ = false;
    bool is_over_ = false;
    Instant trouble_until_{};
    struct Process {
        std::uint64_t group = 0;  // The last group of the process.
        std::uint64_t step = 0;
    };
    std::map<std::uint64_t, Process> processes_;
    Instant last_formed_at_{};
    std::map<std::uint32_t, Instant> asked_;  // By host: when it was first asked to quit.
};

// A node exits with "state saved, can be requeued" only if its workers have saved their state.
class DrainChecker final : public Checker {
   public:
    void on_agent_start(Instant /*now*/, std::uint32_t host) override { hosts_[host] = {}; }
    void on_agent_event(Instant /*now*/, std::uint32_t host,
                        const agent::AgentEvent& event) override {
        if (std::holds_alternative<agent::WorkerSuspended>(event)) {
            hosts_[host].training = 0;  // The other nodes have the state.
        }
        const auto* exited = std::get_if<agent::WorkerExited>(&event);
        if (exited != nullptr && exited->failure) {
            hosts_[host].training = 0;  // The state is with the others, or lost.
        }
    }
    void on_agent_effect(Instant /*now*/, std::uint32_t host, const agent::AgentCore& /*core*/,
                         const agent::AgentEffect& effect) override {
        Host& known = hosts_[host];
        if (std::holds_alternative<agent::BeginRound>(effect)) {
            known = {};
        } else if (const auto* launch = std::get_if<agent::LaunchWorkers>(&effect)) {
            known.training += launch->local_ranks.size();
        } else if (const auto* assign = std::get_if<agent::AssignWorkers>(&effect)) {
            known.training += assign->local_ranks.size();
        } else if (std::holds_alternative<agent::EndRound>(effect)) {
            known.training = 0;
        }
        const auto* quit = std::get_if<agent::Quit>(&effect);
        const bool all = known.saved.size() >= known.training && known.ends.size() < 2;
        if (quit != nullptr && quit->exit_code == kExitRequeue && !quit->verdict && !all) {
            violated("host " + std::to_string(host) + " ended with code 75, but not all of its " +
                     std::to_string(known.training) + " workers have saved their state");
        }
    }
    void on_saved(Instant /*now*/, std::uint32_t host, std::uint64_t life,
                  const GroupName& /*group*/, std::uint64_t /*step*/) override {
        hosts_[host].saved.insert(life);
        hosts_[host].leaving.insert(life);
    }
    void on_process_end(Instant /*now*/, std::uint32_t host, std::uint64_t life,
                        bool success) override {
        Host& known = hosts_[host];
        if (success) {
            known.saved.insert(life);
        }
        if (known.leaving.erase(life) != 0) {
            known.ends.insert(success);
        }
    }

   private:
    struct Host {
        std::size_t training = 0;
        std::set<std::uint64_t> saved;    // Processes; finished ones included.
        std::set<std::uint64_t> leaving;  // Processes that save at a step boundary.
        std::set<bool> ends;              // Their ends: with success or without.
    };
    std::map<std::uint32_t, Host> hosts_;
};

}  // namespace

std::unique_ptr<Checker> make_leave_checker() {
    return std::make_unique<LeaveChecker>();
}
std::unique_ptr<Checker> make_drain_checker() {
    return std::make_unique<DrainChecker>();
}

}  // namespace regroup::simulation
