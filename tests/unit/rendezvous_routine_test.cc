// SPDX-License-Identifier: Apache-2.0
//
// Events that a journal may leave out: random histories, with and without routine reports, lead to
// the same decisions and the same state.
#include <map>

#include <gtest/gtest.h>

#include "rendezvous/base/random.h"
#include "tests/unit/rendezvous_job.h"

namespace regroup::rendezvous {
namespace {

std::string text_of(const Assign& m) {
    return "assign " + std::to_string(number(m.assignment.round)) + " " +
           std::to_string(m.assignment.group_rank) + "/" +
           std::to_string(m.assignment.group_world_size) + " " + describe(m.assignment.reason) +
           " " + std::to_string(m.assignment.restart_count);
}
std::string text_of(const Stop& m) {
    return "stop " + std::to_string(number(m.round)) + " " + describe(m.reason);
}
std::string text_of(const Prepare& m) {
    return std::string("prepare ") + (m.leave ? "leave " : "") + describe(m.reason);
}
std::string text_of(const SaveStacks& m) {
    return "stacks " + std::to_string(m.alarm) + " " + describe(m.reason);
}
std::string text_of(const EndWorker& m) {
    return "end " + std::to_string(m.rank) + " " + describe(m.reason);
}
std::string text_of(const Alive& m) {
    return "alive " + std::to_string(number(m.round));
}
std::string text_of(const Waiting& m) {
    return std::string("waiting ") + (m.standby ? "standby " : "") +
           (m.prestart ? "prestart " : "") + describe(m.detail);
}
std::string text_of(const Recovered& m) {
    return "recovered " + describe(m.incident);
}
std::string text_of(const Closed& m) {
    return "closed " + describe(m.verdict.reason) + " lost " +
           std::to_string(m.verdict.goodput.lost.count());
}
template <class Message>
std::string text_of(const Message& /*message*/) {
    return "other";
}

std::string text_of(const Effects& effects) {
    std::string text;
    for (const Send& send : effects) {
        text += send.node + ": " + std::to_string(send.message.index()) + " " +
                std::visit([](const auto& message) { return text_of(message); }, send.message) +
                "\n";
    }
    return text;
}

/// The effects without the messages to waiting nodes, which decide nothing.
std::string decisions_of(Effects effects) {
    std::erase_if(effects,
                  [](const Send& send) { return std::holds_alternative<Waiting>(send.message); });
    return text_of(effects);
}

std::string state_of(const RendezvousCore& core, Instant now) {
    const JobStatus status = core.status(now);
    std::string text = describe(status.situation) + " " + std::to_string(status.step) + " " +
                       std::to_string(status.restarts) + " " +
                       std::to_string(status.goodput.lost.count()) + " due " +
                       std::to_string(core.next_deadline().time_since_epoch().count()) + "\n";
    for (const JobStatus::Node& node : status.nodes) {
        text += node.id + " " + std::string(to_string(node.place)) + " " + describe_detail(node) +
                " " + std::to_string(node.step) + " " + std::to_string(node.silent.count()) + "\n";
    }
    for (const JobStatus::Budget& budget : status.budgets) {
        text += std::string(to_string(budget.kind)) + " " + std::to_string(budget.used) + "\n";
    }
    return text;
}

JobPolicy random_policy(Random& random) {
    JobPolicy policy;
    policy.nodes_min = 1 + static_cast<std::uint32_t>(random.below(3));
    policy.nodes_max = policy.nodes_min + static_cast<std::uint32_t>(random.below(3));
    policy.restarts_max = static_cast<std::uint32_t>(random.below(30));
    policy.last_call = milliseconds(random.below(3) * 700);
    policy.shutdown_timeout = seconds(2);
    policy.grow_after = milliseconds(random.below(4000));
    policy.standbys_max = static_cast<std::uint32_t>(random.below(3));
    policy.prepare_timeout = seconds(1 + random.below(10));
    policy.budgets.refill_steps = random.below(3) * 20;
    policy.budgets.no_progress_max = static_cast<std::uint32_t>(random.below(6));
    policy.budgets.node_failures_window = seconds(20);
    return policy;
}

/// The same history twice: complete, and as a journal has it.
class TwoCores {
   public:
    explicit TwoCores(const JobPolicy& policy) : full_(policy), lean_(policy) {}

