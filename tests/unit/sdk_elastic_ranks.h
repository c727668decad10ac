// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads that train in an ElasticLoop, with an agent in the test.
#pragma once

#include <regroup/elastic_loop.h>
#include <regroup/error.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/fake_agent.h"
#include "tests/support/patience.h"
#include "worker_sdk/src/elastic/loop.h"
#include "worker_sdk/src/link/assigned_context.h"

namespace regroup::testing {

using worker_link::AssignWorker;
using worker_link::Resumed;
using worker_link::Suspended;

inline constexpr std::uint64_t kSteps = 12;
inline constexpr std::uint64_t kBatch = 6;

/// Ends `run` like a death, without a report to the others. No std::exception.
struct Died {};

/// The state of a rank: the number of samples, and the sum of their positions.
struct Replica {
    std::vector<std::int64_t> totals{0, 0};
    std::string history;  // "t" for each step, registered as a value
};

struct Rank;
using Hook = std::function<void(Rank&, ElasticStep&)>;

/// Optional actions of a rank.
struct Script {
    Hook before_reduction = {};
    Hook before_commit = {};
    Hook in_commit = {};  // After the vote.
    Hook after_commit = {};
    std::function<void(Rank&, const ElasticRound&)> on_round = {};
    std::function<void(Rank&)> on_save = {};
    std::function<void(Rank&, const ElasticDeparture&)> on_departure = {};
    std::function<void(Rank&, const ElasticLeave&)> on_leave = {};
    std::function<void(Rank&)> after_run = {};
    std::function<void(Rank&, ElasticLoop&)> before_run = {};
    std::function<void(Rank&)> at_end = {};  // However `run` ends, while its groups are there.
    ElasticOptions options = {};
    std::uint64_t steps = kSteps;
    std::string cpu_transport = "auto";
    std::optional<std::pair<std::uint64_t, std::uint64_t>> resume_at = {};
};

/// One worker: a thread that trains.
struct Rank {
    std::string name;
    Script script;
    Replica replica;
    std::uint64_t round = 0;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> rounds;  // number, step before it
    std::optional<Ending> ending;
    std::optional<Error> error;
    bool died = false;

    void train(ElasticLoop& loop) {
        loop.register_state("totals", TensorView(std::span<std::int64_t>(replica.totals)));
        loop.register_state(
            "history",
            [this] {
                if (script.on_save) {
                    script.on_save(*this);
                }
                return replica.history;
            },
            [this](std::string_view bytes) { replica.history = std::string(bytes); });
        if (script.resume_at) {
            loop.resume_at(script.resume_at->first, script.resume_at->second);
        }
        if (script.before_run) {
            script.before_run(*this, loop);
        }
        ElasticCallbacks callbacks;
        callbacks.on_round = [this](const ElasticRound& now) {
            round = now.context->round;
            rounds.emplace_back(round, now.step);
            if (script.on_round) {
                script.on_round(*this, now);
            }
        };
        callbacks.on_step = [this](ElasticStep& step) { carry_out(step); };
        if (script.on_departure) {
            callbacks.on_departure = [this](const ElasticDeparture& departure) {
                script.on_departure(*this, departure);
            };
        }
        callbacks.on_leave = [this](const ElasticLeave& leave) {
            if (script.on_leave) {
                script.on_leave(*this, leave);
            }
        };
        ending = loop.run(callbacks);
        if (script.after_run) {
            script.after_run(*this);
        }
    }

