// SPDX-License-Identifier: Apache-2.0
// GPUs as the SDK sees them. No CUDA header is needed to include this, and no GPU to call it.
#pragma once

#include <regroup/context.h>
#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace regroup::cuda {

/// What there is of CUDA and NCCL, each with the reason if not.
struct Availability {
    bool built_in = false;          ///< This build has the "nccl" back end and the GPU code.
    std::int32_t device_count = 0;  ///< GPUs that this process can use.
    /// NCCL's version, as 22809 for 2.28.9; 0 if libnccl.so.2 cannot be opened.
    std::int32_t nccl_version = 0;
    /// What is missing and what to do about it, in one sentence; empty if a group can be formed.
    std::string problem{};
};

/// Looks, without starting anything on a GPU. Never throws for what is missing.
[[nodiscard]] Availability availability();

/// The GPU of this process: its local rank counted through the GPUs that it sees, so that each
/// process of a node has one of its own. If the launcher left each process exactly one
/// (CUDA_VISIBLE_DEVICES differs by rank), that one. Throws Error `invalid_argument` if there are
/// fewer GPUs than local ranks, naming both numbers and CUDA_VISIBLE_DEVICES, or none at all.
/// REGROUP_SHARE_GPUS=1 in the environment lets ranks share GPUs round-robin, for tests.
[[nodiscard]] Device device_of(const Context& context);

/// Makes `device` the current one of this thread, as cudaSetDevice. Throws Error `system`.
void set_device(const Device& device);

/// Zeroed memory on `device`, a GPU or the CPU, aligned to 256 bytes; nobody else has to call
/// anything, unlike ProcessGroup::allocate. Freeing it waits until that GPU is idle, as cudaFree
/// does. Throws Error: `invalid_argument` if there is no such GPU or this build has no GPU code;
/// `system` if there is not that much memory left.
[[nodiscard]] Buffer allocate(const Device& device, std::size_t bytes);

/// Copies between host memory and a GPU, between GPUs, or within either: as many elements of the
/// same type, in the order of `stream`, which is one of the GPU's (of the one copied to, if there
/// are two). Blocks until the copy is done if either side is host memory; between GPUs it is only
/// put into the stream. A group's operations are in a stream of their own: wait for their Work
/// first, unless `use_stream` has put them into this one. Operations that are issued afterwards see
/// what was copied.
/// Throws Error: `invalid_argument` if counts or types differ, data is missing, there is no such
/// GPU, or this build has no GPU code; `system` for what CUDA says.
void copy(TensorView to, ConstTensorView from, Stream stream = {});

}  // namespace regroup::cuda