    void step(Instant now, const Event& event) {
        if (full_.is_routine(event)) {
            const auto& reported = std::get<NodeReported>(event);
            pending_[reported.node] = {now, event};
            ++left_out_;
            const Effects answer = full_.step(now, event);
            ASSERT_EQ(answer.size(), 1U) << text_of(answer);
            ASSERT_EQ(answer[0].node, reported.node);
            ASSERT_TRUE(std::holds_alternative<Alive>(answer[0].message) ||
                        std::holds_alternative<Waiting>(answer[0].message))
                << text_of(answer);
            return;
        }
        ++kept_;
        const std::string effects = text_of(full_.step(now, event));
        catch_up();
        ASSERT_EQ(text_of(lean_.step(now, event)), effects);
        ASSERT_EQ(state_of(lean_, now), state_of(full_, now));
    }

    void advance(Instant now) {
        if (now < full_.next_deadline()) {
            const std::string before = state_of(full_, now);
            ASSERT_EQ(text_of(full_.advance(now)), "");
            ASSERT_EQ(state_of(full_, now), before);
            return;  // A journal does not record it.
        }
        const std::string effects = decisions_of(full_.advance(now));
        catch_up();
        ASSERT_EQ(decisions_of(lean_.advance(now)), effects);
        ASSERT_EQ(state_of(lean_, now), state_of(full_, now));
    }

    [[nodiscard]] const RendezvousCore& full() const { return full_; }
    [[nodiscard]] std::size_t left_out() const { return left_out_; }
    [[nodiscard]] std::size_t kept() const { return kept_; }

   private:
    void catch_up() {
        std::multimap<Instant, Event> in_order;
        for (auto& [node, entry] : pending_) {
            in_order.emplace(entry.first, entry.second);
        }
        pending_.clear();
        for (const auto& [at, event] : in_order) {
            (void)lean_.step(at, event);
        }
    }

    RendezvousCore full_;
    RendezvousCore lean_;
    std::map<NodeId, std::pair<Instant, Event>> pending_;
    std::size_t left_out_ = 0;
    std::size_t kept_ = 0;
};

/// Nodes that usually obey and sometimes act at random.
class History {
   public:
    explicit History(std::uint64_t seed)
        : random_(seed), policy_(random_policy(random_)), cores_(policy_) {}

    void run(int events) {
        for (int i = 0; i < events && !testing::Test::HasFatalFailure(); ++i) {
            now_ += milliseconds(random_.below(random_.below(20) == 0 ? 3500 : 300));
            if (random_.below(4) != 0 || cores_.full().next_deadline() <= now_) {
                cores_.advance(now_);
            }
            cores_.step(now_, next());
        }
    }
    [[nodiscard]] const TwoCores& cores() const { return cores_; }

   private:
    Event next() {
        const NodeId node = "n" + std::to_string(random_.below(6));
        NodeReport& report = reports_[node];
        switch (random_.below(40)) {
            case 0:
                return NodeDisconnected{node};
            case 1:
                reports_.erase(node);
                return NodeLeft{node, "SIGTERM"};
            case 2:
                return NodeResumed{node, {cores_.full().round(), report.step, {}, {}, {}}};
            case 3:
                return random_.below(10) == 0 ? Event(Restarted{})
                                              : Event(NodeReported{node, report});
            case 4:
                return random_.below(10) == 0 ? Event(DrainRequested{node, "ops", "test"})
                                              : Event(NodeReported{node, report});
            case 5:
            case 6:
            case 7:
                change(node, report);
                [[fallthrough]];
            case 8:
            case 9: {
                report.store_port = 2000;
                Offer offer = Job::offer_of(node);
                return NodeJoined{node, policy_, offer, report};
            }
            case 10:
            case 11:
            case 12:
            case 13:
                change(node, report);
                return NodeReported{node, report};
            case 14:
            case 15:
            case 16:
                obey(report);
                return NodeReported{node, report};
            default:
                if (report.state == NodeState::running) {
                    report.step += random_.below(3);
                }
                return NodeReported{node, report};
        }
    }

    /// Acts as a correct agent: runs its assignments, and stops on order.
    void obey(NodeReport& report) {
        const RendezvousCore& core = cores_.full();
        report.failure.reset();
        report.hang.reset();
        report.positions.clear();
        report.alarm = 0;
        report.round = core.round();
        report.state = core.phase() == Phase::training ? NodeState::running : NodeState::stopped;
        report.elastic = random_.below(8) != 0;
    }

