// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <future>
#include <mutex>
#include <vector>

#include "worker_sdk/src/nccl/backend.h"

namespace regroup::nccl {

/// Frees resources whose release may block without a limit. ncclCommFinalize and ncclCommAbort
/// return only when the CUDA graphs that hold operations of the communicator are destroyed, and
/// cudaFree waits for kernels that may wait for a peer. Every job has its own thread, which owns
/// the resources. Callers wait up to a limit, and the job then continues in the background. Any
/// thread.
class Reaper {
   public:
    Reaper(const Backend& backend, int device) : backend_(backend), device_(device) {}
    ~Reaper() = default;
    Reaper(const Reaper&) = delete;
    Reaper& operator=(const Reaper&) = delete;

    /// Starts `job`, which must not throw, on the GPU. A call from within a job runs `job` at once.
    void take(std::function<void()> job) noexcept;
    /// Waits for all jobs up to the limit of the backend, and prints a message to stderr if that
    /// was not enough. It does not wait again for a job that exceeded the limit.
    void await_all() noexcept;

   private:
    const Backend backend_;
    const int device_;
    std::mutex mutex_;
    std::vector<std::future<void>> under_way_;  // guarded by mutex_
};

}  // namespace regroup::nccl
