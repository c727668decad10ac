// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/pace.h"

#include <string>
#include <utility>
#include <vector>

#include "worker_sdk/src/elastic/gather.h"

namespace regroup::elastic {

Pace::Pace(ProcessGroup& control, const ElasticOptions& options, OptionalAgent& agent,
           const Listener& listener)
    : control_(control),
      options_(options),
      agent_(agent),
      listener_(listener),
      stragglers_(control.world_size(), options.straggler_excess) {
    agent_.telemetry.set_slow_ranks({});
}

void Pace::count_step(const link::StepTimes& times) noexcept {
    work_ += times.data + times.compute;
    ++steps_;
}

void Pace::compare() {
    if (options_.straggler_window == 0 || steps_ % options_.straggler_window != 0) {
        return;
    }
    const Duration mine = std::exchange(work_, Duration{});
    if (control_.world_size() == 1) {
        return;
    }
    const std::vector<Straggler> found = stragglers_.observe(gather(control_, mine));
    if (control_.rank() == 0) {
        for (const Straggler& slow : found) {
            report(slow);
        }
        std::vector<link::TelemetryWriter::Slow> slow;
        for (const Straggler& each : stragglers_.slow_ranks()) {
            slow.push_back({each.rank, each.excess});
        }
        agent_.telemetry.set_slow_ranks(slow);
    }
}

void Pace::report(const Straggler& slow) const {
    agent_.send(worker_link::Remark{
        .text = "rank " + std::to_string(slow.rank) + " is slow: its own work takes " +
                std::to_string(static_cast<int>(slow.excess * 100)) +
                " % longer than the median of the others, in most of the last " +
                std::to_string(slow.windows * options_.straggler_window) + " steps"});
    if (listener_) {
        listener_(slow.rank, slow.excess);
    }
}

}  // namespace regroup::elastic
