// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/group/refusing_process_group.h"

#include <regroup/error.h>

#include "worker_sdk/src/base/text.h"
#include "worker_sdk/src/group/request.h"

namespace regroup {
RefusingProcessGroup::RefusingProcessGroup(std::string_view backend, Device device,
                                           std::string_view name, std::uint32_t rank,
                                           const std::vector<std::uint32_t>& members)
    : backend_(backend),
      device_(device),
      world_size_(static_cast<std::uint32_t>(members.size())),
      explanation_("rank " + std::to_string(rank) + " is not in group \"" + std::string(name) +
                   "\", which consists of " + listed_ranks(members) +
                   "; only its members may use it, and others see that by rank() == kNotAMember") {}

void RefusingProcessGroup::refuse(std::string_view operation) const {
    throw Error(Errc::invalid_argument, std::string(operation) + ": " + explanation_);
}

Work RefusingProcessGroup::issue(const OperationRequest& request) {
    refuse(name_of(request.kind));
}

std::unique_ptr<ProcessGroup> RefusingProcessGroup::new_group(
    const std::vector<std::uint32_t>& /*ranks*/, std::string_view /*name*/) {
    refuse("new_group");
}
Buffer RefusingProcessGroup::allocate(std::size_t /*bytes*/) {
    refuse("allocate");
}

void RefusingProcessGroup::abort(std::string_view /*reason*/) noexcept {
    // Nothing is ever in flight here.
}

}  // namespace regroup
