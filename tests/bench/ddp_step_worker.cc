// SPDX-License-Identifier: Apache-2.0
//
// One rank of the synthetic model of ddp_bench, 200 gradients of together 25 MB:
//
//     ddp_step_worker step RESULT_FILE ROUNDS    time that synchronisation adds to a step
//     ddp_step_worker hook CALLS                 reports gradients that complete no bucket, for a
//                                                tool that counts instructions
#include <regroup/context.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/ddp_worker.h"

namespace regroup::bench {
namespace {

constexpr std::size_t kLayers = 100;
constexpr std::size_t kWeightCount = 62000;
constexpr std::size_t kBiasCount = 500;

/// The model's tensors under one policy.
class Contestant {
   public:
    Contestant(std::string name, ProcessGroup& group, const DataParallelOptions& options,
               bool in_callers_memory)
        : name_(std::move(name)) {
        std::vector<Parameter> parameters;
        for (std::size_t i = 0; i < 2 * kLayers; ++i) {
            const std::size_t count = i % 2 == 0 ? kWeightCount : kBiasCount;
            values_.emplace_back(count);
            parameters.push_back({std::span(values_.back())});
            if (in_callers_memory) {
                gradients_.emplace_back(count);
                parameters.back().gradient = std::span(gradients_.back());
            }
        }
        ddp_.emplace(group, std::move(parameters), std::vector<TensorView>(), options);
        backward();
        ddp_->finish_step();
    }

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] std::size_t bytes() const { return ddp_->gradient_memory().bytes; }

    /// The smallest backward pass: writes each gradient once.
    void backward() {
        for (std::size_t index = values_.size(); index-- > 0;) {
            const TensorView gradient = ddp_->gradient(index);
            std::memset(gradient.data, 0x11, gradient.bytes());
            ddp_->gradient_ready(index);
        }
    }

    void measure_round(ProcessGroup& group) {
        const Cost without = measure(group, [this] {
            const auto guard = ddp_->no_sync();
            backward();
        });
        const Cost with = measure(group, [this] {
            backward();
            ddp_->finish_step();
        });
        added_.push_back({with.wall_ms - without.wall_ms, with.cpu_ms - without.cpu_ms});
    }
    [[nodiscard]] Cost added() const { return median(added_); }

   private:
    std::string name_;
    std::vector<std::vector<float>> values_;
    std::vector<std::vector<float>> gradients_;
    std::optional<DistributedDataParallel> ddp_;
    std::vector<Cost> added_;
};

int measure_steps(const std::string& result, int rounds) {
    const Context context = Context::from_environment();
    const auto group = ProcessGroup::create("cpu", context);
    std::vector<std::unique_ptr<Contestant>> contestants;
    const auto add = [&](const char* name, const DataParallelOptions& options,
                         bool in_callers_memory) {
        contestants.push_back(
            std::make_unique<Contestant>(name, *group, options, in_callers_memory));
    };
    constexpr std::size_t kMiB = std::size_t{1} << 20U;
    add("buckets_25_MiB", {}, false);
    add("buckets_4_MiB", {.bucket_bytes = 4 * kMiB}, false);
    add("buckets_1_MiB", {.bucket_bytes = kMiB}, false);
    add("callers_memory", {}, true);
    for (const auto& [name, wire] :
         {std::pair("wire_bfloat16", DType::bfloat16), std::pair("wire_float16", DType::float16)}) {
        try {
            add(name, {.hook = low_precision_hook(wire)}, false);
        } catch (const Error& error) {
            std::fprintf(stderr, "%s is left out: %s\n", name, error.what());
        }
    }

    // The floor: an all-reduce of the same bytes at once, without packing or waiting; and of half
    // of them, as on a 16-bit wire.
    const Buffer memory = group->allocate(contestants.front()->bytes());
    const TensorView whole(memory.data, memory.bytes / sizeof(float), DType::float32);
    std::vector<Cost> floor;
    std::vector<Cost> half;
    for (int round = 0; round < rounds; ++round) {
        floor.push_back(measure(*group, [&] { group->all_reduce(whole, ReduceOp::avg).wait(); }));
        half.push_back(measure(*group, [&] {
            group->all_reduce(whole.part(0, whole.count / 2), ReduceOp::avg).wait();
        }));
        for (const auto& contestant : contestants) {
            contestant->measure_round(*group);
        }
    }
    Results results(result, *group);
    results.add("floor", median(floor));
    results.add("floor_half", median(half));
    for (const auto& contestant : contestants) {
        results.add(contestant->name(), contestant->added());
    }
    return 0;
}

/// The instructions of this function are counted.
[[gnu::noinline]] void report_all_but_the_last(DistributedDataParallel& ddp, std::size_t count) {
    for (std::size_t index = 1; index < count; ++index) {
        ddp.gradient_ready(index);
    }
}

int report(std::size_t calls) {
    const auto group = ProcessGroup::create("cpu", Context());
    std::vector<std::vector<float>> values(1001, std::vector<float>(1));
    std::vector<Parameter> parameters;
    for (auto& value : values) {
        parameters.push_back({std::span(value)});
    }
    DistributedDataParallel ddp(*group, std::move(parameters), {},
                                {.first_bucket_bytes = std::size_t{25} << 20U});
    ddp.reduce_gradients();
    for (std::size_t done = 0; done < calls; done += values.size() - 1) {
        report_all_but_the_last(ddp, values.size());
        ddp.gradient_ready(0);
        ddp.finish_step();
    }
    return 0;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    using namespace regroup::bench;
    const std::string mode = argc > 1 ? argv[1] : "";
    try {
        if (mode == "step" && argc == 4) {
            return measure_steps(argv[2], std::max(1, std::atoi(argv[3])));
        }
        if (mode == "hook" && argc == 3) {
            return report(static_cast<std::size_t>(std::max(1, std::atoi(argv[2]))));
        }
    } catch (const regroup::Error& error) {
        std::fprintf(stderr, "ddp_step_worker: %s\n", error.what());
        return 1;
    }
    std::fprintf(stderr,
                 "usage: ddp_step_worker step RESULT_FILE ROUNDS | ddp_step_worker hook CALLS\n");
    return 2;
}
