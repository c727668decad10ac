// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/link/process_link.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <unistd.h>
#include <utility>

namespace regroup::link {
namespace {

/// The link and the process that owns it; never destroyed, since it must last until the process
/// ends. A forked child sees that it is not the owner. There is no lock, since a child could find
/// it locked.
std::atomic<pid_t> owner = 0;
std::atomic<const std::shared_ptr<AgentLink>*> only_link = nullptr;

std::atomic<std::uint64_t> entered_history = 0;
std::atomic<std::uint64_t> latest_history_read = 0;

void mark_exiting() {
    // A forked child that exits says nothing about its parent.
    if (const auto link = process_link()) {
        link->page().exiting.store(1);
    }
}

}  // namespace

Result<void> attach_process(const std::string& socket, const std::string& worker_id) {
    Result<std::shared_ptr<AgentLink>> link = AgentLink::attach(socket, worker_id);
    if (!link) {
        return link.error();
    }
    // Exit handlers run in reverse order of registration: this one runs before those of main's
    // statics.
    std::atexit(mark_exiting);
    std::at_quick_exit(mark_exiting);
    owner = ::getpid();
    only_link = new std::shared_ptr<AgentLink>(std::move(*link));
    return {};
}

std::shared_ptr<AgentLink> process_link() {
    const auto* const link = only_link.load();
    return link != nullptr && owner == ::getpid() ? *link : nullptr;
}

std::uint64_t history() noexcept {
    return entered_history;
}

void enter_history(std::uint64_t began) noexcept {
    entered_history = began;
}

void note_history_read(std::uint64_t began) noexcept {
    std::uint64_t latest = latest_history_read;
    while (began > latest && !latest_history_read.compare_exchange_weak(latest, began)) {
    }
}

std::uint64_t new_history() noexcept {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::max(static_cast<std::uint64_t>(
                        std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()),
                    latest_history_read.load() + 1);
}

}  // namespace regroup::link