    void carry_out(ElasticStep& step) {
        if (step.number() == script.steps) {
            return step.finish();
        }
        const SampleRange range = step.take(kBatch);
        std::vector<std::int64_t> sum{0, 0};
        for (std::uint64_t at = range.first + step.context().rank; at < range.last;
             at += step.context().world_size) {
            sum[0] += 1;
            sum[1] += static_cast<std::int64_t>(at);
        }
        call(script.before_reduction, step);
        step.group().all_reduce(TensorView(std::span<std::int64_t>(sum)), ReduceOp::sum).wait();
        call(script.before_commit, step);
        step.commit([&] {
            call(script.in_commit, step);
            replica.totals[0] += sum[0];
            replica.totals[1] += sum[1];
            replica.history += "t";
        });
        call(script.after_commit, step);
    }
    void call(const Hook& hook, ElasticStep& step) {
        if (hook) {
            hook(*this, step);
        }
    }
};

class ElasticLoopTest : public ::testing::Test {
   public:
    ~ElasticLoopTest() override { join(); }

   protected:
    using Names = std::vector<std::string>;

    void start(const std::string& name, const AssignWorker& place, Script script = {}) {
        Rank& rank = ranks_[name];
        rank.name = name;
        rank.script = std::move(script);
        threads_[name] = std::thread([this, &rank, place] { live(rank, place); });
    }
    /// Begins a round of these ranks, in this order; starts those that are new.
    void assign(const Names& names, const Script& script = {}) {
        const auto places = rounds_.begin(names.size());
        for (std::size_t i = 0; i < names.size(); ++i) {
            if (ranks_.contains(names[i])) {
                agent_.send(names[i], places[i]);
            } else {
                start(names[i], places[i], script);
            }
        }
    }
    Rank& finished(const std::string& name) {
        if (threads_[name].joinable()) {
            threads_[name].join();
        }
        return ranks_[name];
    }
    /// `name` has died, and the others suspend.
    void lose(const std::string& name, const Names& others) {
        EXPECT_TRUE(finished(name).died) << name;
        rounds_.end(others);
    }
    void join() {
        for (auto& [name, thread] : threads_) {
            if (thread.joinable()) {
                thread.join();
            }
        }
    }
    void expect_complete(const Names& names) {
        for (const std::string& name : names) {
            const Rank& rank = finished(name);
            EXPECT_EQ(rank.ending, Ending::finished)
                << name << ": " << (rank.error ? rank.error->what() : "");
            constexpr auto kAll = static_cast<std::int64_t>(kSteps * kBatch);
            EXPECT_EQ(rank.replica.totals, (std::vector<std::int64_t>{kAll, kAll * (kAll - 1) / 2}))
                << name;
            EXPECT_EQ(rank.replica.history, std::string(kSteps, 't')) << name;
        }
    }
    /// A script in which `name` dies at `where` of step `step` in round 1. All others have
    /// committed the step before by then.
    static Script dies(const std::string& name, Hook Script::* where, std::uint64_t step) {
        Script script;
        script.*where = [name, where, step](Rank& rank, ElasticStep& now) {
            if (now.number() != step || rank.round != 1) {
                return;
            }
            if (where == &Script::before_reduction) {
                now.group().barrier().wait();  // All have passed that vote.
            }
            if (rank.name == name) {
                throw Died{};
            }
        };
        return script;
    }

    FakeAgent agent_;
    FakeRounds rounds_{agent_};
    std::map<std::string, Rank> ranks_;
    std::map<std::string, std::thread> threads_;

   private:
    void live(Rank& rank, const AssignWorker& place) {
        auto link = link::AgentLink::attach(agent_.socket(), rank.name);
        if (!link) {
            ADD_FAILURE() << link.error().detail;
            return;
        }
        Context base;
        base.agent_store = true;
        base.store_timeout = kPatience;
        base.cpu_transport = rank.script.cpu_transport;
        rank.script.options.timeout = kPatience;
        const auto loop =
            elastic::Loop::make(rank.script.options, link::context_of(base, place), *link);
        try {
            rank.train(*loop);
        } catch (const Died&) {
            rank.died = true;
        } catch (const Error& error) {
            rank.error = error;
        } catch (const std::exception& error) {
            rank.error = Error(Errc::system, error.what());
        }
        if (rank.script.at_end) {
            rank.script.at_end(rank);
        }
    }
};

}  // namespace regroup::testing
