// SPDX-License-Identifier: Apache-2.0
//
// The cost of the profiler plugin for NCCL, without NCCL and a GPU:
//
//     nccl_profiler_bench PLUGIN [COLLECTIVES CHANNELS]
//
// For each version of the interface that tells of kernels: the calls that NCCL makes for a step of
// so many collectives, each in a group of its own, with so many channels. CPU time, apart for the
// thread of the program and for NCCL's proxy thread, and both as a part of a step of 10 ms. Without
// the plugin, NCCL makes none of these calls. The work of the GPU for them is not in here.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <time.h>
#include <vector>

#include "tests/bench/report.h"
#include "tests/support/collectives_file.h"
#include "worker_sdk/nccl_profiler/abi.h"

namespace regroup::bench {
namespace {

using nccl_profiler::CollectiveOf4;
using nccl_profiler::EventOf4;
using nccl_profiler::EventOf5;
using nccl_profiler::EventType;
using nccl_profiler::InitOf1;
using nccl_profiler::InitOf4;
using nccl_profiler::InitOf5;
using nccl_profiler::Textual;

constexpr int kRepetitions = 201;
constexpr double kStepNs = 10e6;
constexpr double kAimPercent = 0.4;
constexpr int kChannelStopped = 22;
constexpr int kGroupStarted = 23;
constexpr int kGroupEnds = 24;

double cpu_ns() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

struct Shape {
    int collectives = 100;
    int channels = 8;
};

template <class Event>
Event event_of(EventType type, void* parent) {
    Event event{};
    event.head = {static_cast<decltype(event.head.type)>(type), parent, 0};
    return event;
}

/// NCCL 2.26 and 2.27: an operation is known once it is enqueued.
template <class Init, class Event>
class Nccl {
   public:
    Nccl(const nccl_profiler::Table<Init, Event>& table, void* context, const Shape& shape)
        : table_(table), context_(context), shape_(shape) {}

    void program(std::vector<void*>& tasks) {
        tasks.clear();
        for (int i = 0; i < shape_.collectives; ++i) {
            void* const group = start(event_of<Event>(nccl_profiler::group_event, nullptr));
            tasks.push_back(start(task(nullptr, group)));
            table_.stop_event(tasks.back());
            table_.stop_event(group);
        }
    }

    /// NCCL 2.28 and newer: and when the program calls it. Without kernels, that is all.
    void program_with_calls(std::vector<void*>& tasks, bool kernels) {
        tasks.clear();
        for (int i = 0; i < shape_.collectives; ++i) {
            void* const call_group =
                start(event_of<Event>(nccl_profiler::group_call_event, nullptr));
            table_.record_state(call_group, kGroupStarted, nullptr);
            Event called = event_of<Event>(nccl_profiler::call_event, call_group);
            if constexpr (requires { called.call; }) {
                called.call = {"AllReduce", 1U << 20U, "ncclBfloat16", 0, nullptr, false};
            }
            void* const call = start(called);
            table_.stop_event(call);
            table_.record_state(call_group, kGroupEnds, nullptr);
            if (kernels) {
                void* const group = start(event_of<Event>(nccl_profiler::group_event, nullptr));
                tasks.push_back(start(task(call, group)));
                table_.stop_event(tasks.back());
                table_.stop_event(group);
            }
            table_.stop_event(call_group);
        }
    }

    void proxy(const std::vector<void*>& tasks) {
        std::vector<void*> channels(static_cast<std::size_t>(shape_.channels));
        for (void* const task : tasks) {
            for (void*& channel : channels) {
                channel = start(event_of<Event>(nccl_profiler::channel_event, task));
            }
            for (void* const channel : channels) {
                std::uint64_t timer = 0;
                table_.record_state(channel, kChannelStopped, &timer);
                table_.stop_event(channel);
            }
        }
    }

