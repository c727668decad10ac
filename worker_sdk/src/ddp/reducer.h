// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/distributed_data_parallel.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/base/learned_orders.h"
#include "worker_sdk/src/ddp/gradient_device.h"
#include "worker_sdk/src/ddp/gradient_memory.h"
#include "worker_sdk/src/ddp/host_exchange.h"
#include "worker_sdk/src/ddp/stream_scope.h"

namespace regroup::ddp {

/// The implementation of DistributedDataParallel. A step:
///
///     gradient_ready     counts down the missing gradients of the bucket
///       `- at zero       starts this bucket, and later ones that were complete already
///     finish_step        starts the rest; then waits, bucket by bucket
///
/// Buckets start in the order of the plan even if a later one is complete first: the order in which
/// gradients become ready may differ between ranks, the order of collectives may not.
class Reducer {
   public:
    Reducer(ProcessGroup& group, std::vector<Parameter> parameters, std::vector<TensorView> buffers,
            const DataParallelOptions& options);
    ~Reducer();
    Reducer(const Reducer&) = delete;
    Reducer& operator=(const Reducer&) = delete;

    [[nodiscard]] TensorView gradient(std::size_t index) const;
    void zero_gradients();
    void gradient_ready(std::size_t index);
    void gradient_unused(std::size_t index);
    void finish_step();
    void reduce_gradients();
    /// A step in which some ranks have no input.
    struct UnevenStep {
        bool has_input = true;  ///< Otherwise gradients that are not reported are zero.
        std::uint32_t first_with_input = 0;  ///< Its order and its buffers count.
        std::uint32_t divisor = 0;           ///< Of an average; 0: as in any other step.
    };
    /// The facts of all ranks, by rank. A collective, between two steps.
    [[nodiscard]] std::vector<std::int64_t> gather_before_step(std::int64_t fact);
    /// Until the end of the step that begins.
    void begin_uneven_step(const UnevenStep& uneven) { uneven_ = uneven; }
    [[nodiscard]] bool averages_in_hook() const noexcept {
        return options_.hook && options_.reduction == ReduceOp::avg;
    }
    void begin_no_sync();
    void end_no_sync() { --no_sync_depth_; }
    [[nodiscard]] bool was_used(std::size_t index) const;
    void broadcast_parameters(std::uint32_t root);
    void broadcast_buffers();
    [[nodiscard]] std::optional<ReplicaDifference> find_replica_difference();

    [[nodiscard]] std::span<const Bucket> buckets() const noexcept { return plan_; }
    [[nodiscard]] bool buckets_are_final() const noexcept { return !recording_; }
    [[nodiscard]] std::vector<TensorView> gradients() const;
    [[nodiscard]] std::size_t parameter_count() const noexcept { return parameters_.size(); }
    [[nodiscard]] const Buffer& gradient_memory() const noexcept { return memory_->buffer(); }
    [[nodiscard]] StepStatistics statistics() const noexcept { return statistics_; }

   private:
    /// A gradient in this step. Steps are counted, so that no flag must be cleared.
    struct Slot {
        std::uint64_t reported_in = 0;     ///< The last step in which it was reported.
        std::uint64_t contributed_in = 0;  ///< The last one in which this rank had a gradient.
        std::uint32_t bucket = 0;
        bool is_copied = false;  ///< To and from its bucket, from and to where the caller sees it.
    };

    /// A bucket in this step.
    struct Flight {
        std::size_t missing_count = 0;
        Work work;
        Instant issued_at;
    };

    [[nodiscard]] bool is_callers(std::size_t index) const {
        return parameters_[index].gradient.data != nullptr;
    }
    [[nodiscard]] TensorView place_of(std::size_t index) const {
        return is_callers(index) ? parameters_[index].gradient : memory_->gradient(index);
    }
    [[nodiscard]] std::vector<std::size_t> agree_on_known_order();
    void adopt_plan(std::vector<Bucket> plan);
    void copy_in(std::size_t index);
    void begin_step();
    void give_up_step() noexcept;
    void check_reportable(std::size_t index) const;
    void report(Slot& slot, std::size_t index);
    void report_without_gradient(std::size_t index);
    void start_complete_buckets();
    void start_bucket(std::size_t at);
    [[nodiscard]] Reduction reduction() const;
    void report_missing();
    void finish_buckets();
    void agree_on_used();
    void copy_out();
    void rebuild_buckets();
    void broadcast(std::span<const TensorView> tensors, std::uint32_t root);

    ProcessGroup& group_;
    std::vector<Parameter> parameters_;  // Their gradients have counts and dtypes.
    const std::vector<TensorView> buffers_;
    const DataParallelOptions options_;
    StreamScope stream_;
    std::unique_ptr<GradientDevice> device_;
    HostExchange exchange_;
    std::vector<Bucket> plan_;
    std::optional<GradientMemory> memory_;

    std::vector<Slot> slots_;              // by parameter
    std::vector<Flight> flights_;          // by bucket
    std::vector<GradientBucket> handles_;  // by bucket, for the hook
    std::uint64_t step_ = 1;               // the present one
    std::size_t reported_count_ = 0;
    std::size_t started_count_ = 0;  // buckets [0, started_count_) are in flight
    std::size_t no_sync_depth_ = 0;
    UnevenStep uneven_;

    KeptOrder kept_order_;
    bool recording_ = false;          // the first step: the order is being learned
    std::vector<std::size_t> order_;  // as gradients were reported in it
    std::vector<std::uint8_t> used_;  // by parameter, of the last step; with unused_parameters
    StepStatistics statistics_;
};

}  // namespace regroup::ddp
