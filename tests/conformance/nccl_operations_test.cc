// SPDX-License-Identifier: Apache-2.0
// Streams, batches, messages, captures, records and arguments of the "nccl" back end.
#include <regroup/flight_recorder.h>

#include <atomic>
#include <future>

#include "tests/conformance/nccl_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/nccl/bootstrap.h"
#include "worker_sdk/src/nccl/lane.h"

namespace regroup {
namespace {

using testing::HostStream;
using testing::NcclWorld;
using testing::run_ranks_on_gpus;
using testing::view;

Stream handle_of(HostStream& stream) {
    return {static_cast<StandInStream*>(&stream)};
}

TEST(NcclMessages, MessagesOfABatchProgressTogether) {
    run_ranks_on_gpus(3, [](ProcessGroup& group) {
        const std::uint32_t next = (group.rank() + 1) % 3;
        const std::uint32_t previous = (group.rank() + 2) % 3;
        for (int i = 0; i < 20; ++i) {
            std::vector<std::int32_t> mine(1000, static_cast<std::int32_t>(group.rank()) + i);
            std::vector<std::int32_t> theirs(1000);
            OperationBatch batch(group);
            const Work sent = group.send(view(mine, group), next);
            const Work received = group.recv(view(theirs, group), previous);
            EXPECT_FALSE(received.done());
            batch.start();
            received.wait();
            sent.wait();
            EXPECT_EQ(theirs.back(), static_cast<std::int32_t>(previous) + i);
        }
    });
}

TEST(NcclMessages, MessagesWithoutABatchArrive) {
    run_ranks_on_gpus(2, [](ProcessGroup& group) {
        std::vector<double> ball(5);
        for (int i = 0; i < 50; ++i) {
            if (group.rank() == 0) {
                group.send(view(ball, group), 1).wait();
                group.recv(view(ball, group), 1, 7).wait();
            } else {
                group.recv(view(ball, group), 0).wait();
                ball[3] += 1;
                group.send(view(ball, group), 0, 7).wait();
            }
        }
        EXPECT_EQ(ball[3], 50);
    });
}

TEST(NcclBatches, BatchOfCollectivesIsOneCallOfNccl) {
    run_ranks_on_gpus(2, [](ProcessGroup& group) {
        std::vector<std::vector<float>> buffers(10, std::vector<float>(4, 1));
        std::vector<Work> works;
        OperationBatch batch(group);
        for (auto& buffer : buffers) {
            works.push_back(
                group.all_reduce(view(buffer, group), Reduction::premultiplied_sum(0.5)));
        }
        batch.start();
        for (const Work& work : works) {
            work.wait();
        }
        EXPECT_EQ(buffers.back(), std::vector<float>(4, 1));
    });
}

TEST(NcclBatches, BatchThatIsNeverStartedEndsTheGroupAndItsWorks) {
    NcclWorld world(1);
    run_ranks(world, [](ProcessGroup& group) {
        Work work;
        std::vector<float> buffer(4);
        {
            OperationBatch batch(group);
            work = group.all_reduce(view(buffer, group), ReduceOp::sum);
        }
        EXPECT_THAT(error_of(work), is_error(Errc::fenced, "never started"));
        EXPECT_TRUE(error_of(group.barrier()));
    });
    EXPECT_TRUE(world.stand_in.events("all_reduce").empty());
}

TEST(NcclStreams, StreamOfTheCallerOrdersOperationsWithItsKernels) {
    run_ranks_on_gpus(2, [](ProcessGroup& group) {
        HostStream stream;
        group.use_stream(handle_of(stream));
        std::vector<std::int64_t> values(100);
        for (int i = 0; i < 10; ++i) {
            stream.put([&] { values.assign(100, 1); });
            (void)group.all_reduce(view(values, group), ReduceOp::sum);
            stream.put([&] { values[0] += 10; });
            stream.synchronize();
            ASSERT_EQ(values[0], 12);
            ASSERT_EQ(values[99], 2);
        }
        group.barrier().wait();
    });
}

TEST(NcclStreams, StreamOfOneOperationOrdersItWithTheKernelsThere) {
    run_ranks_on_gpus(2, [](ProcessGroup& group) {
        HostStream stream;
        std::vector<std::int64_t> values(100);
        for (int i = 0; i < 10; ++i) {
            stream.put([&] { values.assign(100, 1); });
            (void)group.all_reduce(view(values, group), ReduceOp::sum,
                                   {.stream = handle_of(stream)});
            stream.put([&] { values[0] += 10; });
            stream.synchronize();
            ASSERT_EQ(values[0], 12);
            EXPECT_FALSE(group.current_stream());
        }
        OperationBatch batch(group);
        (void)group.all_reduce(view(values, group), ReduceOp::sum);
        EXPECT_THAT(error_of([&] {
                        (void)group.all_reduce(view(values, group), ReduceOp::sum,
                                               {.stream = handle_of(stream)});
                    }),
                    is_error(Errc::invalid_argument));
        batch.start();
        group.barrier().wait();
    });
}

TEST(NcclWaits, WatchdogLooksOftenOnlyWhileAThreadWaits) {
    NcclWorld world(1);
    world.stand_in.set_faults("op_never_at=1");
    nccl::NcclApi& api = world.stand_in.api();
    const nccl::Backend backend{api, world.runtime, world.freeing_max, world.blocking};
    const auto reaper = std::make_shared<nccl::Reaper>(backend, 0);
    const auto lane = nccl::Lane::make(backend,
                                       {.name = "test",
                                        .members = {0},
                                        .device = world.device_of(0),
                                        .timeout = testing::kPatience},
                                       std::make_shared<net::Wakeup>(), reaper);
    ncclUniqueId id = nccl::make_unique_id(api);
    const nccl::CommReport connected = lane->complete(
        [&](nccl::Communicator& communicator) { return communicator.begin({&id, 1}, 1, 0); },
        after(SteadyClock().now(), testing::kPatience));
    ASSERT_EQ(connected.state, nccl::CommState::ready);
    const auto launch = [&](ncclComm_t comm, ncclRedOp_t /*reduction*/, cudaStream_t stream) {
        void* const word = lane->memory().barrier_word();
        return api.all_reduce(word, word, 1, ncclInt32, ncclSum, comm, stream);
    };
    const auto state = lane->in_flight().make_work();
    const Instant now = SteadyClock().now();
    lane->issuer().issue({{.operation = {}, .launch = launch, .work = state}});
    constexpr Duration kSeldom = std::chrono::milliseconds(1);
    EXPECT_EQ(lane->in_flight().patience(now), kSeldom);
    {
        const std::jthread waiter([&] { EXPECT_TRUE(error_of(Work(state))); });
        while (lane->in_flight().patience(now) == kSeldom) {
            std::this_thread::yield();
        }
        lane->in_flight().end({Errc::fenced, "over", {}});
    }
    nccl::Lane::abort_all(api, {&lane, 1});
    reaper->await_all();
}

TEST(NcclOptions, TimeoutOfOneOperationHoldsForItAlone) {
    NcclWorld world(2);
    std::promise<void> over;
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier({.timeout = std::chrono::hours(1)}).wait();
        if (group.rank() == 1) {
            over.get_future().wait();
            return;
        }
        const auto error = error_of(group.barrier({.timeout = std::chrono::milliseconds(200)}));
        over.set_value();
        EXPECT_THAT(error, is_error(Errc::deadline_exceeded));
    });
}

