// SPDX-License-Identifier: Apache-2.0
//
// What must be true of the state that a node's workers save when it leaves.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "tests/simulation/checker.h"

namespace regroup::simulation {

namespace {

using namespace rendezvous;

// As long as somebody can see to it, a daemon with as many nodes as a round needs: all of a round
// who leave after it save the same step, the furthest to which one of them has come, and who has
// been left behind by later rounds saves nothing. A daemon that has tried often enough to bring all
// to one step, or may not try again, says that it has not.
class LeaveChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& policy) override {
        nodes_min_ = policy.nodes_min;
        on_exit_ = policy.on_exit;
        all_leave_since_.reset();
        patience_ = policy.shutdown_timeout * 4 / 10;  // Half of it, by a clock that may be fast.
        processes_.clear();
        is_forgotten_ = is_over_ = has_failed_ = false;
        asked_.clear();
    }
    // Workers may fail as they like: what counts is that all agents are heard.
    void on_trouble(Instant /*now*/, Instant /*until*/) override {}
    // Where a daemon has forgotten the job, those who come first begin another beside it.
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
        // Where messages are lost or late, whoever has come furthest may not be heard.
        const bool is_rough = !view.reliable || view.network_limit > std::chrono::seconds(1);
        if (is_rough || view.daemon_awake_since > now - kSettling) {
            unheard(now);
        }
    }
    void on_daemon_event(Instant now, const Event& event) override {
        // With it goes the rendezvous, and whoever waited for its boundary is let go.
        const auto* left = std::get_if<NodeLeft>(&event);
        if (left != nullptr && left->reason.find(" not saved ") != std::string::npos) {
            few_until_ = after(now, kSettling);
        } else if (std::holds_alternative<NodeDisconnected>(event)) {
            unheard(now);
        }
    }
    void on_daemon_effects(Instant now, const RendezvousCore& core,
                           const Effects& effects) override {
        for (const Send& effect : effects) {
            if (const auto* prepare = std::get_if<Prepare>(&effect.message);
                prepare != nullptr && !all_leave_since_ &&
                prepare->reason.find("all save their state and leave") != std::string::npos) {
                all_leave_since_ = core.round();
            }
        }
        // Nor is there another round in a job that has failed or was stopped from outside. The end
        // of one that all leave is said to all alike.
        is_over_ = core.verdict().has_value();
        has_failed_ = has_failed_ || (is_over_ && (core.verdict()->exit_code != kExitRequeue ||
                                                   may_differ(core.round(), *core.verdict())));
        if (core.nodes_count() < nodes_min_) {
            few_until_ = after(now, kSettling);
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
        // Before the first step all have what the program begins with.
        const auto asked = asked_.find(host);
        const bool hurried = asked != asked_.end() && now >= after(asked->second, patience_);
        const auto self = processes_.find(life);
        if (step == 0 || is_forgotten_ || has_failed_ || now < trouble_until_ || now < few_until_ ||
            hurried || self == processes_.end()) {
            return;
        }
        const std::uint64_t group = self->second.group;
        const bool is_long_ago = now > after(last_formed_at_, kSettling);
        for (const auto& [other, process] : processes_) {
            if (process.step > step && process.group == group) {
                violated("host " + std::to_string(host) + " left with step " +
                         std::to_string(step) +
                         " saved, and another of its round had come to step " +
                         std::to_string(process.step));
            } else if (process.step > step && process.group > group && is_long_ago && !is_over_) {
                violated("host " + std::to_string(host) + " left with step " +
                         std::to_string(step) + " saved, and a later round had come to step " +
                         std::to_string(process.step));
            }
        }
    }

   private:
    bool may_differ(RoundId round, const Verdict& verdict) const {
        if (verdict.reason.find("; not all have come to the same step") == std::string::npos) {
            return false;
        }
        if (verdict.failure) {
            const auto reaction = on_exit_.find(shell_exit_code(*verdict.failure));
            if (verdict.failure->kind == FailureKind::user_error ||
                (reaction != on_exit_.end() && reaction->second == Reaction::fail)) {
                return true;
            }
        }
        return all_leave_since_ && number(round) - number(*all_leave_since_) >= kExtraRounds;
    }
    void unheard(Instant now) { trouble_until_ = after(now, kSettling); }

    static constexpr Duration kSettling = std::chrono::seconds(5);
    static constexpr int kExtraRounds = 3;  // docs/recovery.md says so.

    std::uint32_t nodes_min_ = 1;
    decltype(JobPolicy::on_exit) on_exit_;
    std::optional<RoundId> all_leave_since_;  // The first round that all were told to leave.
    Duration patience_{};
    bool is_forgotten_ = false;
    bool is_over_ = false;
    bool has_failed_ = false;  // The job, or it was stopped; some may be long at work of their own.
    Instant trouble_until_{};
    Instant few_until_{};
    struct Process {
        std::uint64_t group = 0;  // The last that it was in.
        std::uint64_t step = 0;
    };
    std::map<std::uint64_t, Process> processes_;
    Instant last_formed_at_{};
    std::map<std::uint32_t, Instant> asked_;  // To quit, by host: when first.
};

// "State saved, can be requeued" is said only by a node whose workers have saved it.
class DrainChecker final : public Checker {
   public:
    void on_agent_start(Instant /*now*/, std::uint32_t host) override { hosts_[host] = {}; }
    void on_agent_event(Instant /*now*/, std::uint32_t host,
                        const agent::AgentEvent& event) override {
        if (std::holds_alternative<agent::WorkerParked>(event)) {
            hosts_[host].training = 0;  // The state is with the others.
        }
        const auto* exited = std::get_if<agent::WorkerExited>(&event);
        if (exited != nullptr && exited->failure) {
            hosts_[host].training = 0;  // Or lost.
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
        if (quit != nullptr && quit->exit_code == agent::kExitRequeue && !quit->verdict && !all) {
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
        std::set<std::uint64_t> saved;    // Processes; those that came to their end included.
        std::set<std::uint64_t> leaving;  // At a boundary, where they save.
        std::set<bool> ends;              // Of those: with success, or without.
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
