// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/stand_in_nccl/profiler.h"
#include "tests/support/stand_in_nccl/stand_in_nccl.h"
#include "tests/support/stand_in_nccl/wire.h"

namespace stand_in_nccl {

/// One operation of a group call.
struct Operation {
    FrameKind kind = FrameKind::collective;
    Collective op = Collective::all_reduce;
    std::uint32_t dtype = 0;
    std::uint32_t reduction = 0;
    int root = 0;
    const void* input = nullptr;
    std::size_t input_bytes = 0;
    void* output = nullptr;  ///< Left alone if null.
    std::size_t count = 0;
    std::vector<std::byte> factor{};  ///< Of a premultiplied sum.
    ProfiledOperation profiled{};
};

}  // namespace stand_in_nccl

/// The object of an ncclComm_t. Never freed, so that a use after the end is detected.
struct ncclComm {
    ncclComm(std::string hub_in, bool blocking_in);

    /// Runs `body`, on a thread if the communicator is non-blocking, and returns what the call of
    /// NCCL returns.
    ncclResult_t begin_job(std::function<ncclResult_t()> body);
    void join_job();
    /// Ends early when `stop` is set.
    ncclResult_t connect(const std::atomic<bool>& stop);
    /// Enqueues the operations of one group in `stream`.
    ncclResult_t enqueue(std::vector<stand_in_nccl::Operation> operations, StandInStream* stream);
    ncclResult_t split(int color, int key, ncclComm_t* child);
    /// As NCCL, which frees no resource that a CUDA graph still uses.
    void await_graphs() const;
    void say_goodbye();
    /// Requires that abort_flag is set, or that it has left.
    void close();

    const int number;
    const std::string hub;
    const bool blocking;
    int rank = 0;
    int world_size = 1;
    std::uint64_t child = 0;
    std::atomic<bool> abort_flag = false;
    std::atomic<int> job_state = ncclSuccess;
    std::atomic<int> async_error = ncclSuccess;
    std::atomic<int> inside = 0;
    std::atomic<bool> freed = false;
    bool finalized = false;
    std::map<int, std::vector<std::byte>> factors;  // by ncclRedOp_t
    int next_reduction = ncclNumOps;
    stand_in_nccl::Profiler profiler;

   private:
    struct Closure {
        ncclComm* comm;
        std::vector<stand_in_nccl::Operation> operations;
        bool is_captured;
        stand_in_nccl::ProfiledKernel kernel;
    };

    void run(const Closure& closure);
    [[nodiscard]] stand_in_nccl::ProfiledKernel profile(
        const std::vector<stand_in_nccl::Operation>& operations) const;

    /// Makes the object of the child first, as NCCL does, and then connects it.
    ncclResult_t make_child(int color, int key, ncclComm_t& made);
    bool exchange(const std::vector<stand_in_nccl::Operation>& operations);
    static void hang(const std::atomic<bool>& stop);

    std::array<std::unique_ptr<stand_in_nccl::Line>, 2> lines_;
    std::thread job_;
    /// Kept, since every replay runs a captured operation again.
    std::deque<Closure> closures_;
    std::mutex stream_mutex_;
    std::atomic<int> running_ = 0;
    int operations_ = 0;
    int launches_ = 0;
    std::uint64_t sequence_ = 0;
};
