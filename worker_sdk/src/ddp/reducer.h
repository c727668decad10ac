// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/distributed_data_parallel.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "worker_sdk/src/base/learned_orders.h"
#include "worker_sdk/src/ddp/bucket_pipeline.h"
#include "worker_sdk/src/ddp/gradient_device.h"
#include "worker_sdk/src/ddp/gradient_memory.h"
#include "worker_sdk/src/ddp/host_exchange.h"
#include "worker_sdk/src/ddp/stream_scope.h"

namespace regroup::ddp {

/// A step in which some ranks have no input.
struct UnevenStep {
    bool has_input = true;               ///< Otherwise gradients that are not reported are zero.
    std::uint32_t first_with_input = 0;  ///< Its order and its buffers count.
    std::uint32_t divisor = 0;           ///< Of an average; 0: as in any other step.
};

/// A gradient in this step. Steps are counted, so that no flag must be cleared.
struct ReportedGradient {
    std::uint64_t reported_in = 0;     ///< The last step in which it was reported.
    std::uint64_t contributed_in = 0;  ///< The last one in which this rank had a gradient.
    std::uint32_t bucket = 0;
    bool is_copied = false;  ///< To and from its bucket, from and to where the caller sees it.
};

/// The state behind DistributedDataParallel. A step:
///
///     gradient_ready     tells the pipeline when it is final; the last one of a bucket starts it
///     finish_step        starts the rest; then waits, bucket by bucket
struct Reducer {
    Reducer(ProcessGroup& group_in, std::vector<Parameter> parameters_in,
            std::vector<TensorView> buffers_in, const DataParallelOptions& options_in);
    /// In the middle of a step it aborts the group.
    ~Reducer();
    Reducer(const Reducer&) = delete;
    Reducer& operator=(const Reducer&) = delete;

    ProcessGroup& group;
    std::vector<Parameter> parameters;  ///< Their gradients have counts and dtypes.
    const std::vector<TensorView> buffers;
    const DataParallelOptions options;
    StreamScope stream;
    std::unique_ptr<GradientDevice> device;
    HostExchange exchange;
    KeptOrder kept_order;
    std::unique_ptr<GradientMemory> memory{};
    BucketPipeline pipeline;

    std::vector<ReportedGradient> gradients;  ///< By parameter.
    std::uint64_t step = 1;                   ///< The present one.
    std::size_t reported_count = 0;
    std::size_t no_sync_depth = 0;
    UnevenStep uneven{};
    bool recording = false;            ///< The first step: the order is being learned,
    std::vector<std::size_t> order{};  ///< as gradients are reported in it.
    std::vector<std::uint8_t> used{};  ///< By parameter, of the last step; with unused_parameters.
};

}  // namespace regroup::ddp
