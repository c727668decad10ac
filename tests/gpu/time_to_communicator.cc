// SPDX-License-Identifier: Apache-2.0
// Time from main() to the end of the first all-reduce, and its parts:
//
//     whole   ProcessGroup::create and one all-reduce, in fresh processes
//     context the CUDA context alone, in fresh processes
//     nccl    ncclCommInitRank and one all-reduce alone, context and id at hand
//
// The rest of `whole` is the SDK's time: the store, the ring, the ids. create() makes the context
// while the other ranks start. Several ranks on one GPU are time-sliced, so such figures only show
// that it works.
//
// Then the time of one all-reduce of a group that is formed, with non-blocking communicators and
// with blocking ones (REGROUP_NCCL_BLOCKING=1):
//
//     issue   until the call returns, many in a row
//     wait    until wait() returns, one at a time
#include <regroup/cuda.h>
#include <regroup/process_group.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "tests/gpu/device_values.h"
#include "tests/gpu/ranks.h"
#include "worker_sdk/src/cuda/environment.h"
#include "worker_sdk/src/nccl/bootstrap.h"
#include "worker_sdk/src/nccl/communicator.h"

namespace regroup::gpu {
namespace {

constexpr std::size_t kCount = 1024;

void require_ready(nccl::Communicator& communicator, nccl::CommReport report) {
    if (report.state == nccl::CommState::in_progress) {
        report = communicator.await_ready(Instant::max());
    }
    if (report.state != nccl::CommState::ready) {
        throw Error(Errc::system, "NCCL: " + report.text);
    }
}

double time_whole(const Context& context, double start) {
    const auto group =
        ProcessGroup::create("nccl", context, {.timeout = std::chrono::seconds(100)});
    cuda::set_device(group->device());
    const DeviceValues<float> values(kCount, group->device());
    group->all_reduce(values.view(), ReduceOp::sum).wait();
    return now_ms() - start;
}

double time_context(const Context& context, double start) {
    cuda::set_device(cuda::device_of(context));
    check(cudaFree(nullptr), "cudaFree");
    return now_ms() - start;
}

double time_nccl(const Context& context) {
    const nccl::NcclApi& api = nccl::installed_api();
    cuda::turn_off_ras();
    if (cuda::Environment::read().share_gpus) {
        cuda::let_ranks_share_a_gpu(context.rank);
    }
    const Device device = cuda::device_of(context);
    cuda::set_device(device);
    const DeviceValues<float> values(kCount, device);
    const OwnStream stream;
    const std::shared_ptr<Store> store = context.store();
    if (context.rank == 0) {
        store->set("id", nccl::to_text(nccl::make_unique_id(api)));
    }
    ncclUniqueId id = nccl::parse_unique_id(store->get("id"));
    store->add("here", 1);
    while (store->add("here", 0) < context.world_size) {
    }
    nccl::Communicator communicator(api);
    const double start = now_ms();
    require_ready(communicator, communicator.begin({&id, 1}, static_cast<int>(context.world_size),
                                                   static_cast<int>(context.rank)));
    require_ready(communicator, communicator.launch([&](ncclComm_t comm) {
        return api.all_reduce(values.data(), values.data(), kCount, ncclFloat32, ncclSum, comm,
                              stream.get());
    }));
    stream.synchronize();
    const double took = now_ms() - start;
    require_ready(communicator, communicator.begin_leaving());
    communicator.finish_leaving();
    return took;
}

/// Microseconds per operation.
double time_operations(const Context& context, const std::string& mode) {
    constexpr int kOperations = 500;
    ::setenv("REGROUP_NCCL_BLOCKING", mode.ends_with("blocking") ? "1" : "0", 1);
    const auto group =
        ProcessGroup::create("nccl", context, {.timeout = std::chrono::seconds(100)});
    cuda::set_device(group->device());
    const DeviceValues<float> values(kCount, group->device());
    const bool waits = mode.starts_with("wait");
    double took = 0;
    for (const bool counts : {false, true}) {
        group->barrier().wait();
        const double start = now_ms();
        Work last;
        for (int i = 0; i < kOperations; ++i) {
            last = group->all_reduce(values.view(), ReduceOp::sum);
            if (waits) {
                last.wait();
            }
        }
        took = counts ? now_ms() - start : 0;
        last.wait();
    }
    return took * 1000 / kOperations;
}

int be_rank(const std::string& mode, double start) {
    try {
        const Context context = Context::from_environment();
        const double took = mode == "whole"     ? time_whole(context, start)
                            : mode == "context" ? time_context(context, start)
                            : mode == "nccl"    ? time_nccl(context)
                                                : time_operations(context, mode);
        std::printf("%.3f\n", took);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", mode.c_str(), error.what());
        return 1;
    }
}

/// The slowest rank of one run; negative if one failed.
double slowest(const std::string& mode, std::uint32_t ranks, int gpus) {
    double most = 0;
    for (const RankEnd& end : run_ranks(mode, ranks, gpus, std::chrono::seconds(120))) {
        if (!end.finished || end.code != 0 || end.output.empty()) {
            return -1;
        }
        most = std::max(most, std::stod(end.output));
    }
    return most;
}

int measure_operations(std::uint32_t ranks, int gpus) {
    std::printf("all_reduce of %zu floats, slowest rank, us per operation:\n", kCount);
    for (const char* const mode : {"issue", "issue-blocking", "wait", "wait-blocking"}) {
        const double took = slowest(mode, ranks, gpus);
        if (took < 0) {
            std::printf("  %s failed\n", mode);
            return 1;
        }
        std::printf("  %-15s %9.1f\n", mode, took);
    }
    return 0;
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

int measure(std::uint32_t ranks, int repeats, int gpus) {
    std::printf("%u ranks on %d GPU(s)%s, median of %d fresh starts, slowest rank, ms:\n", ranks,
                gpus, static_cast<int>(ranks) > gpus ? " (time-sliced, correctness only)" : "",
                repeats);
    // Taken in turn, so that a machine that grows slower does so for all three.
    const char* const modes[] = {"context", "nccl", "whole"};
    std::vector<double> times[3];
    std::vector<double> ours;
    for (int repeat = 0; repeat < repeats; ++repeat) {
        for (std::size_t i = 0; i < 3; ++i) {
            times[i].push_back(slowest(modes[i], ranks, gpus));
            if (times[i].back() < 0) {
                std::printf("  %s failed\n", modes[i]);
                return 1;
            }
        }
        ours.push_back(times[2].back() - times[0].back() - times[1].back());
    }
    for (std::size_t i = 0; i < 3; ++i) {
        std::printf("  %-8s %9.1f\n", modes[i], median(times[i]));
    }
    std::printf("  %-8s %9.1f  (whole - context - nccl)\n", "ours", median(ours));
    return measure_operations(ranks, gpus);
}

}  // namespace
}  // namespace regroup::gpu

int main(int argc, char** argv) {
    using namespace regroup::gpu;
    const double start = now_ms();
    const std::string mode = rank_mode(argc, argv);
    if (!mode.empty()) {
        return be_rank(mode, start);
    }
    const int gpus = introduce("time_to_communicator");
    const auto ranks = static_cast<std::uint32_t>(argc > 1 ? std::atoi(argv[1]) : 2);
    const int repeats = argc > 2 ? std::atoi(argv[2]) : 5;
    if (ranks < 1 || repeats < 1) {
        std::fprintf(stderr, "usage: time_to_communicator [RANKS [REPEATS]]\n");
        return 2;
    }
    return measure(ranks, repeats, gpus);
}
