// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <memory>
#include <optional>
#include <string>

#include "worker_sdk/src/nccl/lane.h"

namespace regroup::nccl {

/// What bears on forming a group beside what its user says.
struct FormationOptions {
    bool share_gpus = false;  ///< Ranks may be on one GPU.
    /// Limit for the ranks to meet, if not that of the group, which then holds for each later step.
    std::optional<Duration> meeting_limit{};
};

/// Forms the group of all ranks of `context` on `device`, with whatever NCCL and CUDA `backend` is.
/// The backend outlives the group. Throws as ProcessGroup::create.
[[nodiscard]] std::unique_ptr<ProcessGroup> form_group_on(const Backend& backend,
                                                          const Context& context,
                                                          const ProcessGroupOptions& options,
                                                          Device device,
                                                          const FormationOptions& formation);

/// Tells the others, who are forming the group, that this rank cannot: it never comes to
/// form_group_on.
void say_given_up(const Context& context, const ProcessGroupOptions& options,
                  const std::string& reason) noexcept;

}  // namespace regroup::nccl
