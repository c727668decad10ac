// SPDX-License-Identifier: Apache-2.0
// Snapshot::save and load of one rank beside memcpy of the same bytes into memory that was touched
// before, by as many threads. Without an agent, `load` reads the folder from the page cache; under
// `regroup run`, the memory of the agent.
//
//     snapshot_bench [--quick]
#include <regroup/snapshot.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/report.h"
#include "tests/support/temporary_directory.h"
#include "worker_sdk/src/snapshot/copy_pool.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPieceBytes = std::size_t{4} << 20U;

double seconds_of(const std::function<void()>& work) {
    const auto start = Clock::now();
    work();
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The best of some turns: another program's share of the processor is not of interest.
double best_of(int turns, const std::function<void()>& work) {
    double best = 1e9;
    for (int turn = 0; turn < turns; ++turn) {
        best = std::min(best, seconds_of(work));
    }
    return best;
}

double time_of_memcpy(std::vector<float>& from, std::vector<float>& to, unsigned threads,
                      int turns) {
    regroup::snapshot::CopyPool pool(threads);
    const std::size_t bytes = from.size() * sizeof(float);
    const auto* source = reinterpret_cast<const std::byte*>(from.data());
    auto* target = reinterpret_cast<std::byte*>(to.data());
    return best_of(turns, [&] {
        pool.run((bytes + kPieceBytes - 1) / kPieceBytes, [&](std::size_t i) {
            const std::size_t at = i * kPieceBytes;
            std::memcpy(target + at, source + at, std::min(kPieceBytes, bytes - at));
        });
    });
}

void run(const regroup::Context& context, std::size_t megabytes, unsigned threads, int turns) {
    const regroup::testing::TemporaryDirectory disk;
    std::vector<float> state(megabytes * 1'000'000 / sizeof(float), 1.0F);
    std::vector<float> copy(state.size(), 2.0F);
    const double libc = time_of_memcpy(state, copy, threads, turns);
    copy = {};
    const regroup::SnapshotOptions options{
        .name = "bench" + std::to_string(megabytes) + "." + std::to_string(threads),
        .folder = folder.path(),
        .threads = threads};
    double save = 0;
    double load = 0;
    {
        regroup::Snapshot snapshot(context, options);
        snapshot.add("state", state);
        std::uint64_t step = 0;
        const auto save_one = [&] {
            if (!snapshot.save(++step)) {
                std::fputs("a step was not saved\n", stderr);
            }
        };
        // Both slots are touched, and nothing is written meanwhile.
        for (int i = 0; i < 2; ++i) {
            save_one();
            static_cast<void>(snapshot.wait_until_whole(std::chrono::minutes(1)));
        }
        save = 1e9;
        for (int turn = 0; turn < turns; ++turn) {
            while (snapshot.kept_step() != step) {
                static_cast<void>(snapshot.wait_until_whole(std::chrono::minutes(1)));
            }
            save = std::min(save, seconds_of(save_one));
        }
    }
    options.folder = disk.path();
    {
        regroup::Snapshot snapshot(context, options);
        snapshot.add("state", state);
        static_cast<void>(snapshot.save(1'000'000));
        static_cast<void>(snapshot.wait_until_whole(std::chrono::minutes(1)));
        load = best_of(2, [&] {
            if (!snapshot.load()) {
                std::fputs("nothing was loaded\n", stderr);
            }
        });
    }
    std::printf("%6zu MB %8u %9.1f ms %9.1f ms %8.2f %9.1f ms\n", megabytes, threads, libc * 1e3,
                save * 1e3, save / libc, load * 1e3);
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const bool quick = argc > 1 && std::string(argv[1]) == "--quick";
    const regroup::Context context = regroup::Context::from_environment();
    std::printf("%s\n%9s %8s %12s %12s %8s %12s\n", regroup::bench::processor().c_str(), "state",
                "threads", "memcpy", "save", "ratio", "load");
    for (const std::size_t megabytes :
         quick ? std::vector<std::size_t>{16} : std::vector<std::size_t>{256, 1000}) {
        for (const unsigned threads : {1U, 2U}) {
            run(context, megabytes, threads, quick ? 2 : 7);
        }
    }
    return 0;
}
