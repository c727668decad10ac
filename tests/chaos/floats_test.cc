// SPDX-License-Identifier: Apache-2.0
//
// Checks that the floats of the chaos job depend on the order of summation, and that check_floats()
// detects a difference. Groups of threads stand for the job.
#include "tests/chaos/floats.h"

#include <regroup/distributed_sampler.h>

#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "tests/chaos/model.h"
#include "tests/support/matchers.h"

namespace regroup::chaos {
namespace {

constexpr std::size_t kCount = 4500;
constexpr std::uint32_t kWorkers = 2;

/// One round of the job under test; `swapped`: its first two ranks swap their samples.
struct RoundPlan {
    std::uint64_t round = 1;
    std::uint32_t world_size = 4;
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    std::uint32_t workers = kWorkers;  ///< Ranks on each node.
    bool swapped = false;
};

/// Runs a round from `model`, and leaves in it what rank 0 has at the end.
void run(const RoundPlan& plan, FloatModel& model, std::vector<ProcessLog>& logs) {
    const auto store = make_local_store(std::chrono::minutes(1));
    const FloatModel begin = model;
    std::vector<ProcessLog> written(plan.world_size);
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < plan.world_size; ++rank) {
        threads.emplace_back([&, rank] {
            Context context = place(rank, plan.world_size, plan.workers);
            context.use_store(store);
            const auto group = ProcessGroup::create("cpu", context);
            const std::uint32_t dealt = plan.swapped && rank < 2 ? 1 - rank : rank;
            const DistributedSampler sampler(
                {.dataset_count = kDataset, .rank = dealt, .world_size = plan.world_size});
            FloatModel own = begin;
            for (std::uint64_t step = plan.first; step <= plan.last; ++step) {
                own.compute(step, rank, sampler.shard({step * kBatch, (step + 1) * kBatch}),
                            *group);
                own.apply(step);
                written[rank].records.push_back({.kind = RecordKind::step,
                                                 .rank = rank,
                                                 .world_size = plan.world_size,
                                                 .round = plan.round,
                                                 .step = step,
                                                 .floats = own.digest()});
            }
            if (rank == 0) {
                model = own;
            }
        });
    }
    threads.clear();
    logs.insert(logs.end(), written.begin(), written.end());
}

History history_of(const std::vector<RoundPlan>& plans) {
    History history;
    for (const RoundPlan& plan : plans) {
        history.rounds[plan.round] = {
            .world_size = plan.world_size, .first_step = plan.first, .last_step = plan.last};
    }
    return history;
}

/// Checks the bits of a job with these rounds, each of which starts from the end of the last.
std::vector<std::string> wrongs_of(const std::vector<RoundPlan>& plans) {
    FloatModel model(kCount);
    std::vector<ProcessLog> logs;
    for (const RoundPlan& plan : plans) {
        run(plan, model, logs);
    }
    return check_floats(logs, history_of(plans), kCount, kWorkers);
}

TEST(Floats, RoundsOfAnySizeHaveTheBitsOfAnUndisturbedRun) {
    EXPECT_THAT(wrongs_of({{.round = 1, .world_size = 4, .first = 0, .last = 9},
                           {.round = 3, .world_size = 3, .first = 10, .last = 17},
                           {.round = 4, .world_size = 2, .first = 18, .last = 18},
                           {.round = 9, .world_size = 4, .first = 19, .last = 25}}),
                IsEmpty());
}

TEST(Floats, StepRepeatedWithAnotherWorldSizeReplacesTheFirst) {
    FloatModel model(kCount);
    std::vector<ProcessLog> logs;
    const RoundPlan first{.round = 1, .world_size = 4, .first = 0, .last = 7};
    run(first, model, logs);
    // Twice, only ranks that are lost apply step 8.
    FloatModel forgotten = model;
    RoundPlan lost{.round = 1, .world_size = 4, .first = 8, .last = 8};
    run(lost, forgotten, logs);
    lost = {.round = 2, .world_size = 6, .first = 8, .last = 8};
    forgotten = model;
    run(lost, forgotten, logs);
    const RoundPlan last{.round = 3, .world_size = 3, .first = 8, .last = 12};
    run(last, model, logs);
    const History history =
        history_of({{.round = 1, .world_size = 4, .first = 0, .last = 8}, lost, last});
    EXPECT_THAT(check_floats(logs, history, kCount, kWorkers), IsEmpty());
}

TEST(Floats, DifferentSummationOrderIsDetectedInShortAndLongTensors) {
    // The ranks of a node are added first.
    for (const std::uint64_t step : {0U, 1U}) {
        const RoundPlan plan{.world_size = 4, .first = step, .last = step, .workers = 4};
        FloatModel model(kCount);
        std::vector<ProcessLog> logs;
        run({.world_size = 4, .first = 0, .last = 0}, model, logs);
        if (step == 0) {
            logs.clear();
            model = FloatModel(kCount);
        }
        run(plan, model, logs);
        EXPECT_THAT(check_floats(logs, history_of({{.world_size = 4, .first = 0, .last = step}}),
                                 kCount, kWorkers),
                    Contains(HasSubstr("step " + std::to_string(step) + " by rank")));
    }
}

TEST(Floats, SwappedSamplesOfTwoRanksAreDetected) {
    const auto wrongs =
        wrongs_of({{.round = 1, .world_size = 3, .first = 0, .last = 3},
                   {.round = 2, .world_size = 3, .first = 4, .last = 4, .swapped = true},
                   {.round = 3, .world_size = 3, .first = 5, .last = 5}});
    EXPECT_THAT(wrongs, SizeIs(6));
    EXPECT_THAT(wrongs, Not(Contains(HasSubstr("round 1"))));
}

TEST(Floats, OneDifferentBitAtTheEndIsDetected) {
    FloatModel model(kCount);
    std::vector<ProcessLog> logs;
    const RoundPlan plan{.world_size = 2, .first = 0, .last = 4};
    run(plan, model, logs);
    logs.front().records.push_back(
        {.kind = RecordKind::finished, .world_size = 2, .step = 5, .floats = model.digest()});
    EXPECT_THAT(check_floats(logs, history_of({plan}), kCount, kWorkers), IsEmpty());
    logs.front().records.back().floats ^= 1;
    EXPECT_THAT(check_floats(logs, history_of({plan}), kCount, kWorkers),
                Contains(HasSubstr("after step 5 by rank 0")));
}

}  // namespace
}  // namespace regroup::chaos
