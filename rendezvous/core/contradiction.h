// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "rendezvous/core/job_policy.h"

namespace regroup::rendezvous {

/// A field in which two nodes disagree.
struct Contradiction {
    std::string field;  ///< The flag, or "the program".
    std::string here;   ///< The newcomer's value, as the flag has it.
    std::string there;
};

/// The first field in which a newcomer's policy contradicts the job's; nullopt when they agree.
[[nodiscard]] std::optional<Contradiction> contradiction(const JobPolicy& job,
                                                         const JobPolicy& newcomer);

/// "2:4", as --nnodes has it.
[[nodiscard]] std::string nodes_range(const JobPolicy& policy);

}  // namespace regroup::rendezvous
