// SPDX-License-Identifier: Apache-2.0
//
// Invariants of each agent and its workers.
#include <algorithm>
#include <csignal>
#include <map>

#include "rendezvous/text/describe.h"
#include "tests/simulation/checker.h"

namespace regroup::simulation {

namespace {

using namespace rendezvous;

class OrphanChecker final : public Checker {
   public:
    void on_agent_effect(Instant /*now*/, std::uint32_t host, const agent::AgentCore& core,
                         const agent::AgentEffect& effect) override {
        const auto* quit = std::get_if<agent::Quit>(&effect);
        const bool resisted =
            quit != nullptr && quit->reason.cause == agent::QuitCause::workers_unkillable;
        if (quit != nullptr && core.has_workers() && !resisted) {
            violated("the agent on host " + std::to_string(host) + " quit with living workers");
        }
    }
    void on_tick(Instant /*now*/, const View& view) override {
        orphaned_.resize(view.hosts.size(), 0);
        for (std::size_t i = 0; i < view.hosts.size(); ++i) {
            const bool orphans = view.hosts[i].agent == nullptr && view.hosts[i].workers_alive > 0;
            orphaned_[i] = orphans ? orphaned_[i] + 1 : 0;
            if (orphaned_[i] > 4) {
                violated("workers on host " + std::to_string(i) + " have outlived their agent");
            }
        }
    }

   private:
    std::vector<int> orphaned_;  // Ticks for which each host has had workers but no agent.
};

class ForceChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& policy) override {
        limit_ = policy.shutdown_timeout;
        asked_.clear();
        saving_until_.clear();
    }
    void on_agent_end(Instant /*now*/, std::uint32_t host) override {
        asked_.erase(host);
        saving_until_.erase(host);
    }
    void on_agent_event(Instant now, std::uint32_t host, const agent::AgentEvent& event) override {
        const auto asked = asked_.find(host);
        if (const auto* work = std::get_if<agent::WorkersAtWork>(&event);
            work != nullptr && asked != asked_.end() && !asked->second.leaving) {
            // The agent waits for the worker that needs the longest, whichever reports last.
            asked->second.works_until =
                std::max(asked->second.works_until, after(now, work->left + work->left / 10));
        }
    }
    void on_agent_effect(Instant now, std::uint32_t host, const agent::AgentCore& core,
                         const agent::AgentEffect& effect) override {
        if (core.report().state == NodeState::stopped && !core.leaving()) {
            asked_.erase(host);  // Suspended workers have obeyed.
        }
        const auto* signal = std::get_if<agent::SignalWorkers>(&effect);
        const auto* pause = std::get_if<agent::PauseWorkers>(&effect);
        if (pause != nullptr && pause->leave) {
            saving_until_[host] = after(now, pause->limit + pause->limit / 10);
        }
        if (signal != nullptr && signal->force() && !signal->waiting) {
            asked_.erase(host);
        } else if (signal != nullptr || std::holds_alternative<agent::EndRound>(effect)) {
            const auto [known, is_new] = asked_.emplace(host, Asked{now, core.leaving(), {}});
            if (!is_new && core.leaving() && !known->second.leaving) {
                known->second = {now, true, {}};  // Now suspended workers are to end as well.
            }
        } else if (std::holds_alternative<agent::BeginRound>(effect)) {
            asked_.erase(host);
        }
    }
    void on_tick(Instant now, const View& view) override {
        for (auto it = asked_.begin(); it != asked_.end();) {
            const HostView& host = view.hosts[it->first];
            const bool waits =
                host.agent != nullptr && host.agent->has_workers() &&
                (host.agent->leaving() || (host.agent->report().state == NodeState::stopping &&
                                           !host.agent->awaits_check()));
            if (!waits) {
                it = asked_.erase(it);
                continue;
            }
            // Clocks that drift make the agent's limit up to a tenth longer than the true one.
            const Duration allowed = limit_ + limit_ / 10 + std::chrono::milliseconds(100);
            const Instant since =
                std::max({it->second.at, host.awake_since, saving_until_[it->first]});
            const bool may_work =
                host.agent->report().at_work > Duration::zero() &&
                now <= after(it->second.works_until, std::chrono::milliseconds(100));
            if (host.awake_since != Instant::max() && now > after(since, allowed) && !may_work) {
                violated("workers on node " + host.node + " were asked to stop " +
                         format_duration(now - it->second.at) + " ago and have not been killed");
            }
            ++it;
        }
    }

