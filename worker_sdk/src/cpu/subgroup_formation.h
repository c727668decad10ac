// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "worker_sdk/src/cpu/cpu_process_group.h"

namespace regroup::cpu {

/// The parent group of a new sub-group.
struct Parent {
    ProcessGroup& group;
    const GroupPosition& position;
    const std::vector<Peer>& peers;
    std::uint64_t division;  ///< The number of earlier divisions.
};

/// ProcessGroup::new_group for a group with more than one rank. The ranks exchange their addresses
/// through the parent, without the store. Requires `check_members`.
[[nodiscard]] std::unique_ptr<ProcessGroup> form_subgroup(const Parent& parent,
                                                          const std::vector<std::uint32_t>& ranks,
                                                          const ProcessGroupOptions& options,
                                                          FormationOptions formation);

}  // namespace regroup::cpu
