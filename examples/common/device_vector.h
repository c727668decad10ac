// SPDX-License-Identifier: Apache-2.0
// Values for a program that computes on the host and communicates on its group's device.
#pragma once

#include <regroup/cuda.h>
#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace example {

/// Values on the host, and a copy on the device of a group for communication. On the CPU there is
/// no second copy: `view` is the host's memory, and `upload` and `download` do nothing.
template <class T>
class DeviceVector {
   public:
    explicit DeviceVector(std::size_t count, const regroup::Device& device = {})
        : DeviceVector(std::vector<T>(count), device) {}
    explicit DeviceVector(std::vector<T> values, const regroup::Device& device = {})
        : values_(std::move(values)), device_(device) {
        if (!on_host()) {
            memory_ = regroup::cuda::allocate(device, values_.size() * sizeof(T));
            upload();
        }
    }
    // A copy would share the device's memory.
    DeviceVector(const DeviceVector&) = delete;
    DeviceVector& operator=(const DeviceVector&) = delete;
    DeviceVector(DeviceVector&&) noexcept = default;
    DeviceVector& operator=(DeviceVector&&) noexcept = default;
    ~DeviceVector() = default;

    [[nodiscard]] std::size_t size() const { return values_.size(); }
    [[nodiscard]] std::span<T> host() { return values_; }
    [[nodiscard]] std::span<const T> host() const { return values_; }

    /// The argument for a group's operations.
    [[nodiscard]] regroup::TensorView view() {
        return {on_host() ? values_.data() : memory_.data, values_.size(),
                regroup::DTypeOf<T>::value, device_};
    }
    /// Call it after the host has written, before communication.
    void upload() {
        if (!on_host()) {
            regroup::cuda::copy(view(), std::span<const T>(values_));
        }
    }
    /// Call it after communication (after the wait for its Work), before the host reads.
    void download() {
        if (!on_host()) {
            regroup::cuda::copy(std::span<T>(values_), view());
        }
    }

   private:
    [[nodiscard]] bool on_host() const { return device_.kind == regroup::DeviceKind::cpu; }

    std::vector<T> values_;
    regroup::Device device_;
    regroup::Buffer memory_{};
};

}  // namespace example
