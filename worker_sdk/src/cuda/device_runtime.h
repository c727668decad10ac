// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/tensor_view.h>

#include <cstddef>
#include <exception>
#include <string>
#include <utility>

namespace regroup::cuda {

/// The part of the CUDA runtime that the SDK uses, as an interface, so that tests run without a
/// GPU. Streams and events are CUDA's handles; the null stream is CUDA's default stream. Calls act
/// on the calling thread's current device and throw Error `system` naming the CUDA call.
/// Thread-safe.
class DeviceRuntime {
   public:
    virtual ~DeviceRuntime() = default;
    DeviceRuntime() = default;
    DeviceRuntime(const DeviceRuntime&) = delete;
    DeviceRuntime& operator=(const DeviceRuntime&) = delete;

    /// Throws Error `invalid_argument` saying what is missing if there is no GPU or no driver.
    [[nodiscard]] virtual int device_count() = 0;
    /// The same, but leaves the driver uninitialised if it can: forks of this process can then use
    /// CUDA. It may count a GPU that is out of order.
    [[nodiscard]] virtual int peek_device_count() = 0;
    [[nodiscard]] virtual int current_device() = 0;
    /// Also creates the device's context if there is none yet, which takes a fraction of a second.
    virtual void set_device(int device) = 0;
    /// Whether this process has created the device's context. Does not create it.
    [[nodiscard]] virtual bool has_context(int device) = 0;
    /// The PCI address of the GPU, which does not depend on its ordinal in this process.
    [[nodiscard]] virtual std::string identity(int device) = 0;
    /// 90 for sm_90.
    [[nodiscard]] virtual int compute_capability(int device) = 0;

    /// For a thread that never captures a CUDA graph: its calls then disturb no capture elsewhere.
    virtual void stay_out_of_captures() = 0;

    /// A stream that does not wait for the default stream.
    [[nodiscard]] virtual void* create_stream() = 0;
    virtual void destroy_stream(void* stream) noexcept = 0;
    [[nodiscard]] virtual bool is_capturing(void* stream) = 0;

    [[nodiscard]] virtual void* create_event() = 0;
    virtual void destroy_event(void* event) noexcept = 0;
    virtual void record(void* event, void* stream) = 0;
    /// Makes later work in `stream` begin after `event`.
    virtual void wait(void* stream, void* event) = 0;
    /// True once everything before the last `record` is done. Never blocks.
    [[nodiscard]] virtual bool has_passed(void* event) = 0;

    /// Aligned to 256 bytes. Null if there is not that much.
    [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
    virtual void free(void* memory) noexcept = 0;
    /// Blocks until the bytes are zero.
    virtual void clear(void* memory, std::size_t bytes) = 0;
    /// Puts a copy into `stream`. Either side is memory of any GPU or of the host.
    virtual void copy(void* to, const void* from, std::size_t bytes, void* stream) = 0;
    /// Puts `to[i] = from[i] * factor` into `stream`, for values of a type of 8-bit floats, to
    /// which `factor` is rounded first.
    virtual void scale_float8(void* to, const void* from, DType dtype, std::size_t count,
                              float factor, void* stream) = 0;
    /// Blocks until everything in `stream` is done.
    virtual void synchronize(void* stream) = 0;
};

/// Makes a device the thread's current one for the time of a scope, and then restores the previous
/// one, unless this process has never used it. A thread that has chosen no GPU counts as on GPU 0;
/// restoring that would create a context of hundreds of megabytes in each process of a node.
class DeviceScope {
   public:
    DeviceScope(DeviceRuntime& runtime, int device)
        : runtime_(runtime), before_(runtime.current_device()) {
        if (before_ != device) {
            goes_back_ = runtime_.has_context(before_);
            runtime_.set_device(device);
        }
    }
    ~DeviceScope() {
        try {
            if (goes_back_) {
                runtime_.set_device(before_);
            }
        } catch (const std::exception&) {
            // The previous GPU is lost; its next use reports that.
        }
    }
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;

   private:
    DeviceRuntime& runtime_;
    const int before_;
    bool goes_back_ = false;
};

/// An event with an owner.
class Event {
   public:
    explicit Event(DeviceRuntime& runtime) : runtime_(&runtime), handle_(runtime.create_event()) {}
    Event(Event&& other) noexcept
        : runtime_(other.runtime_), handle_(std::exchange(other.handle_, nullptr)) {}
    Event& operator=(Event&& other) noexcept {
        std::swap(runtime_, other.runtime_);
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Event() {
        if (handle_ != nullptr) {
            runtime_->destroy_event(handle_);
        }
    }

    [[nodiscard]] void* get() const noexcept { return handle_; }

   private:
    DeviceRuntime* runtime_;
    void* handle_;
};

}  // namespace regroup::cuda
