// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "rendezvous/core/job_status.h"

namespace regroup::rendezvous {

struct NamedStatus {
    std::string job;
    JobStatus status;
    std::string journal{};  ///< Journal::trouble; may be empty.
};

/// The answer to `regroup status`: a JSON object with one element of `jobs` for each job, of at
/// most `bytes_max` bytes. If it does not fit, old incidents and the last nodes are left out first,
/// then jobs; `nodes_left_out` and `jobs_left_out` count them.
[[nodiscard]] std::string status_text(const std::vector<NamedStatus>& jobs, std::size_t bytes_max);

}  // namespace regroup::rendezvous
