// SPDX-License-Identifier: Apache-2.0
//
// The only link of this process to its agent. The death of the process, its exit and its
// checkpoints belong to no object of the program.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "worker_sdk/src/link/agent_link.h"

namespace regroup::link {

/// Attaches this process; must be called once only. The link lives until the process ends; exit()
/// and quick_exit() tell the agent that the end is in order. Failures as AgentLink::attach.
Result<void> attach_process(const std::string& socket, const std::string& worker_id);

/// nullptr if this process is not attached; also in a fork of an attached process.
[[nodiscard]] std::shared_ptr<AgentLink> process_link();

/// The begin of the training history in which this process takes part, in ns of the real-time
/// clock; 0 if it takes part in none. A job without a survivor of its earlier rounds begins a new
/// history, which is later than that of any checkpoint that it has read. Any thread.
[[nodiscard]] std::uint64_t history() noexcept;
void enter_history(std::uint64_t began) noexcept;
/// Records that a checkpoint of that history was read.
void note_history_read(std::uint64_t began) noexcept;
/// The begin of a new history.
[[nodiscard]] std::uint64_t new_history() noexcept;

}  // namespace regroup::link
