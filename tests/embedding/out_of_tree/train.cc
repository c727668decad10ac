// SPDX-License-Identifier: Apache-2.0
// Fits y = 3x - 1 by data-parallel gradient descent: each rank has a share of the samples.
#include <regroup/regroup.h>

#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

int main() {
    try {
        const auto context = regroup::Context::from_environment();
        const auto group = regroup::ProcessGroup::create("cpu", context);

        // Rank 0's initial values are broadcast.
        std::vector<float> line{static_cast<float>(context.rank), 0};
        std::vector<float> gradient(2);
        regroup::DistributedDataParallel ddp(*group, {{std::span(line), std::span(gradient)}});
        regroup::DistributedSampler sampler(
            {.dataset_count = 64, .rank = context.rank, .world_size = context.world_size});
        for (std::uint64_t epoch = 0; epoch < 40; ++epoch) {
            sampler.set_epoch(epoch);
            gradient = {0, 0};
            for (const std::uint64_t sample : sampler.indices()) {
                const float x = static_cast<float>(sample) / 32 - 1;
                const float error = line[0] * x + line[1] - (3 * x - 1);
                gradient[0] += error * x / static_cast<float>(sampler.count());
                gradient[1] += error / static_cast<float>(sampler.count());
            }
            ddp.gradient_ready(0);
            ddp.finish_step();
            line[0] -= gradient[0];
            line[1] -= gradient[1];
        }
        std::printf("C++: rank %u of %u: y = %.2f x + %.2f\n", context.rank, context.world_size,
                    static_cast<double>(line[0]), static_cast<double>(line[1]));
        return std::abs(line[0] - 3) < 0.01F && std::abs(line[1] + 1) < 0.01F ? 0 : 1;
    } catch (const regroup::Error& error) {
        std::fprintf(stderr, "train: %s\n", error.what());
        return 1;
    }
}
