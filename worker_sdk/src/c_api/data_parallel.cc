// SPDX-License-Identifier: Apache-2.0
#include <regroup/c_api_training.h>
#include <regroup/communication_hook.h>
#include <regroup/distributed_data_parallel.h>

#include "worker_sdk/src/c_api/call.h"

using regroup::DistributedDataParallel;
using regroup::c_api::Call;
using regroup::c_api::guarded;

struct regroup_ddp {
    const std::shared_ptr<regroup::ProcessGroup> group;
    DistributedDataParallel value;
    std::vector<std::unique_ptr<DistributedDataParallel::NoSync>> no_sync{};
};

namespace {

regroup::DataParallelOptions read_options(const Call& call, const regroup_ddp_options& options) {
    call.require_size(options, "options");
    regroup::DataParallelOptions result;
    if (options.bucket_bytes != 0) {
        result.bucket_bytes = options.bucket_bytes;
    }
    if (options.first_bucket_bytes != 0) {
        result.first_bucket_bytes = options.first_bucket_bytes;
    }
    if (options.sum_gradients != 0) {
        result.reduction = regroup::ReduceOp::sum;
    }
    result.rebuild_buckets = options.fixed_buckets == 0;
    result.unused_parameters = options.unused_parameters != 0;
    result.broadcast_buffers_each_step = options.broadcast_buffers_each_step != 0;
    if (options.wire != 0) {
        result.hook = regroup::low_precision_hook(call.dtype(options.wire, "wire"));
    }
    result.stream = {.handle = options.stream};
    return result;
}

regroup::TensorView read_gradient(const Call& call, const regroup_tensor& gradient) {
    if (gradient.data != nullptr || gradient.count == 0) {
        return call.tensor(gradient, "a gradient");
    }
    regroup_tensor checked = gradient;
    checked.count = 0;
    regroup::TensorView view = call.tensor(checked, "a gradient");
    view.count = gradient.count;
    return view;
}

/// A call that has only the handle.
regroup_errc with(const char* function, regroup_ddp* ddp, const auto& action) {
    return guarded(function, [&](const Call& call) { action(call(ddp, "ddp").value); });
}

}  // namespace

regroup_errc regroup_ddp_create(regroup_group* group, const regroup_parameter* parameters,
                                size_t parameter_count, const regroup_tensor* buffers,
                                size_t buffer_count, const regroup_ddp_options* options,
                                regroup_ddp** ddp) {
    return guarded(__func__, [&](const Call& call) {
        regroup_ddp*& result = call.result(ddp, "ddp");
        const std::shared_ptr<regroup::ProcessGroup>& opened = call(group, "group").value;
        std::vector<regroup::Parameter> values;
        for (const auto& parameter : call.copy(parameters, parameter_count, "parameters")) {
            values.push_back({.value = call.tensor(parameter.value, "a parameter's value"),
                              .gradient = read_gradient(call, parameter.gradient)});
        }
        std::vector<regroup::TensorView> views;
        for (const auto& buffer : call.copy(buffers, buffer_count, "buffers")) {
            views.push_back(call.tensor(buffer, "a buffer"));
        }
        const regroup::DataParallelOptions chosen =
            options == nullptr ? regroup::DataParallelOptions() : read_options(call, *options);
        result = new regroup_ddp{
            opened, DistributedDataParallel(*opened, std::move(values), std::move(views), chosen)};
    });
}

regroup_errc regroup_ddp_gradient(const regroup_ddp* ddp, size_t index, regroup_tensor* gradient) {
    return guarded(__func__, [&](const Call& call) {
        regroup_tensor& result = call(gradient, "gradient");
        const regroup::TensorView view = call(ddp, "ddp").value.gradient(index);
        result = {view.data, view.count, static_cast<regroup_dtype>(view.dtype),
                  static_cast<regroup_device_kind>(view.device.kind), view.device.index};
    });
}

regroup_errc regroup_ddp_zero_gradients(regroup_ddp* ddp) {
    return with(__func__, ddp, [](auto& opened) { opened.zero_gradients(); });
}

regroup_errc regroup_ddp_gradient_ready(regroup_ddp* ddp, size_t index) {
    return with(__func__, ddp, [index](auto& opened) { opened.gradient_ready(index); });
}

regroup_errc regroup_ddp_gradient_unused(regroup_ddp* ddp, size_t index) {
    return with(__func__, ddp, [index](auto& opened) { opened.gradient_unused(index); });
}

regroup_errc regroup_ddp_finish_step(regroup_ddp* ddp) {
    return with(__func__, ddp, [](auto& opened) { opened.finish_step(); });
}

regroup_errc regroup_ddp_reduce_gradients(regroup_ddp* ddp) {
    return with(__func__, ddp, [](auto& opened) { opened.reduce_gradients(); });
}

regroup_errc regroup_ddp_was_used(const regroup_ddp* ddp, size_t index, int32_t* used) {
    return guarded(__func__, [&](const Call& call) {
        int32_t& result = call(used, "used");
        result = call(ddp, "ddp").value.was_used(index) ? 1 : 0;
    });
}

regroup_errc regroup_ddp_no_sync_begin(regroup_ddp* ddp) {
    return guarded(__func__, [&](const Call& call) {
        regroup_ddp& handle = call(ddp, "ddp");
        handle.no_sync.reserve(handle.no_sync.size() + 1);
        handle.no_sync.emplace_back(new DistributedDataParallel::NoSync(handle.value.no_sync()));
    });
}

regroup_errc regroup_ddp_no_sync_end(regroup_ddp* ddp) {
    return guarded(__func__, [&](const Call& call) {
        regroup_ddp& handle = call(ddp, "ddp");
        if (handle.no_sync.empty()) {
            call.refuse("there was no regroup_ddp_no_sync_begin before");
        }
        handle.no_sync.pop_back();
    });
}

regroup_errc regroup_ddp_broadcast_parameters(regroup_ddp* ddp, uint32_t root) {
    return with(__func__, ddp, [root](auto& opened) { opened.broadcast_parameters(root); });
}

regroup_errc regroup_ddp_broadcast_buffers(regroup_ddp* ddp) {
    return with(__func__, ddp, [](auto& opened) { opened.broadcast_buffers(); });
}

void regroup_ddp_free(regroup_ddp* ddp) {
    delete ddp;
}
