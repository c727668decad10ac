// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <memory>
#include <optional>
#include <string>

#include "worker_sdk/src/nccl/backend.h"

namespace regroup::nccl {

/// Options for forming a group that its user does not set.
struct FormationOptions {
    bool share_gpus = false;  ///< Ranks may be on one GPU.
    /// Limit for the ranks to meet, if not that of the group, which then holds for each later step.
    std::optional<Duration> meeting_limit{};
};

/// Forms the group of all ranks of `context` on `device`, with the NCCL and CUDA of `backend`.
/// `backend` must outlive the group. Throws as ProcessGroup::create.
[[nodiscard]] std::unique_ptr<ProcessGroup> form_group_on(const Backend& backend,
                                                          const Context& context,
                                                          const ProcessGroupOptions& options,
                                                          Device device,
                                                          const FormationOptions& formation);

/// Tells the ranks that are forming the group that this rank will not call form_group_on.
void say_given_up(const Context& context, const ProcessGroupOptions& options,
                  const std::string& reason) noexcept;

}  // namespace regroup::nccl
