// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <future>
#include <mutex>
#include <vector>

#include "worker_sdk/src/nccl/backend.h"

namespace regroup::nccl {

/// Frees what may take for ever to free: ncclCommFinalize and ncclCommAbort end only when the CUDA
/// graphs are gone that hold operations of the communicator, and cudaFree waits for kernels that
/// may be waiting for a peer. Every job has a thread of its own, which owns what it frees; whoever
/// waits for it waits up to a limit and then lets it go on alone. Any thread.
class Reaper {
   public:
    Reaper(const Backend& backend, int device) : backend_(backend), device_(device) {}
    ~Reaper() = default;
    Reaper(const Reaper&) = delete;
    Reaper& operator=(const Reaper&) = delete;

    /// Begins `job`, which throws nothing, on the GPU; within another job it is done at once.
    void take(std::function<void()> job) noexcept;
    /// Waits for all that was taken, up to the limit of the backend, and says on stderr if that was
    /// not enough. What was waited for in vain is not waited for again.
    void await_all() noexcept;

   private:
    const Backend backend_;
    const int device_;
    std::mutex mutex_;
    std::vector<std::future<void>> under_way_;  // guarded by mutex_
};

}  // namespace regroup::nccl
