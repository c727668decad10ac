// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/futex.h"

#include <chrono>
#include <ctime>
#include <limits>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace regroup::cpu {

// Not the private kind: other processes wait on the same word.
void sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t value,
              Duration limit) noexcept {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(limit);
    const timespec time{.tv_sec = seconds.count(), .tv_nsec = (limit - seconds).count()};
    ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void wake_all(const std::atomic<std::uint32_t>& word) noexcept {
    ::syscall(SYS_futex, &word, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

}  // namespace regroup::cpu