TEST(NcclRecords, OperationsAreInTheFlightRecord) {
    NcclWorld world(2);
    world.options.name = "recorded on GPUs";
    run_ranks(world, [](ProcessGroup& group) {
        std::vector<std::int64_t> values(3);
        group.all_reduce(view(values, group), ReduceOp::sum).wait();
    });
    std::size_t completed = 0;
    std::istringstream lines(flight_record());
    for (std::string line; std::getline(lines, line);) {
        completed += line.find("\"recorded on GPUs\"") != std::string::npos &&
                     line.find("\"nccl:all_reduce\"") != std::string::npos &&
                     line.find("\"completed\"") != std::string::npos;
    }
    EXPECT_EQ(completed, 2U);
}

TEST(NcclRecords, OperationsAreCountedInTheirRound) {
    NcclWorld world(1);
    const Context context = testing::context_of_rank(0, 1, world.store);
    const auto& round = ContextScope::of(context);
    std::atomic<std::uint64_t> issued = 0;
    std::atomic<std::uint64_t> done = 0;
    round->count_into(issued, done);
    const auto group = world.join(context);
    std::vector<std::int64_t> values(3);
    group->all_reduce(view(values, *group), ReduceOp::sum).wait();
    EXPECT_EQ(issued, 1U);
    EXPECT_EQ(done, 1U);
    EXPECT_STREQ(round->last_operation(), "all_reduce");
    const auto child = group->new_group({0}, "child");
    const std::uint64_t before = issued;
    world.stand_in.set_faults("op_never_at=1");
    const Work work = child->barrier();
    EXPECT_EQ(issued, before + 1);
    EXPECT_EQ(done, before);
    child->abort("over");
    EXPECT_TRUE(error_of(work));
}