   private:
    Duration limit_{};
    struct Asked {
        Instant at{};
        bool leaving = false;
        Instant works_until{};  // Until when workers in user code may not have noticed.
    };
    // By host: until when leaving workers save their state.
    std::map<std::uint32_t, Instant> saving_until_;
    std::map<std::uint32_t, Asked> asked_;  // By host: asked to end or suspend, SIGKILL not yet.
};

class FirstFailureChecker final : public Checker {
   public:
    void on_agent_start(Instant /*now*/, std::uint32_t host) override { hosts_[host] = {}; }
    void on_agent_event(Instant /*now*/, std::uint32_t host,
                        const agent::AgentEvent& event) override {
        Host& known = hosts_[host];
        if (const auto* word = std::get_if<agent::WorkerSuspended>(&event)) {
            // Also for a worker that was told to end: its end is then no failure.
            const auto worker = known.training.find(word->local_rank);
            if (worker != known.training.end() && word->round >= known.round) {
                known.training.erase(worker);
            }
        }
        const auto* exited = std::get_if<agent::WorkerExited>(&event);
        if (exited == nullptr) {
            return;
        }
        const auto worker = known.training.find(exited->local_rank);
        if (worker == known.training.end() || worker->second.launched_in != exited->round) {
            return;  // It was suspended, or belongs to an earlier round.
        }
        const Worker ended = worker->second;
        known.training.erase(worker);
        if (!exited->failure) {
            return;
        }
        WorkerFailure failure = *exited->failure;
        if (ended.hung) {
            failure.kind = FailureKind::hang;
            failure.evidence = ended.reason;
        }
        const bool ours = !ended.hung && (failure.signal == 0 || failure.signal == SIGTERM ||
                                          (failure.signal == SIGKILL && known.forced));
        const bool better = !known.root || outranks(failure, *known.root);
        if (known.asked_to_stop ? better && !ours : !known.root) {
            known.root = failure;
        }
    }
    void on_agent_effect(Instant /*now*/, std::uint32_t host, const agent::AgentCore& /*core*/,
                         const agent::AgentEffect& effect) override {
        Host& known = hosts_[host];
        if (const auto* begin = std::get_if<agent::BeginRound>(&effect)) {
            known = {begin->assignment.round, {}, std::nullopt, false, false, known.ahead};
        } else if (const auto* launch = std::get_if<agent::LaunchWorkers>(&effect)) {
            for (const std::uint32_t local_rank : launch->local_ranks) {
                known.ahead[local_rank] = {launch->assignment.round, false, {}};
                known.training[local_rank] = known.ahead[local_rank];
            }
        } else if (const auto* prestart = std::get_if<agent::PrestartWorkers>(&effect)) {
            for (const std::uint32_t local_rank : prestart->local_ranks) {
                known.ahead[local_rank] = {RoundId::none, false, {}};
            }
        } else if (const auto* assign = std::get_if<agent::AssignWorkers>(&effect)) {
            for (const std::uint32_t local_rank : assign->local_ranks) {
                known.training[local_rank] = known.ahead[local_rank];
            }
        } else if (const auto* kill = std::get_if<agent::KillWorker>(&effect)) {
            known.training[kill->local_rank].hung = true;
            known.training[kill->local_rank].reason = kill->reason.text;
        } else if (const auto* signal = std::get_if<agent::SignalWorkers>(&effect);
                   signal != nullptr && signal->round == known.round) {
            known.asked_to_stop = true;
            known.forced = known.forced || signal->force();
        } else if (std::holds_alternative<agent::EndRound>(effect)) {
            known.asked_to_stop = true;
        } else if (const auto* send = std::get_if<agent::SendToDaemon>(&effect)) {
            if (const auto* report = std::get_if<Report>(&send->message)) {
                check(host, known, report->report);
            } else if (const auto* join = std::get_if<Join>(&send->message)) {
                check(host, known, join->report);
            }
        }
    }

   private:
    struct Worker {
        RoundId launched_in = RoundId::none;
        bool hung = false;
        std::string reason;  // Why it was killed, if a round hung on it.
    };
    struct Host {
        RoundId round = RoundId::none;
        std::map<std::uint32_t, Worker> training;  // By local rank.
        /// The first failure that the agent learned, or one that outranks it. Stopped workers do
        /// not count.
        std::optional<WorkerFailure> root;
        bool asked_to_stop = false;
        bool forced = false;
        std::map<std::uint32_t, Worker> ahead;  // As each process was started.
    };
    void check(std::uint32_t host, const Host& known, const NodeReport& report) {
        if (report.failure && report.round == known.round &&
            (!known.root || !(*known.root == *report.failure))) {
            violated("host " + std::to_string(host) + " blames " + describe(*report.failure) +
                     " for round " + text(report.round) + ", but another failure began it");
        }
        if (report.failure && report.round != known.round) {
            violated("host " + std::to_string(host) + " reports a failure of round " +
                     text(known.round) + " as one of round " + text(report.round));
        }
    }

