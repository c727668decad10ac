// SPDX-License-Identifier: Apache-2.0
// Memory that a group hands out, and what becomes of it when the group leaves.
#include <regroup/error.h>

#include <cstdint>
#include <utility>

#include "worker_sdk/src/nccl/lane.h"

namespace regroup::nccl {
namespace {

constexpr std::size_t kAlignment = 4096;
/// How long leaving in order may take: others are not waited for, but what is in the GPU is.
constexpr Duration kLeavingMax = std::chrono::seconds(10);

std::size_t rounded_up(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

/// What a Buffer owns.
struct Lane::Memory {
    Memory(std::shared_ptr<Lane> lane_in, std::size_t bytes) : lane(std::move(lane_in)) {
        const NcclApi& api = lane->backend_.api;
        if (api.mem_alloc != nullptr && api.mem_free != nullptr &&
            api.mem_alloc(&base, bytes) == ncclSuccess && base != nullptr) {
            by_nccl = true;
        } else {
            base = lane->backend_.runtime.allocate(bytes + kAlignment);
        }
        const auto address = reinterpret_cast<std::uintptr_t>(base);
        const std::size_t skipped = (kAlignment - address % kAlignment) % kAlignment;
        data = base == nullptr ? nullptr : static_cast<std::byte*>(base) + skipped;
    }
    ~Memory() {
        void* handle = nullptr;
        if (lane->take_registration(data, handle)) {
            (void)lane->communicator_.call(
                [&](ncclComm_t comm) { return lane->backend_.api.comm_deregister(comm, handle); });
        }
        try {
            const cuda::DeviceScope scope(lane->backend_.runtime, lane->identity_.device.index);
            if (by_nccl) {
                (void)lane->backend_.api.mem_free(base);
            } else if (base != nullptr) {
                lane->backend_.runtime.free(base);
            }
        } catch (const Error&) {
            // The device is lost, and its memory with it.
        }
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    std::shared_ptr<Lane> lane;
    void* base = nullptr;
    void* data = nullptr;
    bool by_nccl = false;
};

Buffer Lane::allocate(const std::shared_ptr<Lane>& lane, std::size_t bytes) {
    const Device device = lane->identity_.device;
    if (bytes == 0) {
        return {.device = device};
    }
    const cuda::DeviceScope scope(lane->backend_.runtime, device.index);
    const auto memory = std::make_shared<Memory>(lane, rounded_up(bytes));
    if (memory->data == nullptr) {
        throw Error(Errc::system, "allocate" + lane->place_ + ": no " + std::to_string(bytes) +
                                      " bytes of GPU memory left");
    }
    lane->backend_.runtime.clear(memory->data, bytes);
    const NcclApi& api = lane->backend_.api;
    void* handle = nullptr;
    if (memory->by_nccl && api.comm_register != nullptr && api.comm_deregister != nullptr) {
        // Registration makes it faster where the hardware can; without it everything works too.
        const CommReport report = lane->communicator_.call([&](ncclComm_t comm) {
            return api.comm_register(comm, memory->data, rounded_up(bytes), &handle);
        });
        if (report.state == CommState::ready && handle != nullptr) {
            const std::lock_guard lock(lane->mutex_);
            lane->registrations_.emplace(memory->data, handle);
        }
    }
    return {.data = memory->data, .bytes = bytes, .device = device, .owner = memory};
}

bool Lane::take_registration(void* data, void*& handle) {
    const std::lock_guard lock(mutex_);
    const auto found = registrations_.find(data);
    if (found == registrations_.end()) {
        return false;
    }
    handle = found->second;
    registrations_.erase(found);
    return true;
}

void Lane::leave() noexcept {
    std::map<void*, void*> registrations;
    {
        const std::lock_guard lock(mutex_);
        registrations.swap(registrations_);
    }
    for (const auto& [memory, handle] : registrations) {
        (void)communicator_.call([&, registered = handle](ncclComm_t comm) {
            return backend_.api.comm_deregister(comm, registered);
        });
    }
    CommReport report = communicator_.begin_leaving();
    if (report.state == CommState::in_progress) {
        report = await_ready(after(SteadyClock().now(), kLeavingMax));
    }
    if (report.state == CommState::ready) {
        communicator_.finish_leaving();
        return;
    }
    Communicator* const self = &communicator_;
    Communicator::abort_all(backend_.api, {&self, 1});
}

}  // namespace regroup::nccl
