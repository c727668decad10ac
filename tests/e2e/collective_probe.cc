// SPDX-License-Identifier: Apache-2.0
//
// A worker whose ranks meet in collectives, and which writes them into its page as NCCL's profiler
// plugin does. It knows nothing else of its agent:
//
//     collective_probe STEPS [FAULT RANK STEP]
//
// A collective ends on each rank when all ranks have entered it: they count in a file of the
// present folder. With COLLECTIVE_PROBE_TELLS_ENDS=0 the page does not say when it has begun and
// ended. In the first round the rank fails before the collective of the step: "sleep",
// "loop", "stop" (SIGSTOP), "exit" (with success), or "other" (it calls another one). "save" makes
// it 4 s late. With "slow" all steps take longer, and those of the rank take longest.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <iostream>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "rendezvous/worker_link/collectives_writer.h"

namespace {

using namespace std::chrono_literals;
using regroup::worker_link::CollectiveBackend;
using regroup::worker_link::CollectiveKind;
using regroup::worker_link::ElementType;
using regroup::worker_link::GroupWriter;

constexpr std::size_t kStepsMax = 512;

std::uint32_t number_in(const char* variable) {
    const char* const text = std::getenv(variable);
    return text == nullptr ? 0 : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

/// For each collective the number of ranks that have entered it.
struct Arrivals {
    std::array<std::atomic<std::uint32_t>, kStepsMax> count;
};

Arrivals* open_arrivals(std::uint32_t round) {
    const std::string name = "arrivals" + std::to_string(round);
    const int file = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ::ftruncate(file, sizeof(Arrivals)) != 0) {
        std::abort();
    }
    void* const address =
        ::mmap(nullptr, sizeof(Arrivals), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return address == MAP_FAILED ? nullptr : static_cast<Arrivals*>(address);
}

void fail(std::string_view fault) {
    if (fault == "sleep") {
        std::this_thread::sleep_for(1000s);
    } else if (fault == "loop") {
        for (std::atomic<int> turns = 0; turns >= 0; turns = 0) {
        }
    } else if (fault == "stop") {
        std::raise(SIGSTOP);
    } else if (fault == "save") {
        std::this_thread::sleep_for(4s);
    } else if (fault == "exit") {
        std::exit(0);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const std::size_t steps = std::min<std::size_t>(kStepsMax, std::stoul(words.at(0)));
    const std::uint32_t rank = number_in("RANK");
    const std::uint32_t world = number_in("WORLD_SIZE");
    const std::uint32_t restarts = number_in("TORCHELASTIC_RESTART_COUNT");
    const bool fails = words.size() > 3 && restarts == 0 && words[2] == std::to_string(rank);
    const bool slow = words.size() > 3 && words[1] == "slow";
    const char* const told = std::getenv("COLLECTIVE_PROBE_TELLS_ENDS");
    const bool tells_ends = told == nullptr || std::string_view(told) != "0";
    Arrivals* const arrivals = open_arrivals(restarts);
    GroupWriter group({.backend = CollectiveBackend::nccl,
                       .id = 1 + restarts,
                       .size = world,
                       .rank = rank,
                       .name = "default_pg",
                       .knows_starts = tells_ends,
                       .knows_ends = tells_ends});
    for (std::size_t step = 1; step < steps; ++step) {
        const bool now = fails && words[3] == std::to_string(step);
        if (now) {
            fail(words[1]);
        }
        const bool other = now && words[1] == "other";
        const std::uint64_t number =
            group.entered({other ? CollectiveKind::broadcast : CollectiveKind::all_reduce,
                           ElementType::float32, other ? 1U : 4096U});
        if (tells_ends) {
            group.started(number);
        }
        if (!other) {
            arrivals->count[step].fetch_add(1);
        }
        while (arrivals->count[step].load() < world) {
            std::this_thread::sleep_for(1ms);
        }
        if (tells_ends) {
            group.completed(number);
        }
        std::this_thread::sleep_for(!slow ? 10ms : fails ? 500ms : 300ms);
    }
    std::cout << "rank " << rank << " has made " << steps << " steps\n";
}
