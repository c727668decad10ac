// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/failures.h"
#include "tests/support/fake_agent.h"
#include "tests/support/program.h"
#include "worker_sdk/src/base/flight_recorder.h"
#include "worker_sdk/src/link/agent_link.h"
#include "worker_sdk/src/link/assigned_context.h"
#include "worker_sdk/src/link/sigterm.h"

namespace regroup::link {
namespace {

using testing::FakeAgent;
using testing::FakeRounds;
using worker_link::Hello;
using worker_link::Suspended;

std::shared_ptr<AgentLink> attach(FakeAgent& agent, const std::string& worker = "w") {
    auto link = AgentLink::attach(agent.socket(), worker);
    EXPECT_TRUE(link) << link.error().detail;
    return *link;
}

AssignWorker place_in(std::uint64_t round, std::uint32_t rank = 0) {
    return {{.round = round,
             .job = "test",
             .rank = rank,
             .world_size = 3,
             .master_addr = "127.0.0.1",
             .master_port = 29500}};
}

Instant soon() {
    return SteadyClock().now() + kPatience;
}

TEST(AgentLink, LinkIntroducesTheWorkerAndSharesThePage) {
    FakeAgent agent;
    const auto link = attach(agent);
    EXPECT_EQ(agent.await<Hello>("w"), (Hello{.worker_id = "w"}));
    link->declare_elastic(true);
    EXPECT_EQ(agent.await<Hello>("w"), (Hello{.worker_id = "w", .elastic = true}));
    link->page().step = 7;
    EXPECT_EQ(agent.page("w").step, 7U);
    EXPECT_NE(agent.page("w").alive, 0U) << "it is held from the beginning";
    link->send(Suspended{.round = 2, .step = 7});
    EXPECT_EQ(agent.await<Suspended>("w"), (Suspended{.round = 2, .step = 7}));
}

TEST(AgentLink, OrderlyEndIsNotReportedAsDeath) {
    FakeAgent agent;
    attach(agent).reset();
    EXPECT_EQ(agent.page("w").exiting, 1U);
    EXPECT_EQ(agent.page("w").alive & 0x40000000U, 0U) << "FUTEX_OWNER_DIED";
}

TEST(AgentLink, ForkedChildSaysNothingInTheNameOfItsParent) {
    FakeAgent agent;
    const auto link = attach(agent);
    link->page().step = 7;
    const pid_t child = ::fork();
    if (child == 0) {
        link->page().step = 9;
        link->page().exiting = 1;
        link->send(Suspended{.round = 1, .step = 9});
        ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(agent.page("w").step, 7U);
    EXPECT_EQ(agent.page("w").exiting, 0U);
    link->send(Suspended{.round = 2, .step = 7});
    EXPECT_EQ(agent.await<Suspended>("w"), (Suspended{.round = 2, .step = 7}));
}

TEST(AgentLink, ProcessWithoutAgentHasNoLink) {
    EXPECT_THAT(AgentLink::attach("@nobody-listens-here", "w"), fails(Errc::disconnected));
}

TEST(AgentLink, AgentAcceptsTheFirstOfTwoProcessesWithOneName) {
    FakeAgent agent;
    const auto first = attach(agent);
    EXPECT_THAT(AgentLink::attach(agent.socket(), "w"), fails(Errc::disconnected));
}

TEST(AgentLink, EndOfARoundInterruptsItsScopeAndNoLaterOne) {
    FakeAgent agent;
    const auto link = attach(agent);
    const auto old_scope = std::make_shared<RoundScope>();
    link->guard(3, old_scope);
    agent.end_round("w", 3, "b is lost");
    EXPECT_TRUE(link->await_end(3, soon()));
    EXPECT_TRUE(old_scope->await_end(kPatience));
    EXPECT_EQ(old_scope->reason(), "round 3 is over: b is lost");
    const auto scope = std::make_shared<RoundScope>();
    link->guard(4, scope);
    agent.end_round("w", 3, "again");
    agent.send("w", place_in(5));
    EXPECT_TRUE(std::holds_alternative<AssignWorker>(link->await_place(4)));
    EXPECT_FALSE(scope->reason());
    EXPECT_FALSE(scope->await_end(std::chrono::nanoseconds::zero()));
    link->guard(3, old_scope);
    const auto late = std::make_shared<RoundScope>();
    link->guard(2, late);
    EXPECT_TRUE(late->reason()) << "of a round that was over before";
}

TEST(AgentLink, LeavingWorkerMayGetAnotherPlaceOnceItIsSuspended) {
    FakeAgent agent;
    const auto link = attach(agent);
    agent.pause("w", 1, true);
    ASSERT_TRUE(link->await_pause(soon()));
    EXPECT_TRUE(link->pause_wanted(1) && link->leaving());
    agent.send("w", place_in(2, 1));
    const auto place = link->await_place(1);
    ASSERT_TRUE(std::holds_alternative<AssignWorker>(place));
    EXPECT_EQ(std::get<AssignWorker>(place).place.round, 2U);
}

TEST(AgentLink, NewestPlaceReplacesOlderOnes) {
    FakeAgent agent;
    const auto link = attach(agent);
    agent.send("w", place_in(4, 2));
    agent.send("w", place_in(6, 1));
    const auto place = link->await_place(5);
    ASSERT_TRUE(std::holds_alternative<AssignWorker>(place));
    EXPECT_EQ(std::get<AssignWorker>(place).place.rank, 1U);
}

TEST(AgentLink, DrainEndsTheWaitForAPlace) {
    FakeAgent agent;
    const auto link = attach(agent);
    agent.let_leave("w", 1);
    EXPECT_TRUE(std::holds_alternative<AgentLink::Leave>(link->await_place(1)));
    EXPECT_TRUE(link->pause_wanted(1) && link->leaving());
    EXPECT_FALSE(link->pause_wanted(2));
    ASSERT_TRUE(link->await_pause(soon()));
    EXPECT_EQ(link->await_pause(soon())->reason, "a drain");
}

TEST(AgentLink, RecordsAreWrittenWhereTheAgentWants) {
    FakeAgent agent;
    const auto link = attach(agent);
    static_cast<void>(flight_recorder().add({.name = "asked", .ranks = {0}}));
    const testing::TemporaryDirectory folder;
    agent.send("w", worker_link::SaveRecords{folder.path() + "/rank3"});
    const auto saved = agent.await<worker_link::RecordsSaved>("w");
    EXPECT_EQ(saved, (worker_link::RecordsSaved{1, ""})) << saved.complaint;
    std::ifstream file(folder.path() + "/rank3.regroup.json");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(text.find("\"asked\""), text.npos) << text;

    agent.send("w", worker_link::SaveRecords{folder.path() + "/missing/rank3"});
    EXPECT_NE(agent.await<worker_link::RecordsSaved>("w").complaint, "");
}

TEST(AgentLink, EndOfTheAgentEndsEveryWait) {
    FakeAgent agent;
    const auto link = attach(agent);
    const auto scope = std::make_shared<RoundScope>();
    link->guard(1, scope);
    agent.hang_up("w");
    EXPECT_TRUE(std::holds_alternative<AgentLink::Gone>(link->await_place(1)));
    EXPECT_TRUE(link->await_end(1, soon()));
    EXPECT_FALSE(link->ended(1));
    link->send(Suspended{});  // Has no effect.
}

// ---- Interruption ends every kind of wait.

/// Interrupts `context` from another thread while `wait` blocks, which must end as fenced.
void expect_interrupted(const Context& context, const std::function<void()>& wait) {
    std::atomic<bool> begun = false;
    std::thread other([&] {
        while (!begun) {
            std::this_thread::yield();
        }
        context.interrupt("enough");
    });
    begun = true;
    const auto error = error_of(wait);
    other.join();
    EXPECT_THAT(error, is_error(Errc::fenced));
}

TEST(Interrupt, InterruptEndsAWaitForTheStore) {
    StoreService service("127.0.0.1", 0, {});
    Context context;
    context.world_size = 2;
    context.agent_store = true;
    context.master_addr = "127.0.0.1";
    context.master_port = service.port();
    expect_interrupted(context, [&] { context.store()->wait({"never"}, kPatience); });
    EXPECT_EQ(error_of([&] { static_cast<void>(context.store()->get("x")); })->code(),
              Errc::fenced);
}

TEST(Interrupt, InterruptEndsTheSearchForAMissingStore) {
    Context context;
    context.world_size = 2;
    context.agent_store = true;
    context.master_addr = "127.0.0.1";
    context.master_port = 1;
    expect_interrupted(context, [&] { static_cast<void>(context.store()); });
}

TEST(Interrupt, InterruptEndsTheFormingOfAGroupWithAMissingPeer) {
    // Rank 1 publishes an address in the store and does not listen there.
    const auto store = make_local_store(kPatience);
    Context context = testing::context_of_rank(0, 2, store);
    const std::string place = "pg/test/0.0/1/addr/";
    std::thread interrupter([&] {
        store->wait({place + "0"}, kPatience);
        const std::string mine = store->get(place + "0");
        store->set(place + "1", mine);  // Its own listener, which lets only rank 1 in.
        context.interrupt("enough");
    });
    const auto error = error_of([&] {
        static_cast<void>(
            ProcessGroup::create("cpu", context, {.timeout = kPatience, .name = "test"}));
    });
    interrupter.join();
    ASSERT_TRUE(error);
    EXPECT_NE(error->code(), Errc::deadline_exceeded) << error->what();
}

TEST(Interrupt, InterruptEndsAnOperationThatAPeerNeverJoins) {
    for (const char* const transport : {"tcp", "shm"}) {
        const auto store = make_local_store(kPatience);
        std::vector<Context> contexts;
        for (std::uint32_t rank = 0; rank < 2; ++rank) {
            contexts.push_back(testing::context_of_rank(rank, 2, store));
            contexts.back().cpu_transport = transport;
        }
        const ProcessGroupOptions options{.timeout = kPatience, .name = "test"};
        std::unique_ptr<ProcessGroup> idle;
        std::thread other([&] { idle = ProcessGroup::create("cpu", contexts[1], options); });
        const auto group = ProcessGroup::create("cpu", contexts[0], options);
        other.join();
        const Work work = group->barrier();
        expect_interrupted(contexts[0], [&] { work.wait(); });
        // A reply that was under way may still answer the first call.
        const bool seen = error_of(idle->barrier()) || error_of(idle->barrier());
        EXPECT_TRUE(seen) << "the peer sees it gone";
    }
}

TEST(Interrupt, LaterCallsFailAtOnceWithTheFirstReason) {
    const auto scope = std::make_shared<RoundScope>();
    int heard = 0;
    {
        const RoundScope::Registration early(scope, [&](const std::string&) { ++heard; });
        const RoundScope::Registration gone(scope, [&](const std::string&) { heard += 100; });
    }
    const RoundScope::Registration early(scope, [&](const std::string&) { ++heard; });
    scope->interrupt("first");
    scope->interrupt("second");
    const RoundScope::Registration late(
        scope, [&](const std::string& reason) { heard += reason == "first"; });
    EXPECT_EQ(heard, 2);
}

TEST(SigtermPutOff, ProcessThatHasLeftEndsBySigtermOfItsAgentOnly) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const pid_t agent = ::getpid();
    const pid_t worker = ::fork();
    if (worker == 0) {
        SigtermPutOff(agent, -1).ignore_from_now_on();
        ::raise(SIGTERM);
        [[maybe_unused]] const ssize_t written = ::write(pipe[1], "!", 1);
        ::pause();
        ::_exit(0);
    }
    ::close(pipe[1]);
    char said = 0;
    EXPECT_EQ(::read(pipe[0], &said, 1), 1) << "a signal of another process has ended it";
    ::close(pipe[0]);
    ::kill(worker, SIGTERM);
    int status = 0;
    EXPECT_EQ(::waitpid(worker, &status, 0), worker);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
}

}  // namespace
}  // namespace regroup::link
