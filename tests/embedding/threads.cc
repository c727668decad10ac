// SPDX-License-Identifier: Apache-2.0
// A program whose threads meet those of the SDK, for the thread sanitizer: with an SDK that is not
// compiled with it, and its suppressions, it is silent. With the argument `race` it has a race of
// its own in a step, which the suppressions must not hide.
#include <regroup/regroup.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

int main(int count, char** values) {
    const bool races = count > 1 && values[1] == std::string("race");
    std::vector<float> weights(300'000);
    std::vector<float> gradient(weights.size());
    std::vector<float> sent(10'000);
    std::vector<float> received(sent.size());
    std::uint64_t counted = 0;
    regroup::ElasticLoop loop;
    loop.register_state("weights", std::span(weights));
    loop.run({.on_step = [&](regroup::ElasticStep& step) {
        if (step.number() == 30) {
            return step.finish();
        }
        const std::uint32_t rank = step.context().rank;
        const std::uint32_t ranks = step.context().world_size;
        std::ranges::fill(gradient, 1.0F);
        const regroup::Work sum =
            step.group().all_reduce(std::span(gradient), regroup::ReduceOp::sum);
        const regroup::Work out = step.group().send(std::span(sent), (rank + 1) % ranks);
        const regroup::Work in = step.group().recv(std::span(received), (rank + ranks - 1) % ranks);
        std::thread other([&] {
            sum.wait();
            if (races) {
                ++counted;
            }
        });
        if (races) {
            ++counted;
        }
        while (!in.done()) {
            std::this_thread::yield();
        }
        out.wait();
        other.join();
        step.commit([&] { weights[0] += gradient[0] + received[0]; });
    }});
}
