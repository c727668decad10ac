// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace regroup::link {

/// Holds a robust futex for one thread: when the thread ends in any way but through `release`, the
/// kernel marks the word with FUTEX_OWNER_DIED and wakes who waits for it. It does so before it
/// takes the process's memory apart, and so at once, however much there is of it.
///
/// The kernel keeps one list of such words for each thread, and the C library has one registered
/// already, for its robust mutexes. This one takes its place: the thread must lock no such mutex.
/// Made, released and destroyed on that thread. The kernel reads the object when the thread ends.
class RobustHold {
   public:
    /// `word` lies in shared memory and holds 0, or what the holder before has left of it.
    explicit RobustHold(std::atomic<std::uint32_t>& word);
    ~RobustHold() { release(); }
    RobustHold(const RobustHold&) = delete;
    RobustHold& operator=(const RobustHold&) = delete;

    /// The word keeps its value: nobody is told anything.
    void release() noexcept;
    /// Whether the kernel has taken the list. If not, deaths are found by other means, later.
    [[nodiscard]] bool held() const noexcept { return held_; }

   private:
    /// What the kernel walks: struct robust_list, a list that ends where it began.
    struct Node {
        Node* next;
    };
    /// struct robust_list_head.
    struct Head {
        Node list;
        std::ptrdiff_t futex_offset;  ///< From a node to its word.
        Node* pending;
    };

    Head head_{};
    Node node_{};
    void* before_ = nullptr;
    std::size_t before_bytes_ = 0;
    bool held_ = false;
};

/// Wakes everybody, in any process, who waits for the word.
void wake_all(std::atomic<std::uint32_t>& word) noexcept;

}  // namespace regroup::link