    std::map<std::uint32_t, Host> hosts_;
};

class MasterChecker final : public Checker {
   public:
    void on_agent_start(Instant /*now*/, std::uint32_t host) override { offered_[host] = 0; }
    void on_agent_event(Instant /*now*/, std::uint32_t host,
                        const agent::AgentEvent& event) override {
        if (const auto* offer = std::get_if<agent::StoreOffered>(&event)) {
            offered_[host] = offer->port;
        }
    }
    void on_agent_effect(Instant /*now*/, std::uint32_t host, const agent::AgentCore& /*core*/,
                         const agent::AgentEffect& effect) override {
        const auto* launch = std::get_if<agent::BeginRound>(&effect);
        if (launch != nullptr && launch->assignment.group_rank == 0 &&
            launch->assignment.master_port != offered_[host]) {
            violated("host " + std::to_string(host) + " serves the store on port " +
                     std::to_string(offered_[host]) + ", but the assignment says " +
                     std::to_string(launch->assignment.master_port));
        }
    }

   private:
    std::map<std::uint32_t, std::uint16_t> offered_;
};

class FencingChecker final : public Checker {
   public:
    void on_agent_start(Instant /*now*/, std::uint32_t host) override { hosts_[host] = {}; }
    void on_agent_event(Instant /*now*/, std::uint32_t host,
                        const agent::AgentEvent& event) override {
        const auto* received = std::get_if<agent::Received>(&event);
        if (received == nullptr) {
            return;
        }
        Host& known = hosts_[host];
        if (const auto* assign = std::get_if<Assign>(&received->message)) {
            known.seen = std::max(known.seen, assign->assignment.round);
        } else if (const auto* stop = std::get_if<Stop>(&received->message)) {
            known.forbidden = std::max(known.forbidden, stop->round);
        } else if (std::holds_alternative<Fenced>(received->message)) {
            known.forbidden = std::max(known.forbidden, known.seen);
        }
    }
    void on_agent_effect(Instant /*now*/, std::uint32_t host, const agent::AgentCore& /*core*/,
                         const agent::AgentEffect& effect) override {
        const auto* launch = std::get_if<agent::BeginRound>(&effect);
        if (launch != nullptr && launch->assignment.round <= hosts_[host].forbidden) {
            violated("host " + std::to_string(host) + " launched round " +
                     text(launch->assignment.round) + " after it was fenced from or told to stop " +
                     text(hosts_[host].forbidden));
        }
    }

   private:
    struct Host {
        RoundId seen = RoundId::none;       // The highest that it was ever assigned.
        RoundId forbidden = RoundId::none;  // The highest that it must not launch any more.
    };
    std::map<std::uint32_t, Host> hosts_;
};

}  // namespace

std::unique_ptr<Checker> make_orphan_checker() {
    return std::make_unique<OrphanChecker>();
}
std::unique_ptr<Checker> make_force_checker() {
    return std::make_unique<ForceChecker>();
}
std::unique_ptr<Checker> make_first_failure_checker() {
    return std::make_unique<FirstFailureChecker>();
}
std::unique_ptr<Checker> make_master_checker() {
    return std::make_unique<MasterChecker>();
}

Checkers make_all_checkers() {
    Checkers all;
    for (const auto make :
         {make_ranks_checker,         make_round_order_checker, make_fencing_checker,
          make_one_round_checker,     make_closed_checker,      make_budget_checker,
          make_stale_round_checker,   make_orphan_checker,      make_force_checker,
          make_first_failure_checker, make_master_checker,      make_memory_checker,
          make_storm_checker,         make_progress_checker,    make_replay_checker,
          make_return_checker,        make_headless_checker,    make_incident_checker,
          make_steps_checker,         make_keep_checker,        make_prepare_checker,
          make_drain_checker,         make_steady_checker,      make_hang_checker,
          make_link_checker,          make_standby_checker,     make_boundary_checker,
          make_leave_checker,         make_wire_checker}) {
        all.push_back(make());
    }
    return all;
}
std::unique_ptr<Checker> make_fencing_checker() {
    return std::make_unique<FencingChecker>();
}

}  // namespace regroup::simulation
