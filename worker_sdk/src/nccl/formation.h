// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <memory>
#include <optional>

#include "worker_sdk/src/nccl/lane.h"

namespace regroup::nccl {

/// What of the environment bears on forming a group.
struct FormationOptions {
    bool share_gpus = false;  ///< Ranks may be on one GPU.
};

/// Forms the group of all ranks of `context` on `device`, with whatever NCCL and CUDA `backend` is.
/// The backend outlives the group. Throws as ProcessGroup::create.
[[nodiscard]] std::unique_ptr<ProcessGroup> form_group_on(const Backend& backend,
                                                          const Context& context,
                                                          const ProcessGroupOptions& options,
                                                          Device device,
                                                          const FormationOptions& formation);

}  // namespace regroup::nccl
