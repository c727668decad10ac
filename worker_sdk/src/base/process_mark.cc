// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/base/process_mark.h"

#include <regroup/error.h>

#include <atomic>
#include <mutex>
#include <pthread.h>
#include <string>
#include <vector>

namespace regroup {
namespace {

std::atomic<std::uint64_t> number = 1;

/// Counts in each forked child. Before the first mark there is nothing to tell apart.
void count_forks() noexcept {
    [[maybe_unused]] static const int registered =
        ::pthread_atfork(nullptr, nullptr, [] { number.fetch_add(1, std::memory_order_relaxed); });
}

}  // namespace

ProcessMark::ProcessMark() noexcept {
    count_forks();
    number_ = current();
}

std::uint64_t ProcessMark::current() noexcept {
    return number.load(std::memory_order_relaxed);
}

void ProcessMark::require(const char* call) const {
    if (!is_here()) {
        throw Error(Errc::invalid_argument,
                    std::string(call) +
                        ": this process was forked from a rank, and has none of its threads and "
                        "connections; only the rank itself may call it. End a forked child without "
                        "such calls, or let it begin with exec");
    }
}

void OwnerDeleter::keep(const void* object) {
    static std::mutex mutex;
    static auto* const kept = new std::vector<const void*>();
    const std::lock_guard lock(mutex);
    kept->push_back(object);
}

}  // namespace regroup
