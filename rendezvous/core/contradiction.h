// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// The first field in which a newcomer's policy contradicts the job's, with both values, as the
/// flag that people know: "--nnodes is 2:4 here, 2:3 there". Nothing when they agree.
[[nodiscard]] std::optional<std::string> contradiction(const JobPolicy& job,
                                                       const JobPolicy& newcomer);

/// "2:4", as --nnodes has it.
[[nodiscard]] std::string nodes_range(const JobPolicy& policy);

}  // namespace regroup::rendezvous
