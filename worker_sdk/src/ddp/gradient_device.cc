// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/ddp/gradient_device.h"

#include <cstring>

#include "worker_sdk/src/base/copy.h"

namespace regroup::ddp {
namespace {

class HostGradientDevice final : public GradientDevice {
   public:
    void copy(void* to, const void* from, std::size_t bytes) override {
        copy_bytes(to, from, bytes);
    }
    void set_zero(void* at, std::size_t bytes) override {
        if (bytes > 0) {
            std::memset(at, 0, bytes);
        }
    }
    void read(void* host, const void* from, std::size_t bytes) override {
        copy_bytes(host, from, bytes);
    }
    void write(void* to, const void* host, std::size_t bytes) override {
        copy_bytes(to, host, bytes);
    }
    void fork() override {}
    void join() override {}
    [[nodiscard]] Stream side_stream() const override { return {}; }
    void settle() noexcept override {}
};

}  // namespace

std::unique_ptr<GradientDevice> make_gradient_device(const Device& device, Stream stream) {
    if (device.kind == DeviceKind::cuda) {
        return make_cuda_gradient_device(device, stream);
    }
    return std::make_unique<HostGradientDevice>();
}

}  // namespace regroup::ddp
