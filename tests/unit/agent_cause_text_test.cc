// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "agent/core/worker.h"
#include "agent/text/cause_text.h"
#include "rendezvous/text/describe.h"

namespace regroup::agent {
namespace {

TEST(CauseTextTest, EveryReasonToQuitHasASentence) {
    const Cause by_signal = AskedBySignal{SIGTERM};
    const Cause told = ToldByDaemon{rendezvous::Cause("node a is drained")};
    const Duration limit = std::chrono::seconds(30);
    const std::vector<std::pair<QuitReason, std::string>> cases = {
        {{QuitCause::job_closed}, ""},
        {{QuitCause::refused, ToldByDaemon{rendezvous::Refusal("node b contradicts node a")}},
         "refused by the daemon: node b contradicts node a"},
        {{QuitCause::no_round, {}, limit}, "no round was formed within 30 s (--join-timeout)"},
        {{QuitCause::no_rendezvous, {}, limit},
         "no rendezvous was reached within 30 s (--join-timeout)"},
        {{QuitCause::no_rendezvous, {}, limit, 0, true, true},
         "the workers have succeeded; no rendezvous was reached within 30 s (--join-timeout)"},
        {{QuitCause::no_rendezvous, {}, limit, 0, true, false},
         "the workers of this node have succeeded, but no rendezvous was reached within 30 s "
         "(--join-timeout) to learn of the other nodes'"},
        {{QuitCause::asked, by_signal}, "stopped by SIGTERM"},
        {{QuitCause::asked, by_signal, {}, 0, true},
         "stopped by SIGTERM; the workers have succeeded"},
        {{QuitCause::finished}, "all workers of this node have finished"},
        {{QuitCause::finished, told}, "node a is drained; all workers of this node have finished"},
        {{QuitCause::drained, by_signal}, "drained: stopped by SIGTERM"},
        {{QuitCause::drained, told}, "drained: node a is drained"},
        {{QuitCause::save_timeout, by_signal, limit},
         "stopped by SIGTERM; the workers did not save their state within 30 s "
         "(--shutdown-timeout)"},
        {{QuitCause::save_timeout, told, limit},
         "node a is drained; the workers did not save their state within 30 s "
         "(--prepare-timeout)"},
        {{QuitCause::save_failed, told},
         "node a is drained; a worker failed as it saved its state"},
        {{QuitCause::ended_unsaved, by_signal},
         "stopped by SIGTERM; the round ended before the state was saved"},
        {{QuitCause::workers_unkillable, {}, {}, 1},
         "1 worker did not end even after SIGKILL; it is probably stuck in the kernel"},
        {{QuitCause::workers_unkillable, {}, {}, 2},
         "2 workers did not end even after SIGKILL; they are probably stuck in the kernel"},
    };
    for (const auto& [reason, text] : cases) {
        EXPECT_EQ(text_of(reason), text);
    }
}

TEST(CauseTextTest, EveryCauseHasItsText) {
    WorkerFailure failure;
    failure.rank = 1;
    failure.node = "a";
    failure.signal = SIGSEGV;
    EXPECT_EQ(text_of(Cause{failure}), describe(failure));
    EXPECT_EQ(text_of(Cause{PeersUnreachable{}}), "a worker could not reach its peers");
    EXPECT_EQ(text_of(Cause{BoundaryMissed{}}),
              "this node leaves, and no step boundary was reached in time");
}

// The table in worker.h.
TEST(WorkerTest, NextOrderFollowsFromStateAndTarget) {
    using enum WorkerState;
    const std::vector<std::pair<WorkerState, std::vector<Order>>> rows = {
        // keep, out, save, end
        {gone, {Order::none, Order::none, Order::none, Order::none}},
        {idle, {Order::none, Order::none, Order::kill, Order::kill}},
        {training, {Order::none, Order::suspend, Order::suspend, Order::terminate}},
        {suspending, {Order::none, Order::none, Order::none, Order::terminate}},
        {suspended, {Order::none, Order::none, Order::save, Order::kill}},
        {saving, {Order::none, Order::none, Order::none, Order::kill}},
        {ending, {Order::none, Order::none, Order::none, Order::none}},
    };
    constexpr std::array kWanted{Wanted::keep, Wanted::out, Wanted::save, Wanted::end};
    for (const auto& [state, orders] : rows) {
        Worker worker;
        worker.state = state;
        worker.elastic = true;
        for (std::size_t i = 0; i < kWanted.size(); ++i) {
            EXPECT_EQ(next_order(worker, kWanted[i]), orders[i])
                << static_cast<int>(state) << ' ' << i;
        }
    }
    Worker plain;
    plain.state = training;
    EXPECT_EQ(next_order(plain, Wanted::out), Order::terminate);
    EXPECT_EQ(next_order(plain, Wanted::save), Order::terminate);
}

}  // namespace
}  // namespace regroup::agent
