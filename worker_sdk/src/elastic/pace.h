// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/elastic_loop.h>

#include <cstdint>
#include <functional>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/straggler_detector.h"
#include "worker_sdk/src/elastic/optional_agent.h"

namespace regroup::elastic {

/// The speed of this rank in one round, compared with that of the others.
class Pace {
   public:
    using Listener = std::function<void(std::uint32_t rank, double excess)>;

    /// `control`: of all ranks of the round.
    Pace(ProcessGroup& control, const ElasticOptions& options, OptionalAgent& agent,
         const Listener& listener);

    void count_step(const link::StepTimes& times) noexcept;
    /// After the last step of a window, compares the work of the ranks and reports slow ones. All
    /// ranks call it after every step.
    void compare();

    [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
    [[nodiscard]] Instant began() const noexcept { return began_; }

   private:
    void report(const Straggler& slow) const;

    ProcessGroup& control_;
    const ElasticOptions& options_;
    OptionalAgent& agent_;
    const Listener& listener_;
    StragglerDetector stragglers_;
    Duration work_{};  ///< In this window.
    std::uint64_t steps_ = 0;
    const Instant began_ = now();
};

}  // namespace regroup::elastic