TEST(NcclOptions, OperatorsThatNcclLacksAreRefused) {
    run_ranks_on_gpus(2, [](ProcessGroup& group) {
        std::vector<std::int64_t> values(1);
        EXPECT_THAT(
            error_of([&] { (void)group.all_reduce(view(values, group), ReduceOp::bit_or); }),
            is_error(Errc::invalid_argument, "bit_or"));
    });
}

TEST(NcclStreams, StreamOfTheGroupWaitsForTheDefaultStream) {
    NcclWorld world(2);
    run_ranks(world, [&](ProcessGroup& group) {
        std::vector<std::int64_t> values(100);
        world.runtime.default_stream().put([&] { values.assign(100, 1); });
        group.all_reduce(view(values, group), ReduceOp::sum).wait();
        EXPECT_EQ(values, std::vector<std::int64_t>(100, 2));
    });
}

// HostRuntime throws when an event is recorded on a stream that is being captured.
TEST(NcclCaptures, CapturedOperationsAreCompleteAtOnceAndRunInEveryReplay) {
    run_ranks_on_gpus(2, [](ProcessGroup& group) {
        HostStream stream;
        group.use_stream(handle_of(stream));
        std::vector<std::int64_t> values(10, 1);
        group.barrier().wait();
        stream.begin_capture();
        const Work work = group.all_reduce(view(values, group), ReduceOp::sum);
        EXPECT_TRUE(work.done());
        work.wait();
        stream.end_capture();
        EXPECT_EQ(values[0], 1);
        for (int i = 0; i < 5; ++i) {
            stream.replay();
        }
        stream.synchronize();
        EXPECT_EQ(values, std::vector<std::int64_t>(10, 32));
        group.barrier().wait();
    });
}

TEST(NcclCaptures, FailureInAReplayFailsTheNextOperation) {
    NcclWorld world(1);
    world.stand_in.set_faults("async_error_at=3");
    HostStream stream;
    run_ranks(world, [&](ProcessGroup& group) {
        group.use_stream(handle_of(stream));
        std::vector<std::int64_t> values(10, 1);
        stream.begin_capture();
        (void)group.all_reduce(view(values, group), ReduceOp::sum);
        stream.end_capture();
        for (int i = 0; i < 3; ++i) {
            stream.replay();
        }
        stream.synchronize();  // Ends only because the group has been given up meanwhile.
        EXPECT_THAT(error_of(group.barrier()),
                    is_error(Errc::disconnected, "NCCL: remote process"));
    });
}

TEST(NcclArguments, InvalidArgumentsLeaveTheGroupIntact) {
    NcclWorld world(2);
    run_ranks(world, [](ProcessGroup& group) {
        std::vector<float> four(4);
        std::vector<float> eight(8);
        const TensorView good = view(four, group);
        const TensorView on_host(four.data(), 4, DType::float32);
        const TensorView elsewhere(four.data(), 4, DType::float32, {DeviceKind::cuda, 9});
        const TensorView nothing(nullptr, 4, DType::float32, group.device());
        const TensorView crooked(reinterpret_cast<char*>(four.data()) + 1, 1, DType::float32,
                                 group.device());
        const TensorView rows = view(eight, group);
        const std::vector<std::pair<std::function<Work()>, const char*>> calls = {
            {[&] { return group.all_reduce(on_host, ReduceOp::sum); }, "on cpu"},
            {[&] { return group.all_reduce(elsewhere, ReduceOp::sum); }, "cuda:9"},
            {[&] { return group.broadcast(nothing, 0); }, "without data"},
            {[&] { return group.broadcast(crooked, 0); }, "aligned"},
            {[&] { return group.broadcast(good, 2); }, "rank 2 does not exist"},
            {[&] { return group.reduce(good, ReduceOp::sum, 5); }, "rank 5"},
            {[&] { return group.all_gather(good, good); }, "are not one row of"},
            {[&] { return group.reduce_scatter(good, good, ReduceOp::sum); }, "are not one row of"},
            {[&] { return group.all_to_all(rows, good); }, "both must be the same"},
            {[&] { return group.all_to_all(rows, rows); }, "overlap"},
            {[&] { return group.send(good, group.rank()); }, "itself"},
            {[&] { return group.recv(good, 7); }, "rank 7"},
        };
        for (const auto& [call, words] : calls) {
            EXPECT_THAT(error_of([&] { (void)call(); }), is_error(Errc::invalid_argument, words))
                << words;
        }
        four.assign(4, 1);
        group.all_reduce(good, ReduceOp::sum).wait();
        EXPECT_EQ(four[3], 2);
    });
}

