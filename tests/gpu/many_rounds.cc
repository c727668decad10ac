// SPDX-License-Identifier: Apache-2.0
// Rank 0 forms group after group in one process; rank 1 is a new process in each round, and dies in
// the middle of it. Shows that no round leaves threads, descriptors or memory behind. Uses GPUs
// only by the SDK, so that it also runs over the stand-in for NCCL.
#include <regroup/cuda.h>
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <filesystem>
#include <iterator>
#include <malloc.h>
#include <map>
#include <optional>
#include <poll.h>
#include <string>
#include <vector>

#include "tests/gpu/ranks.h"

namespace regroup::gpu {
namespace {

constexpr std::size_t kCount = std::size_t{1} << 18U;
/// After so many rounds, all that is made once has been made.
constexpr int kWarmUp = 5;
constexpr std::chrono::seconds kLimit{60};

/// The resources of a process.
struct Holdings {
    std::size_t threads = 0;
    std::size_t descriptors = 0;
    std::size_t heap_bytes = 0;
    std::size_t gpu_bytes = 0;  ///< Of all processes; 0 without a GPU.
};

std::size_t entries_of(const char* folder) {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

/// The file, socket or other object behind each descriptor.
std::map<std::string, std::string> descriptors() {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        found[entry.path().filename().string()] =
            std::filesystem::read_symlink(entry.path(), gone).string();
    }
    return found;
}

Holdings holdings() {
    const struct mallinfo2 heap = ::mallinfo2();
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        free_bytes = total_bytes = 0;
    }
    return {.threads = entries_of("/proc/self/task"),
            .descriptors = entries_of("/proc/self/fd"),
            .heap_bytes = heap.uordblks + heap.hblkhd,
            .gpu_bytes = total_bytes - free_bytes};
}

/// The resource that has grown too much; empty if none. Libraries may keep a little of every round.
std::string growth(const Holdings& before, const Holdings& now, int rounds) {
    constexpr std::size_t kHeapOfOneRound = std::size_t{64} << 10U;
    constexpr std::size_t kGpuOfAllRounds = std::size_t{32} << 20U;
    if (now.threads > before.threads) {
        return "threads";
    }
    if (now.descriptors > before.descriptors) {
        return "descriptors";
    }
    if (now.heap_bytes > before.heap_bytes + static_cast<std::size_t>(rounds) * kHeapOfOneRound) {
        return "memory of the host";
    }
    return now.gpu_bytes > before.gpu_bytes + kGpuOfAllRounds ? "memory of the GPU" : "";
}

/// As above, after the ends of threads and of the other process have had their time.
std::string settled_growth(const Holdings& before, int rounds) {
    constexpr double kSettledMs = 10'000;
    const double deadline = now_ms() + kSettledMs;
    std::string grown = growth(before, holdings(), rounds);
    while (!grown.empty() && now_ms() < deadline) {
        (void)::poll(nullptr, 0, 10);
        grown = growth(before, holdings(), rounds);
    }
    return grown;
}

void require_sum(ProcessGroup& group, const Buffer& buffer) {
    std::vector<float> values(kCount, static_cast<float>(group.rank() + 1));
    const TensorView there{buffer.data, kCount, DType::float32, buffer.device};
    cuda::copy(there, std::span(values));
    group.all_reduce(there, ReduceOp::sum).wait();
    cuda::copy(std::span(values), there);
    if (!std::ranges::all_of(values, [](float value) { return value == 3.0F; })) {
        throw Error(Errc::system, "wrong: the sum of both ranks");
    }
}

/// Forms the group and its sub-groups, and uses them until rank 1 dies. The error names it.
void live_through(const Context& context) {
    const auto group = ProcessGroup::create("nccl", context, {.timeout = std::chrono::seconds(60)});
    const Buffer buffer = group->allocate(kCount * sizeof(float));
    const auto both = group->new_group({0, 1}, "both");
    [[maybe_unused]] const auto other = group->new_group({1}, "other");
    require_sum(*group, buffer);
    require_sum(*both, buffer);
    const std::string summed = "summed/" + std::to_string(context.round);
    if (context.rank == 1) {
        // The news of a death may overtake the end of an operation.
        context.store()->wait({summed}, kLimit);
        (void)::raise(SIGKILL);
    }
    context.store()->set(summed, "1");
    try {
        while (true) {
            both->barrier().wait();
        }
    } catch (const Error& error) {
        const std::string text = error.what();
        if (error.code() != Errc::disconnected || text.find("rank 1") == std::string::npos) {
            throw Error(Errc::system, "wrong: the death of rank 1 is reported as: " + text);
        }
    }
}

void print(int round, double took, const Holdings& held) {
    std::printf("  round %2d: %8.1f ms, %3zu threads, %3zu descriptors, %8.1f KiB heap", round,
                took, held.threads, held.descriptors, static_cast<double>(held.heap_bytes) / 1024);
    if (held.gpu_bytes > 0) {
        std::printf(", %8.1f MiB GPU", static_cast<double>(held.gpu_bytes) / (1 << 20));
    }
    std::printf("\n");
}

std::string begins(int round) {
    return "begins/" + std::to_string(round);
}

/// Rank 0: through all rounds in one process.
void survive(int rounds) {
    Context context = Context::from_environment();
    const std::shared_ptr<Store> store = context.store();
    std::optional<Holdings> before;
    std::map<std::string, std::string> known;
    for (int round = 1; round <= rounds; ++round) {
        store->set(begins(round), "1");
        context.round = static_cast<std::uint64_t>(round);
        const double start = now_ms();
        live_through(context);
        const double took = now_ms() - start;
        const std::string grown = before ? settled_growth(*before, round - kWarmUp) : "";
        const Holdings held = holdings();
        print(round, took, held);
        if (grown == "descriptors") {
            for (const auto& [number, what] : descriptors()) {
                if (known[number] != what) {
                    std::printf("  new: %s %s\n", number.c_str(), what.c_str());
                }
            }
        }
        if (!grown.empty()) {
            throw Error(Errc::system, "wrong: a round has left behind " + grown);
        }
        if (round == kWarmUp) {
            before = held;
        }
        known = descriptors();
    }
}

int be_rank(const std::string& mode, int rounds) {
    try {
        if (mode == "survivor") {
            survive(rounds);
        } else {
            live_through(Context::from_environment());
        }
        return 0;
    } catch (const std::exception& error) {
        std::printf("%s: %s\n", mode.c_str(), error.what());
        return 1;
    }
}

/// Starts rank 1 of each round when rank 0 has measured the round before: even a connection to the
/// store would count.
bool run_victims(int rounds, const std::string& port, int gpus) {
    Context observer;
    observer.rank = 1;
    observer.world_size = 2;
    observer.master_addr = "127.0.0.1";
    observer.master_port = static_cast<std::uint16_t>(std::stoi(port));
    for (int round = 1; round <= rounds; ++round) {
        observer.store()->wait({begins(round)}, kLimit);
        std::vector<std::string> environment = environment_of(1, 2, port, gpus);
        environment.push_back("REGROUP_ROUND=" + std::to_string(round));
        const RankEnd end =
            await_ranks({start_rank("victim", std::move(environment))}, kLimit).front();
        std::printf("%s", end.output.c_str());
        if (!end.finished || end.signal != SIGKILL) {
            return false;
        }
    }
    return true;
}

int run_all(int rounds, int gpus) {
    const std::string port = free_port();
    std::vector<RunningRank> survivor;
    survivor.push_back(start_rank("survivor", environment_of(0, 2, port, gpus)));
    bool good = false;
    try {
        good = run_victims(rounds, port, gpus);
    } catch (const Error& error) {
        std::printf("  %s\n", error.what());
    }
    const RankEnd end = await_ranks(std::move(survivor), good ? kLimit : kLimit / 10).front();
    std::printf("%s", end.output.c_str());
    good = good && end.finished && end.signal == 0 && end.code == 0;
    std::printf("many_rounds: %s\n", good ? "all passed" : "FAILED");
    return good ? 0 : 1;
}

}  // namespace
}  // namespace regroup::gpu

int main(int argc, char** argv) {
    using namespace regroup::gpu;
    constexpr int kRounds = 20;
    const std::string mode = rank_mode(argc, argv);
    if (!mode.empty()) {
        return be_rank(mode, kRounds);
    }
    const int gpus = introduce("many_rounds");
    return run_all(kRounds, gpus);
}
