// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/link/robust_hold.h"

#include <limits>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace regroup::link {

RobustHold::RobustHold(std::atomic<std::uint32_t>& word) {
    static_assert(sizeof(Head) == sizeof(robust_list_head));
    node_.next = &head_.list;
    head_.list.next = &node_;
    head_.futex_offset = reinterpret_cast<std::byte*>(&word) - reinterpret_cast<std::byte*>(&node_);
    held_ = ::syscall(SYS_get_robust_list, 0, &before_, &before_bytes_) == 0 &&
            ::syscall(SYS_set_robust_list, &head_, sizeof head_) == 0;
    if (held_) {
        // In this order: the kernel passes over a word that does not name the thread.
        word.store(static_cast<std::uint32_t>(::syscall(SYS_gettid)));
        wake_all(word);
    }
}

void RobustHold::release() noexcept {
    if (held_) {
        held_ = false;
        ::syscall(SYS_set_robust_list, before_, before_bytes_);
    }
}

void wake_all(std::atomic<std::uint32_t>& word) noexcept {
    ::syscall(SYS_futex, &word, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

}  // namespace regroup::link
