// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/form_group.h"

#include <regroup/cuda.h>
#include <regroup/error.h>

#include <future>
#include <memory>
#include <string>

#include "rendezvous/base/result.h"
#include "worker_sdk/src/base/helper_thread.h"
#include "worker_sdk/src/cuda/cuda_runtime.h"
#include "worker_sdk/src/cuda/device_choice.h"
#include "worker_sdk/src/cuda/environment.h"
#include "worker_sdk/src/nccl/formation.h"
#include "worker_sdk/src/nccl/nccl_api.h"

namespace regroup::nccl {
namespace {

[[noreturn]] void refuse(const std::string& detail) {
    throw Error(Errc::invalid_argument, detail);
}

void check(const cuda::Environment& environment) {
    if (environment.nccl_comm_id) {
        refuse("NCCL_COMM_ID=" + *environment.nccl_comm_id +
               " is set: with it every group of every round would meet at one "
               "address, and a worker of an older round could get in; unset it, "
               "regroup makes a fresh id for each group");
    }
    if (environment.nccl_blocks) {
        refuse(
            "NCCL_COMM_BLOCKING is set: it overrides whether NCCL's calls wait for other ranks, "
            "and regroup could not end such a wait if a rank dies; unset it "
            "(REGROUP_NCCL_BLOCKING=1 makes calls wait that regroup can end)");
    }
    if (environment.nccl_splits_share) {
        refuse(
            "NCCL_COMM_SPLIT_SHARE_RESOURCES=1 is set: with it the abort of a sub-group ends "
            "its parent, too; unset it");
    }
}

/// As cuda::device_of. The driver is about to be initialised, so it is asked for the GPUs.
Device device_for(const Context& context, const ProcessGroupOptions& options,
                  const cuda::Environment& environment) {
    const int count = cuda::cuda_runtime().device_count();
    if (!options.device) {
        return {DeviceKind::cuda, cuda::choose_device({.local_rank = context.local_rank,
                                                       .local_world_size = context.local_world_size,
                                                       .device_count = count,
                                                       .visible = environment.visible_devices,
                                                       .share = environment.share_gpus})};
    }
    if (*options.device < 0 || *options.device >= count) {
        refuse("there is no cuda:" + std::to_string(*options.device) + "; this process sees " +
               std::to_string(count) + (count == 1 ? " GPU" : " GPUs"));
    }
    return {DeviceKind::cuda, *options.device};
}

/// An exception would be shared with the thread, which destroys it at any time.
using OpenedApi = Result<const NcclApi*>;

OpenedApi open_api() {
    try {
        return &installed_api();
    } catch (const Error& error) {
        return Failure(error.code(), error.what());
    }
}

const NcclApi& api_of(std::future<OpenedApi>& opened) {
    const OpenedApi api = opened.get();
    if (!api) {
        throw Error(api.error().code, api.error().detail);
    }
    return **api;
}

std::future<OpenedApi> open_in_background() {
    const auto open = std::make_shared<std::packaged_task<OpenedApi()>>(open_api);
    std::future<OpenedApi> opened = open->get_future();
    try {
        // Unlike a thread of std::async, it never runs the program's signal handlers.
        start_helper_thread("regroup-nccl", [open] { (*open)(); }).detach();
    } catch (const Error&) {
        (*open)();  // The system cannot create a thread.
    }
    return opened;
}

}  // namespace

std::unique_ptr<ProcessGroup> form_group(const Context& context,
                                         const ProcessGroupOptions& options) {
    const cuda::Environment environment = cuda::Environment::read();
    const NcclApi* api = nullptr;
    Device device;
    try {
        check(environment);
        // Each takes a tenth of a second or more: the library, and the context of the GPU.
        std::future<OpenedApi> opened = open_in_background();
        try {
            device = device_for(context, options, environment);
            const cuda::DeviceScope scope(cuda::cuda_runtime(), device.index);
            cuda::cuda_runtime().set_device(device.index);  // Makes the context.
        } catch (const Error&) {
            static_cast<void>(api_of(opened));  // Its error comes first.
            throw;
        }
        api = &api_of(opened);
        cuda::turn_off_ras();
        cuda::turn_off_profiler();
        if (environment.share_gpus) {
            cuda::let_ranks_share_a_gpu(context.rank);
        }
    } catch (const Error& error) {
        say_given_up(context, options, error.what());
        throw;
    }
    return form_group_on(
        {.api = *api, .runtime = cuda::cuda_runtime(), .blocking = environment.blocking_calls},
        context, options, device, {.share_gpus = environment.share_gpus});
}

}  // namespace regroup::nccl
