// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/distributed_data_parallel.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/ddp/gradient_device.h"
#include "worker_sdk/src/ddp/gradient_memory.h"

namespace regroup::ddp {

/// The reductions of the buckets of one wrapper. Buckets start in the order of the plan even if a
/// later one is complete first: the order in which gradients become ready may differ between ranks,
/// the order of collectives may not. Throws as the group.
class BucketPipeline {
   public:
    /// All outlive it.
    BucketPipeline(ProcessGroup& group, GradientDevice& device, const DataParallelOptions& options)
        : group_(group), device_(device), options_(options) {}

    /// The plan of the steps that follow; `memory` has adopted it.
    void adopt(std::vector<Bucket> plan, const GradientMemory& memory);
    [[nodiscard]] const std::vector<Bucket>& plan() const noexcept { return plan_; }

    /// `divisor`: of an average, if it is not the number of ranks.
    void begin_step(std::uint32_t divisor = 0);
    /// One more gradient of bucket `at` is final. Starts this bucket if it was the last one, and
    /// later ones that were complete already.
    void add_gradient(std::size_t at) {
        if (--flights_[at].missing_count == 0) {
            start_complete();
        }
    }
    /// Waits for all buckets, which are complete; on a GPU the caller's stream waits.
    void finish();
    /// Waits until the group no longer writes into the buckets.
    void give_up() noexcept;

    /// Of the last step that has finished.
    [[nodiscard]] const StepStatistics& statistics() const noexcept { return statistics_; }

   private:
    /// A bucket in this step.
    struct Flight {
        std::size_t missing_count = 0;
        Work work;
        Instant issued_at;
    };

    void start_complete();
    void start(std::size_t at);
    void await_on_host();

    ProcessGroup& group_;
    GradientDevice& device_;
    const DataParallelOptions& options_;
    std::vector<Bucket> plan_;
    std::vector<Flight> flights_;          // by bucket
    std::vector<GradientBucket> handles_;  // by bucket, for the hook
    std::size_t started_count_ = 0;        // buckets [0, started_count_) are in flight
    Reduction reduction_ = ReduceOp::avg;  // of this step, without a hook
    std::size_t bytes_ = 0;
    StepStatistics statistics_;
};

}  // namespace regroup::ddp