   private:
    [[nodiscard]] Event task(void* call, void* group) const {
        const auto channels = static_cast<std::uint8_t>(shape_.channels);
        Event event =
            event_of<Event>(nccl_profiler::collective_event, call != nullptr ? call : group);
        const CollectiveOf4 common{0,         "AllReduce", nullptr,        nullptr,
                                   1U << 20U, 0,           "ncclBfloat16", channels,
                                   16,        "RING",      "SIMPLE"};
        if constexpr (requires { event.collective.group; }) {
            event.collective = {common, group};
        } else if constexpr (requires { event.collective.channels; }) {
            event.collective = common;
        } else {
            event.collective = {"",      7,         0, "AllReduce",   nullptr,
                                nullptr, 1U << 20U, 0, "ncclBfloat16"};
        }
        return event;
    }
    void* start(const Event& event) {
        void* handle = nullptr;
        table_.start_event(context_, &handle, &event);
        return handle;
    }

    const nccl_profiler::Table<Init, Event>& table_;
    void* context_;
    Shape shape_;
};

template <class Init, class Event, class Begin>
double measure(void* library, int version, bool kernels, const Shape& shape, Begin begin,
               Table& table) {
    ::setenv("REGROUP_NCCL_KERNELS", kernels ? "1" : "0", 1);
    const std::string symbol = "ncclProfiler_v" + std::to_string(version);
    const auto* const plugin =
        static_cast<const nccl_profiler::Table<Init, Event>*>(::dlsym(library, symbol.c_str()));
    void* context = nullptr;
    int mask = 0;
    begin(*plugin, &context, &mask);
    Nccl<Init, Event> nccl(*plugin, context, shape);
    std::vector<void*> tasks;
    std::vector<double> program_ns;
    std::vector<double> proxy_ns;
    for (int i = 0; i < kRepetitions; ++i) {
        const double before = cpu_ns();
        if (version >= 5) {
            nccl.program_with_calls(tasks, kernels);
        } else {
            nccl.program(tasks);
        }
        const double middle = cpu_ns();
        if (kernels) {
            nccl.proxy(tasks);
        }
        proxy_ns.push_back(cpu_ns() - middle);
        program_ns.push_back(middle - before);
    }
    plugin->finalize(context);
    const double program = summarize(program_ns).median;
    const double proxy = summarize(proxy_ns).median;
    const double percent = (program + proxy) / kStepNs * 100;
    table.add({"v" + std::to_string(version) + (kernels ? ", kernels" : ", calls"),
               fixed(program / shape.collectives, 0), fixed(proxy / shape.collectives, 0),
               fixed((program + proxy) * 1e-3, 1), fixed(percent, 3)});
    return percent;
}

int run(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: nccl_profiler_bench PLUGIN [COLLECTIVES CHANNELS]\n");
        return 2;
    }
    const testing::CollectivesFile file;
    ::setenv(worker_link::kCollectivesVariable, file.path().c_str(), 1);
    void* const library = ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        std::fprintf(stderr, "%s\n", ::dlerror());
        return 1;
    }
    Shape shape;
    if (argc > 3) {
        shape = {std::atoi(argv[2]), std::atoi(argv[3])};
    }
    print_head("The profiler plugin for NCCL, " + std::to_string(shape.collectives) +
               " collectives a step with " + std::to_string(shape.channels) + " channels");
    Table table({"version", "program, ns each", "proxy, ns each", "step, us", "of 10 ms, %"});
    const auto early = [](const auto& plugin, void** context, int* mask) {
        plugin.init(context, mask);
    };
    measure<InitOf1, Textual>(library, 3, true, shape, early, table);
    measure<InitOf4, EventOf4>(
        library, 4, true, shape,
        [](const auto& plugin, void** context, int* mask) {
            plugin.init(context, mask, "data", 1, 1, 8, 0, nullptr);
        },
        table);
    const auto late = [](const auto& plugin, void** context, int* mask) {
        plugin.init(context, 1, mask, "data", 1, 8, 0, nullptr);
    };
    measure<InitOf5, EventOf5>(library, 5, true, shape, late, table);
    measure<InitOf5, EventOf5>(library, 6, false, shape, late, table);
    const double percent = measure<InitOf5, EventOf5>(library, 6, true, shape, late, table);
    table.print();
    print_verdict("v6, kernels, both threads, of a step of 10 ms in %", percent, Aim::at_most,
                  kAimPercent);
    return 0;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    return regroup::bench::run(argc, argv);
}
