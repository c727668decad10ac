// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cuda/device_choice.h"

#include <regroup/error.h>

#include "rendezvous/base/printable.h"

namespace regroup::cuda {
namespace {

[[noreturn]] void refuse(const DeviceRequest& request) {
    const std::string visible = request.visible
                                    ? "CUDA_VISIBLE_DEVICES=\"" + *request.visible + "\""
                                    : "CUDA_VISIBLE_DEVICES is not set";
    throw Error(
        Errc::invalid_argument,
        (request.local_world_size == 1 ? "1 process"
                                       : std::to_string(request.local_world_size) + " processes") +
            " of this node (LOCAL_WORLD_SIZE) " + "cannot each have a GPU of its own: there " +
            (request.device_count == 1 ? "is " : "are ") +
            counted(static_cast<std::size_t>(request.device_count), "GPU") + " (" + visible +
            "); start fewer processes, or for a test let them share with " +
            "REGROUP_SHARE_GPUS=1");
}

}  // namespace

std::int32_t choose_device(const DeviceRequest& request) {
    const auto count = static_cast<std::uint32_t>(request.device_count);
    if (request.device_count <= 0) {
        throw Error(Errc::invalid_argument, "there is no GPU that this process can use");
    }
    if (request.share) {
        return static_cast<std::int32_t>(request.local_rank % count);
    }
    // With one entry the launcher may have given each process its own GPU. If all processes have
    // the same GPU, forming the group reports it.
    const bool one_left = count == 1 && request.visible && !request.visible->empty() &&
                          request.visible->find(',') == std::string::npos;
    if (one_left) {
        return 0;
    }
    if (request.local_world_size > count || request.local_rank >= count) {
        refuse(request);
    }
    return static_cast<std::int32_t>(request.local_rank);
}

}  // namespace regroup::cuda
