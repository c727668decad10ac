// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "agent/agent_core.h"

namespace regroup::agent {

/// What one worker's environment is made of.
struct WorkerIdentity {
    std::string job;
    Assignment assignment;
    std::string role;
    std::uint32_t local_rank = 0;
    std::uint32_t local_world_size = 1;
    std::uint32_t max_restarts = 0;
    /// Where the worker may describe its own error; empty for nowhere.
    std::string error_file;
};

/// `inherited` ("NAME=value" each) overlaid with the variables that torchrun gives its workers, and
/// REGROUP_ROUND. The contract of every launched program: names and spellings are PyTorch's.
[[nodiscard]] std::vector<std::string> worker_environment(std::vector<std::string> inherited,
                                                          const WorkerIdentity& worker);

/// The value of `name` in `environment`, or nullptr.
[[nodiscard]] const char* find_variable(const std::vector<std::string>& environment,
                                        const std::string& name);

}  // namespace regroup::agent
