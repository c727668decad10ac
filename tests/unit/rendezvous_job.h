// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <csignal>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/base/exit_code.h"
#include "rendezvous/core/rendezvous_core.h"
#include "rendezvous/protocol/codec.h"
#include "tests/support/words.h"

namespace regroup::rendezvous {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// 2:3 nodes, one restart, and time limits in round numbers.
inline JobPolicy small_policy() {
    JobPolicy policy;
    policy.nodes_min = 2;
    policy.nodes_max = 3;
    policy.restarts_max = 1;
    policy.last_call = seconds(5);
    policy.heartbeat_timeout = seconds(3);
    policy.shutdown_timeout = seconds(10);
    policy.grow_after = seconds(5);
    policy.program = "train";
    return policy;
}

/// `count` nodes exactly.
inline JobPolicy fixed_policy(std::uint32_t count) {
    JobPolicy policy = small_policy();
    policy.nodes_min = policy.nodes_max = count;
    return policy;
}

inline WorkerFailure crash_on(const std::string& node, int signal = SIGSEGV) {
    WorkerFailure failure;
    failure.node = node;
    failure.signal = signal;
    return failure;
}

inline WorkerFailure error_on(const std::string& node, int exit_code = 1) {
    WorkerFailure failure;
    failure.node = node;
    failure.exit_code = exit_code;
    return failure;
}

/// A rendezvous core with a clock, and nodes that repeat their last report every second as real
/// ones do. A node's id is its name. `log` holds everything sent since the last `clear`.
class Job {
   public:
    explicit Job(const JobPolicy& policy) : core(policy), policy_(policy) {}

    void join(const std::string& node) { join(node, offer_of(node), {}); }
    void join_all(const std::vector<std::string>& nodes) {
        for (const std::string& node : nodes) {
            join(node);
        }
    }
    void join(const std::string& node, const Offer& offer, const NodeReport& report = {}) {
        join(node, policy_, offer, report);
    }
    void join(const std::string& node, const JobPolicy& policy, const Offer& offer,
              NodeReport report) {
        if (report.store_port == 0) {
            report.store_port = 2000;
        }
        reports_[node] = report;
        keep(core.step(now, NodeJoined{node, policy, offer, report}));
    }
    void report(const std::string& node, NodeState state) { report(node, state, core.round()); }
    void report(const std::string& node, NodeState state, RoundId round,
                std::optional<WorkerFailure> failure = std::nullopt) {
        reports_[node] = NodeReport{round, state, 2000, std::move(failure)};
        beat(node);
    }
    /// Sets the report that the node repeats from now on. Without a port it keeps its usual one.
    void tell(const std::string& node, NodeReport report) {
        report.store_port = 2000;
        reports_[node] = std::move(report);
        beat(node);
    }
    /// A report of elastic workers.
    void elastic(const std::string& node, NodeState state, std::uint64_t step = 0) {
        tell(node, elastic_report(core.round(), state, step));
    }
    static NodeReport elastic_report(RoundId round, NodeState state, std::uint64_t step = 0) {
        NodeReport report;
        report.round = round;
        report.state = state;
        report.elastic = true;
        report.step = step;
        report.held_step = step;
        return report;
    }
    [[nodiscard]] const NodeReport& report_of(const std::string& node) { return reports_[node]; }
    void drain(const std::string& node) {
        keep(core.step(now, DrainRequested{node, "ops", "maintenance"}));
    }
    void resumed(const std::string& node, std::uint64_t step) {
        keep(core.step(now, NodeResumed{node,
                                        {core.round(), step, milliseconds(3), milliseconds(2),
                                         milliseconds(1)}}));
    }
    void step(const Event& event) { keep(core.step(now, event)); }
    /// The node repeats its last report.
    void beat(const std::string& node) { keep(core.step(now, NodeReported{node, reports_[node]})); }
    /// A worker has failed, and the other workers of the node have ended.
    void fail(const std::string& node, const WorkerFailure& failure) {
        report(node, NodeState::stopped, core.round(), failure);
    }
    void leave(const std::string& node) {
        reports_.erase(node);
        keep(core.step(now, NodeLeft{node, "SIGTERM"}));
    }
    /// The agent of the node is dead, and its warden reports that.
    void killed(const std::string& node) {
        reports_.erase(node);
        keep(core.step(now, NodeLeft{node, "its agent was killed", true}));
    }
    void disconnect(const std::string& node) { keep(core.step(now, NodeDisconnected{node})); }
    /// The node sends nothing from now on.
    void silence(const std::string& node) { reports_.erase(node); }

