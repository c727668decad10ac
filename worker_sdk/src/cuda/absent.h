// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace regroup::cuda {

/// The text of every error about GPUs in a build without CUDA.
inline constexpr const char* kAbsent =
    "this build of regroup has no \"nccl\" back end and no GPU code: build it where the CUDA "
    "toolkit 12 or newer and NCCL's header nccl.h are installed (cmake -DREGROUP_CUDA=ON says "
    "which of them is missing), or use \"cpu\" for buffers in host memory";

}  // namespace regroup::cuda
