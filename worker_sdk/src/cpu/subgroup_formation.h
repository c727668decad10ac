// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "worker_sdk/src/cpu/cpu_process_group.h"

namespace regroup::cpu {

/// A group as its division sees it.
struct Parent {
    ProcessGroup& group;
    const GroupPosition& position;
    const std::vector<Peer>& peers;
    std::uint64_t division;  ///< How many there have been before.
};

/// ProcessGroup::new_group for a group with more than one rank. The ranks tell each other where
/// they listen through the parent: nothing else is needed, no store either. Requires
/// `check_members`.
[[nodiscard]] std::unique_ptr<ProcessGroup> form_subgroup(const Parent& parent,
                                                          const std::vector<std::uint32_t>& ranks,
                                                          const ProcessGroupOptions& options,
                                                          FormationOptions formation);

}  // namespace regroup::cpu
