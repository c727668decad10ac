// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "agent/core/agent_core.h"
#include "rendezvous/base/exit_code.h"

namespace regroup::agent {

inline constexpr std::uint16_t kPort = 4000;

inline AgentConfig config_of_two_workers() {
    AgentConfig config;
    config.job = "test";
    config.node = "a#1";
    config.offer.name = "a";
    config.offer.workers = 2;
    config.policy.heartbeat_timeout = std::chrono::seconds(3);
    config.policy.shutdown_timeout = std::chrono::seconds(10);
    config.join_timeout = std::chrono::minutes(10);
    return config;
}

inline WorkerFailure crash(std::uint32_t local_rank, int signal = SIGSEGV) {
    WorkerFailure failure;
    failure.local_rank = local_rank;
    failure.node = "a";
    failure.signal = signal;
    return failure;
}

inline WorkerFailure error(std::uint32_t local_rank) {
    WorkerFailure failure;
    failure.local_rank = local_rank;
    failure.node = "a";
    failure.exit_code = 1;
    return failure;
}

/// A worker that exits with code 0 in the middle of its training.
inline WorkerFailure early_end(std::uint32_t local_rank) {
    WorkerFailure failure = error(local_rank);
    failure.unfinished = true;
    return failure;
}

// The last one, of at least one.
template <class T>
T last(const std::vector<T>& all) {
    EXPECT_FALSE(all.empty());
    return all.empty() ? T{} : all.back();
}
// The only one.
template <class T>
T one(const std::vector<T>& all) {
    EXPECT_EQ(all.size(), 1U);
    return last(all);
}

// An agent with two workers, connected, in a round if the test begins with `in_round`.
class AgentCoreTest : public ::testing::Test {
   protected:
    AgentCoreTest() { restart(); }

    // Another agent, connected.
    void restart(AgentConfig config = config_of_two_workers()) {
        core = AgentCore(std::move(config), now);
        feed(StoreOffered{kPort});
        feed(LinkUp{});
    }
    void reconnect() {
        feed(LinkDown{});
        feed(LinkUp{});
    }

    void feed(const AgentEvent& event) { keep(core.step(now, event)); }
    void gets_signal(int number) { feed(QuitRequested{number, "stopped by a signal"}); }
    void hear(const rendezvous::FromDaemon& message) { feed(Received{message}); }
    void assign(std::uint64_t round, std::uint32_t group_rank = 1) {
        Assignment assignment;
        assignment.round = RoundId{round};
        assignment.group_rank = group_rank;
        assignment.master_port = group_rank == 0 ? core.report().store_port : 9000;
        hear(rendezvous::Assign{assignment});
    }
    void in_round(std::uint64_t round) {
        assign(round);
        ASSERT_TRUE(launched(round));
        effects.clear();
    }
    void exits(std::uint64_t round, std::uint32_t local_rank,
               std::optional<WorkerFailure> failure = std::nullopt) {
        feed(WorkerExited{RoundId{round}, local_rank, std::move(failure)});
    }
    void exits_unfinished(std::uint64_t round, std::uint32_t local_rank) {
        feed(WorkerExited{RoundId{round}, local_rank, std::nullopt, false, early_end(local_rank)});
    }
    void both_succeed(std::uint64_t round) {
        exits(round, 0);
        exits(round, 1);
    }
    // Both workers end by SIGTERM.
    void both_obey(std::uint64_t round) {
        exits(round, 0, crash(0, SIGTERM));
        exits(round, 1, crash(1, SIGTERM));
    }
    // Time passes, and the daemon answers nothing.
    void pass(Duration span) {
        const Instant end = now + span;
        while (core.next_deadline() <= end) {
            now = std::max(now, core.next_deadline());
            keep(core.advance(now));
        }
        now = end;
    }
    // Time passes, and the daemon answers every heartbeat.
    void pass_answered(Duration span) {
        for (const Instant end = now + span; now < end;) {
            pass(std::min<Duration>(std::chrono::seconds(1), end - now));
            hear(rendezvous::Alive{});
        }
    }
    void keep(AgentEffects more) {
        for (AgentEffect& effect : more) {
            effects.push_back(std::move(effect));
        }
    }

    template <class Effect>
    [[nodiscard]] std::vector<Effect> all() const {
        std::vector<Effect> result;
        for (const AgentEffect& effect : effects) {
            if (const auto* one = std::get_if<Effect>(&effect)) {
                result.push_back(*one);
            }
        }
        return result;
    }
    template <class Message>
    [[nodiscard]] std::vector<Message> sent() const {
        std::vector<Message> result;
        for (const SendToDaemon& send : all<SendToDaemon>()) {
            if (const auto* one = std::get_if<Message>(&send.message)) {
                result.push_back(*one);
            }
        }
        return result;
    }
    [[nodiscard]] bool launched(std::uint64_t round) const {
        const auto launches = all<LaunchWorkers>();
        return !launches.empty() && launches.back().assignment.round == RoundId{round};
    }
    [[nodiscard]] std::optional<Quit> quit() const {
        const auto quits = all<Quit>();
        return quits.empty() ? std::nullopt : std::optional(quits.back());
    }
    void expect_exit(int exit_code) const {
        ASSERT_TRUE(quit().has_value());
        EXPECT_EQ(quit()->exit_code, exit_code);
    }
    void expect_quit(int exit_code, QuitCause cause) const {
        ASSERT_NO_FATAL_FAILURE(expect_exit(exit_code));
        EXPECT_EQ(quit()->reason.cause, cause);
    }

    Instant now = Instant{} + std::chrono::hours(1);
    AgentCore core{config_of_two_workers(), now};
    AgentEffects effects;
};

}  // namespace regroup::agent