    /// Its connection breaks, and it does not come back.
    void cut_off(const std::string& node) {
        silence(node);
        disconnect(node);
    }

    /// Time passes: nodes that are not silent send a heartbeat every second, and timers fire when
    /// due.
    void pass(Duration span) {
        const Instant end = now + span;
        while (now < end) {
            const Instant due = std::max(core.next_deadline(), now);
            now = std::max(now, std::min({due, next_beat_, end}));
            if (now >= next_beat_) {
                next_beat_ = now + seconds(1);
                for (const auto& [node, report] : reports_) {
                    keep(core.step(now, NodeReported{node, report}));
                }
            }
            keep(core.advance(now));
        }
    }

    static Offer offer_of(const std::string& name) {
        Offer offer;
        offer.name = name;
        offer.workers = 2;
        offer.address = "10.0.0." + std::to_string(1 + (name.empty() ? 0 : name[0] - 'a'));
        return offer;
    }

    void clear() { log.clear(); }
    /// The last message of this kind to the node since `clear`, or null.
    template <class Message>
    [[nodiscard]] const Message* told(const std::string& node) const {
        const auto is_it = [&](const Send& send) {
            return send.node == node && std::holds_alternative<Message>(send.message);
        };
        const auto found = std::find_if(log.rbegin(), log.rend(), is_it);
        return found == log.rend() ? nullptr : &std::get<Message>(found->message);
    }
    /// The same; the test fails if there is none.
    template <class Message>
    [[nodiscard]] Message heard(const std::string& node) const {
        const Message* const message = told<Message>(node);
        EXPECT_NE(message, nullptr) << "node " << node << " was not told";
        return message != nullptr ? *message : Message{};
    }
    /// The test fails if the job is not closed.
    [[nodiscard]] Verdict verdict() const {
        EXPECT_TRUE(core.verdict().has_value());
        return core.verdict().value_or(Verdict{});
    }
    [[nodiscard]] const Assignment& assignment(const std::string& node) const {
        const auto* assign = told<Assign>(node);
        ENSURE(assign != nullptr);
        return assign->assignment;
    }
    /// How often the node was sent this kind since `clear`.
    template <class Message>
    [[nodiscard]] std::size_t times_told(const std::string& node) const {
        return static_cast<std::size_t>(
            std::count_if(log.begin(), log.end(), [&](const Send& send) {
                return send.node == node && std::holds_alternative<Message>(send.message);
            }));
    }
    /// All of `nodes` run the current round with elastic workers.
    void run_elastic(const std::vector<std::string>& nodes, std::uint64_t step = 0) {
        for (const std::string& node : nodes) {
            elastic(node, NodeState::running, step);
        }
    }
    /// All workers of `nodes` are suspended after the current round.
    void suspend(const std::vector<std::string>& nodes, std::uint64_t step = 0) {
        for (const std::string& node : nodes) {
            elastic(node, NodeState::stopped, step);
        }
    }
    /// All of `nodes` confirm that they run the current round.
    void run(const std::vector<std::string>& nodes) {
        for (const std::string& node : nodes) {
            report(node, NodeState::running);
        }
    }
    void confirm_stopped(const std::vector<std::string>& nodes) {
        for (const std::string& node : nodes) {
            report(node, NodeState::stopped, core.round(), reports_[node].failure);
        }
    }

    RendezvousCore core;
    Instant now = Instant{} + std::chrono::hours(1);
    std::vector<Send> log;

   private:
    void keep(Effects effects) {
        for (Send& send : effects) {
            // Nodes understand every message.
            const auto decoded = protocol::decode_from_daemon(protocol::encode(send.message));
            EXPECT_TRUE(decoded) << decoded.error().detail;
            log.push_back(std::move(send));
        }
    }
    JobPolicy policy_;
    Instant next_beat_ = now + seconds(1);
    std::map<std::string, NodeReport> reports_;
};

}  // namespace regroup::rendezvous
