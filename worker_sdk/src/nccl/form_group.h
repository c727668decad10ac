// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <memory>

namespace regroup::nccl {

/// ProcessGroup::create for "nccl".
[[nodiscard]] std::unique_ptr<ProcessGroup> form_group(const Context& context,
                                                       const ProcessGroupOptions& options);

}  // namespace regroup::nccl
