// SPDX-License-Identifier: Apache-2.0
// GPUs of this process. This header needs no CUDA header, and its functions need no GPU.
#pragma once

#include <regroup/context.h>
#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace regroup::cuda {

/// Which parts of CUDA and NCCL are available, and the reason if one is not.
struct Availability {
    bool built_in = false;          ///< This build has the "nccl" back end and the GPU code.
    std::int32_t device_count = 0;  ///< GPUs that this process can use.
    /// NCCL's version, as 22809 for 2.28.9; 0 if libnccl.so.2 cannot be opened.
    std::int32_t nccl_version = 0;
    /// One sentence that names what is missing and what to do; empty if a group can be formed.
    std::string problem{};
};

/// Finds out what is available without using a GPU. Does not throw if something is missing. Where
/// NVIDIA's management library can count the GPUs, CUDA stays uninitialised, so that spawn() may
/// follow; it cannot where GPUs are divided (MIG).
[[nodiscard]] Availability availability();

/// The GPU of this process: the one with the index of its local rank, so that each process of a
/// node has its own GPU. If the launcher gave each process exactly one (CUDA_VISIBLE_DEVICES
/// differs by rank), that one. Throws Error `invalid_argument` if there are fewer GPUs than local
/// ranks, naming both numbers and CUDA_VISIBLE_DEVICES, or if there is no GPU. REGROUP_SHARE_GPUS=1
/// in the environment lets ranks share GPUs round-robin, for tests.
[[nodiscard]] Device device_of(const Context& context);

/// Makes `device` the current one of this thread, as cudaSetDevice. Throws Error `system`.
void set_device(const Device& device);

/// Returns zeroed memory on `device`, a GPU or the CPU, aligned to 256 bytes. Unlike
/// ProcessGroup::allocate, this is a local call. Freeing the memory waits until that GPU is idle,
/// as cudaFree does. Throws Error: `invalid_argument` if there is no such GPU or this build has no
/// GPU code; `system` if there is not that much memory left.
[[nodiscard]] Buffer allocate(const Device& device, std::size_t bytes);

/// Copies between host memory and a GPU, between GPUs, or within either: equal counts and types, in
/// the order of `stream`. The stream belongs to the GPU, or to the destination if there are two
/// GPUs. Blocks until the copy is done if either side is host memory; a copy between GPUs is only
/// put into the stream.
///
/// A group's operations are in a stream of the group: wait for their Work first, unless
/// `use_stream` has put them into this stream. Operations that are issued afterwards see the copied
/// values.
///
/// Throws Error: `invalid_argument` if counts or types differ, data is missing, there is no such
/// GPU, or this build has no GPU code; `system` if CUDA reports an error.
void copy(TensorView to, ConstTensorView from, Stream stream = {});

}  // namespace regroup::cuda
