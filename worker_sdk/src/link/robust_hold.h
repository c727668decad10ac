// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace regroup::link {

/// Holds a robust futex for one thread: when the thread ends without `release`, the kernel marks
/// the word with FUTEX_OWNER_DIED and wakes its waiters. It does so before it frees the memory of
/// the process, so at once, also for large processes.
///
/// The kernel keeps one list of robust futexes for each thread, and the C library has registered
/// one for its robust mutexes. This object replaces it, so the thread must lock no robust mutex.
/// Created, released and destroyed on that thread. The kernel reads the object when the thread
/// ends.
class RobustHold {
   public:
    /// `word` lies in shared memory and holds 0, or the value that the previous holder left.
    explicit RobustHold(std::atomic<std::uint32_t>& word);
    ~RobustHold() { release(); }
    RobustHold(const RobustHold&) = delete;
    RobustHold& operator=(const RobustHold&) = delete;

    /// Leaves the value of the word unchanged and wakes no waiter.
    void release() noexcept;
    /// Whether the kernel accepted the list. If not, a death is detected later by other means.
    [[nodiscard]] bool held() const noexcept { return held_; }

   private:
    /// The list that the kernel reads: struct robust_list, which is circular.
    struct ListNode {
        ListNode* next;
    };
    /// struct robust_list_head.
    struct Head {
        ListNode list;
        std::ptrdiff_t futex_offset;  ///< From a node to its word.
        ListNode* pending;
    };

    Head head_{};
    ListNode node_{};
    void* before_ = nullptr;
    std::size_t before_bytes_ = 0;
    bool held_ = false;
};

/// Wakes all waiters for the word, in any process.
void wake_all(std::atomic<std::uint32_t>& word) noexcept;

}  // namespace regroup::link
