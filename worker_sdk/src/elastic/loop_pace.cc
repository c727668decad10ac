// SPDX-License-Identifier: Apache-2.0
//
// How a Loop measures and reports its pace.
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker_sdk/src/elastic/loop.h"

namespace regroup::elastic {

void Loop::look_after_step() {
    if (options_.straggler_window != 0 && round_steps_ % options_.straggler_window == 0) {
        compare_pace();
    }
    if (options_.compare_every != 0 && step_ % options_.compare_every == 0 && has_peers()) {
        compare_replicas(registered_.digests());
    }
}

void Loop::compare_pace() {
    const std::uint32_t world = round_->context.world_size;
    const std::int64_t mine = std::exchange(window_work_, Duration{}).count();
    if (world == 1) {
        return;
    }
    std::vector<std::int64_t> all(world);
    round_->control().all_gather(std::span(&mine, 1), std::span(all)).wait();
    const std::vector<Duration> work(all.begin(), all.end());
    for (const Straggler& slow : stragglers_->observe(work)) {
        if (round_->context.rank != 0) {
            continue;
        }
        if (link_) {
            link_->send(worker_link::Remark{
                .text = "rank " + std::to_string(slow.rank) + " is slow: its own work takes " +
                        std::to_string(static_cast<int>(slow.excess * 100)) +
                        " % longer than the median of the others, in most of the last " +
                        std::to_string(slow.windows * options_.straggler_window) + " steps"});
        }
        if (straggler_listener_) {
            straggler_listener_(slow.rank, slow.excess);
        }
    }
}

void Loop::tell_resumed() {
    if (!link_) {
        return;
    }
    using Milliseconds = std::chrono::duration<double, std::milli>;
    link_->send(worker_link::Resumed{
        .round = round_->context.round,
        .step = step_,
        .communicator_ms = Milliseconds(communicator_time_).count(),
        .state_ms = Milliseconds(state_time_).count(),
        .first_step_ms = Milliseconds(SteadyClock().now() - training_began_).count()});
}

}  // namespace regroup::elastic