TEST(NcclArguments, EmptyBuffersAreAllowedEverywhere) {
    run_ranks_on_gpus(2, [](ProcessGroup& group) {
        const TensorView none(nullptr, 0, DType::float32, group.device());
        group.all_reduce(none, ReduceOp::avg).wait();
        group.reduce(none, ReduceOp::avg, 0).wait();
        group.reduce_scatter(none, none, ReduceOp::avg).wait();
        group.broadcast(none, 1).wait();
        group.all_gather(none, none).wait();
        group.gather(none, none, 0).wait();
        group.scatter(none, none, 0).wait();
        group.all_to_all(none, none).wait();
        (group.rank() == 0 ? group.send(none, 1) : group.recv(none, 0)).wait();
    });
}

TEST(NcclArguments, EightBitFloatsNeedAGpuThatReducesThem) {
    NcclWorld world(1);
    testing::HostRuntime older(1, 80);
    const auto group = nccl::form_group_on({world.stand_in.api(), older},
                                           testing::context_of_rank(0, 1, world.store),
                                           world.options, world.device_of(0), {});
    std::vector<float8_e5m2> values(3);
    group->broadcast(view(values, *group), 0).wait();
    EXPECT_THAT(error_of([&] { (void)group->all_reduce(view(values, *group), ReduceOp::sum); }),
                is_error("9.0", "8.0"));
}

template <class T>
void expect_scaled_alone(ProcessGroup& group) {
    const std::vector<T> values{T(1.0F), T(-2.5F), T(0.25F), T(0.0F)};
    const std::vector<T> halves{T(0.5F), T(-1.25F), T(0.125F), T(0.0F)};
    std::vector<T> in_place = values;
    group.all_reduce(view(in_place, group), Reduction::premultiplied_sum(0.5)).wait();
    EXPECT_EQ(in_place, halves);
    in_place = values;
    group.reduce(view(in_place, group), Reduction::premultiplied_sum(0.5), 0).wait();
    EXPECT_EQ(in_place, halves);
    std::vector<T> input = values;
    std::vector<T> output(values.size());
    group.reduce_scatter(view(input, group), view(output, group), Reduction::premultiplied_sum(0.5))
        .wait();
    EXPECT_EQ(output, halves);
    output.assign(values.size(), T(0.0F));
    const std::vector<std::size_t> counts{values.size()};
    group
        .reduce_scatter(view(input, group), view(output, group), Reduction::premultiplied_sum(0.5),
                        counts)
        .wait();
    EXPECT_EQ(output, halves);
    group.reduce_scatter(view(output, group), view(input, group), ReduceOp::avg, counts).wait();
    EXPECT_EQ(input, halves);
    group.all_reduce(view(output, group), ReduceOp::avg).wait();
    EXPECT_EQ(output, halves);
    group.barrier().wait();
}

TEST(NcclArguments, EightBitFloatsAreMultipliedInAWorldOfOne) {
    run_ranks_on_gpus(1, [](ProcessGroup& group) {
        expect_scaled_alone<float8_e4m3fn>(group);
        expect_scaled_alone<float8_e5m2>(group);
    });
}

TEST(NcclArguments, EightBitFloatsAreMovedByLibrariesThatCannotReduceThem) {
    NcclWorld world(2);
    world.stand_in.set_faults("version=22304");
    world.stand_in.api().version = 22304;
    run_ranks(world, [](ProcessGroup& group) {
        std::vector<float8_e4m3fn> value(1, float8_e4m3fn(group.rank() == 0 ? 3.0F : 0.0F));
        group.broadcast(view(value, group), 0).wait();
        EXPECT_EQ(static_cast<float>(value[0]), 3.0F);
        EXPECT_THAT(error_of([&] { (void)group.all_reduce(view(value, group), ReduceOp::sum); }),
                    is_error(Errc::invalid_argument, "2.24.0", "2.23.4"));
    });
    EXPECT_EQ(world.stand_in.events("broadcast").size(), 2U);
    EXPECT_TRUE(world.stand_in.events("all_reduce").empty());
}

}  // namespace
}  // namespace regroup
