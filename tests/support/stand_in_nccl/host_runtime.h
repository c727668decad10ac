// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/stand_in_nccl/stand_in_nccl.h"
#include "worker_sdk/src/cuda/device_runtime.h"

namespace regroup::testing {

/// A stream without a GPU: a thread that runs one call after the other. During a capture, calls are
/// only recorded. They run at every replay.
class HostStream : public StandInStream {
   public:
    HostStream();
    ~HostStream();
    HostStream(const HostStream&) = delete;
    HostStream& operator=(const HostStream&) = delete;

    void put(std::function<void()> action);
    void begin_capture();
    void end_capture();
    [[nodiscard]] bool is_capturing() const;
    void replay();
    /// Waits until all calls have run.
    void synchronize();

   private:
    void run();

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> actions_;
    std::vector<std::function<void()>> captured_;
    bool capturing_ = false;
    bool busy_ = false;
    bool stopping_ = false;
    std::thread thread_;
};

/// The CUDA functions of the NCCL back end, on host memory, with `devices` virtual GPUs. Calls that
/// CUDA forbids during a capture throw.
class HostRuntime : public cuda::DeviceRuntime {
   public:
    explicit HostRuntime(int devices = 64, int capability = 90)
        : devices_(devices), capability_(capability) {}

    int device_count() override { return devices_; }
    int peek_device_count() override { return devices_; }
    int current_device() override;
    void set_device(int device) override;
    /// True for a device that some thread has set by set_device.
    bool has_context(int device) override;
    std::string identity(int device) override;
    int compute_capability(int /*device*/) override { return capability_; }
    void stay_out_of_captures() override;

    void* create_stream() override;
    void destroy_stream(void* stream) noexcept override;
    bool is_capturing(void* stream) override;

    void* create_event() override;
    void destroy_event(void* event) noexcept override;
    void record(void* event, void* stream) override;
    void wait(void* stream, void* event) override;
    bool has_passed(void* event) override;

    void* allocate(std::size_t bytes) override;
    void free(void* memory) noexcept override;
    void clear(void* memory, std::size_t bytes) override;
    void copy(void* to, const void* from, std::size_t bytes, void* stream) override;
    void scale_float8(void* to, const void* from, DType dtype, std::size_t count, float factor,
                      void* stream) override;
    void synchronize(void* stream) override;

    /// CUDA's default stream.
    [[nodiscard]] HostStream& default_stream() { return default_stream_; }
    /// From now on, threads of the back end cannot be set up.
    void refuse_threads() { refuses_threads_ = true; }
    /// From now on, this device has no memory left; none is full if negative.
    void fill(int device) { full_device_ = device; }
    /// The next question whether a stream is captured fails, on this device.
    void refuse_one_question(int device) { refusing_device_ = device; }
    /// Waits until every stream that was made has been destroyed; false at the deadline.
    [[nodiscard]] bool await_streams_gone(std::chrono::steady_clock::time_point deadline);

   private:
    [[nodiscard]] HostStream& stream_of(void* stream);

    const int devices_;
    const int capability_;
    HostStream default_stream_;
    std::atomic<bool> refuses_threads_ = false;
    std::atomic<int> full_device_ = -1;
    std::atomic<int> refusing_device_ = -1;
    std::mutex mutex_;
    std::condition_variable stream_gone_;
    std::set<int> contexts_;  // guarded by mutex_
    int streams_ = 0;         // guarded by mutex_
};

}  // namespace regroup::testing
