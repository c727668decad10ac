// SPDX-License-Identifier: Apache-2.0
//
// One rank of links_bench: sums a gradient over all ranks by the naive scheme and by the ring. Rank
// 0 prints the time of each:
//
//     links_rank FLOATS
#include <regroup/context.h>
#include <regroup/process_group.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <signal.h>
#include <span>
#include <sstream>
#include <string>
#include <sys/prctl.h>
#include <vector>

namespace {

using regroup::ProcessGroup;
using regroup::Work;
using Gradient = std::vector<float>;
using Seconds = std::chrono::duration<double>;

constexpr auto kLimit = std::chrono::minutes(2);

/// The times of a step, measured on rank 0.
struct Measured {
    double collected = 0;         ///< Seconds until rank 0 had the sum.
    double done = 0;              ///< Seconds until all ranks had it.
    std::uint64_t bytes_out = 0;  ///< Over this rank's link, headers included.
    std::uint64_t bytes_in = 0;
};

struct LinkBytes {
    std::uint64_t in = 0;
    std::uint64_t out = 0;
};

LinkBytes link_bytes() {
    std::ifstream table("/proc/thread-self/net/dev");
    for (std::string line; std::getline(table, line);) {
        const std::size_t colon = line.find(':');
        if (colon == line.npos || line.find("eth0") > colon) {
            continue;
        }
        std::istringstream numbers(line.substr(colon + 1));
        LinkBytes bytes;
        std::uint64_t skipped = 0;
        numbers >> bytes.in;
        constexpr int kReceiveFields = 7;  // Between the two: packets, errors, drops, ...
        for (int field = 0; field < kReceiveFields; ++field) {
            numbers >> skipped;
        }
        numbers >> bytes.out;
        return bytes;
    }
    return {};
}

class Bench {
   public:
    Bench(ProcessGroup& group, std::size_t floats) : group_(group), gradient_(floats) {}

    /// All gradients to rank 0, which adds them up, and the sum back to all. Every rank then has
    /// the same; the links of the others are idle most of the time.
    Measured naive() {
        return measure([&](Measured& measured, const auto& elapsed) {
            if (group_.rank() != 0) {
                group_.send(view(gradient_), 0).wait();
                group_.recv(view(gradient_), 0).wait();
                return;
            }
            std::vector<Gradient> theirs(group_.world_size(), Gradient(gradient_.size()));
            std::vector<Work> works(group_.world_size());
            for (std::uint32_t peer = 1; peer < group_.world_size(); ++peer) {
                works[peer] = group_.recv(view(theirs[peer]), peer);
            }
            for (std::uint32_t peer = 1; peer < group_.world_size(); ++peer) {
                works[peer].wait();
                for (std::size_t i = 0; i < gradient_.size(); ++i) {
                    gradient_[i] += theirs[peer][i];
                }
            }
            measured.collected = elapsed();
            for (std::uint32_t peer = 1; peer < group_.world_size(); ++peer) {
                works[peer] = group_.send(view(gradient_), peer);
            }
            for (std::uint32_t peer = 1; peer < group_.world_size(); ++peer) {
                works[peer].wait();
            }
        });
    }

    Measured ring() {
        return measure([&](Measured& measured, const auto& elapsed) {
            group_.all_reduce(view(gradient_), regroup::ReduceOp::sum).wait();
            measured.collected = elapsed();
        });
    }

    /// Connections and windows are open afterwards.
    void warm_up() {
        const std::size_t all = gradient_.size();
        gradient_.resize(std::min(all, std::size_t{8192}));
        (void)naive();
        (void)ring();
        gradient_.resize(all);
    }

   private:
    static std::span<float> view(Gradient& gradient) { return gradient; }

    /// From the moment at which all ranks begin to that at which all are through.
    template <class Step>
    Measured measure(const Step& step) {
        gradient_.assign(gradient_.size(), static_cast<float>(group_.rank() + 1));
        Measured measured;
        group_.barrier().wait();
        const LinkBytes before = link_bytes();
        const auto begin = std::chrono::steady_clock::now();
        const auto elapsed = [&] {
            return Seconds(std::chrono::steady_clock::now() - begin).count();
        };
        step(measured, elapsed);
        group_.barrier().wait();
        measured.done = elapsed();
        const LinkBytes now = link_bytes();
        measured.bytes_in = now.in - before.in;
        measured.bytes_out = now.out - before.out;
        check();
        return measured;
    }

    void check() const {
        const auto ranks = static_cast<float>(group_.world_size());
        for (const float value : gradient_) {
            if (value != ranks * (ranks + 1) / 2) {
                throw std::runtime_error("the sum is wrong");
            }
        }
    }

    ProcessGroup& group_;
    Gradient gradient_;
};

void print(const char* scheme, const Measured& measured) {
    std::printf("%s %.6f %.6f %llu %llu\n", scheme, measured.collected, measured.done,
                static_cast<unsigned long long>(measured.bytes_out),
                static_cast<unsigned long long>(measured.bytes_in));
}

int run(std::size_t floats) {
    const regroup::Context context = regroup::Context::from_environment();
    regroup::ProcessGroupOptions options;
    options.timeout = kLimit;
    const std::unique_ptr<ProcessGroup> group = ProcessGroup::create("cpu", context, options);
    Bench bench(*group, floats);
    bench.warm_up();
    const Measured naive = bench.naive();
    const Measured ring = bench.ring();
    if (context.is_main_process()) {
        print("naive", naive);
        print("ring", ring);
    }
    // Rank 0 serves the store, and leaves last.
    group->barrier().wait();
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // Nothing outlives the benchmark.
    if (argc != 2) {
        std::fprintf(stderr, "usage: links_rank FLOATS\n");
        return 2;
    }
    try {
        return run(std::strtoul(argv[1], nullptr, 10));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "links_rank: %s\n", error.what());
        return 1;
    }
}