    void change(const NodeId& node, NodeReport& report) {
        switch (random_.below(9)) {
            case 0:
                report.failure = random_.below(2) == 0 ? crash_on(node) : error_on(node, 3);
                report.failure->kind = static_cast<FailureKind>(random_.below(5));
                report.state = NodeState::stopped;
                break;
            case 1:
                report.state = static_cast<NodeState>(random_.below(4));
                break;
            case 2:
                report.hang = Hang{0, "stands still", random_.below(2) == 0};
                break;
            case 3:
                report.positions = {{0, report.step, 1, random_.below(2) == 0, ""}};
                report.alarm = 1 + static_cast<std::uint32_t>(random_.below(2));
                break;
            case 4:
                report.draining = random_.below(8) == 0 ? "stopped by SIGTERM" : "";
                break;
            case 5:
                report.step = random_.below(100);
                break;
            default:
                obey(report);
                break;
        }
    }

    Random random_;
    JobPolicy policy_;
    TwoCores cores_;
    std::map<NodeId, NodeReport> reports_;
    Instant now_ = Instant{} + std::chrono::hours(1);
};

TEST(RendezvousRoutine, RoutineEventsLeftOutOfAJournalChangeNothing) {
    std::size_t left_out = 0;
    std::size_t kept = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        History history(seed);
        history.run(400);
        if (HasFatalFailure()) {
            return;
        }
        left_out += history.cores().left_out();
        kept += history.cores().kept();
    }
    EXPECT_GT(left_out, 5000U);  // The comparison needs many routine reports.
    EXPECT_GT(kept, 5000U);
}

TEST(RendezvousRoutine, HeartbeatsOfATrainingRoundAreRoutine) {
    Job job(fixed_policy(2));
    job.join_all({"a", "b"});
    job.run_elastic({"a", "b"}, 5);
    for (const char* node : {"a", "b"}) {
        for (const std::uint64_t step : {5U, 6U, 700U}) {
            const NodeReport report = [&] {
                NodeReport same = job.report_of(node);
                same.step = step;
                return same;
            }();
            EXPECT_TRUE(job.core.is_routine(NodeReported{node, report})) << node << step;
        }
    }
    NodeReport news = job.report_of("a");
    news.hang = Hang{0, "stands still"};
    EXPECT_FALSE(job.core.is_routine(NodeReported{"a", news}));
    EXPECT_FALSE(job.core.is_routine(NodeReported{"stranger", news}));
    NodeReport late = job.report_of("a");
    late.ended_ago = std::chrono::seconds(1);
    EXPECT_FALSE(job.core.is_routine(NodeReported{"a", late})) << "it says when the round ended";
    EXPECT_FALSE(job.core.is_routine(NodeDisconnected{"a"}));
    job.disconnect("a");
    EXPECT_FALSE(job.core.is_routine(NodeReported{"a", job.report_of("a")}));
}

TEST(RendezvousRoutine, HeartbeatsOfNodesWhoseWorkersTakeLongToEndAreRoutine) {
    JobPolicy policy = fixed_policy(2);
    policy.restarts_max = 1;
    Job job(policy);
    job.join_all({"a", "b"});
    job.run({"a", "b"});
    job.fail("a", crash_on("a"));
    ASSERT_EQ(job.core.phase(), Phase::ending);
    NodeReport report = job.report_of("b");
    EXPECT_FALSE(job.core.is_routine(NodeReported{"b", report})) << "it has not heard of it yet";
    report.state = NodeState::stopping;
    job.report("b", NodeState::stopping);
    EXPECT_TRUE(job.core.is_routine(NodeReported{"b", report}));
    report.state = NodeState::stopped;
    EXPECT_FALSE(job.core.is_routine(NodeReported{"b", report}));
}

TEST(RendezvousRoutine, HeartbeatsOfWaitingNodesAreRoutine) {
    Job job(fixed_policy(3));
    job.join_all({"a", "b"});
    EXPECT_TRUE(job.core.is_routine(NodeReported{"a", job.report_of("a")}));
    job.join("c");
    job.run({"b", "c"});
    // It is in the round but does not know it yet.
    EXPECT_FALSE(job.core.is_routine(NodeReported{"a", job.report_of("a")}));
}

}  // namespace
}  // namespace regroup::rendezvous
