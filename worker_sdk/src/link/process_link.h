// SPDX-License-Identifier: Apache-2.0
//
// The one link that a process has to its agent. There is one because there is one process: its
// death, its exit and its checkpoints belong to no object of the program's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "worker_sdk/src/link/agent_link.h"

namespace regroup::link {

/// Attaches this process, which has not been. The link lives until the process ends; exit() and
/// quick_exit() tell the agent that the end is in order. Failures as AgentLink::attach.
Result<void> attach_process(const std::string& socket, const std::string& worker_id);

/// nullptr if this process is not attached; also in one that an attached process has forked.
[[nodiscard]] std::shared_ptr<AgentLink> process_link();

/// When the history of the training began that this process takes part in, in ns of the real time
/// clock; 0 as long as it takes part in none. A job that starts with nobody left of its earlier
/// rounds begins another, which is later than that of any checkpoint it has read. Any thread.
[[nodiscard]] std::uint64_t history() noexcept;
void enter_history(std::uint64_t began) noexcept;
/// A checkpoint of that history was read.
void note_history_read(std::uint64_t began) noexcept;
/// For a job that has to begin one.
[[nodiscard]] std::uint64_t new_history() noexcept;

}  // namespace regroup::link
