// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace regroup::snapshot {

/// A few threads that share the work of one call. They sleep between calls.
class CopyPool {
   public:
    /// `threads` in all, the caller's included. Throws Error `system`.
    explicit CopyPool(unsigned threads);
    ~CopyPool();
    CopyPool(const CopyPool&) = delete;
    CopyPool& operator=(const CopyPool&) = delete;

    [[nodiscard]] unsigned threads() const noexcept {
        return static_cast<unsigned>(helpers_.size()) + 1;
    }
    /// Calls `work` with each number below `count`, once, and returns when all calls have returned.
    /// `work` throws nothing. One call at a time.
    void run(std::size_t count, const std::function<void(std::size_t)>& work);

   private:
    void help();
    void take();

    std::vector<std::thread> helpers_;
    std::mutex mutex_;
    std::condition_variable changed_;
    // Guarded by mutex_, except while the helpers of a call are at work.
    const std::function<void(std::size_t)>* work_ = nullptr;
    std::size_t count_ = 0;
    std::uint64_t call_ = 0;
    std::size_t busy_ = 0;
    bool is_over_ = false;
    std::atomic<std::size_t> next_ = 0;
};

}  // namespace regroup::snapshot
