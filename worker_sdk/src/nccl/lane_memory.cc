// SPDX-License-Identifier: Apache-2.0
// Memory that a group allocates for callers, and the release of what a group holds.
#include <regroup/error.h>

#include <cstdint>
#include <utility>

#include "worker_sdk/src/nccl/lane.h"

namespace regroup::nccl {
namespace {

constexpr std::size_t kAlignment = 4096;
std::size_t rounded_up(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void Lane::free_blocks(const Backend& backend, std::span<const Block> blocks) noexcept {
    for (const Block& block : blocks) {
        if (block.by_nccl) {
            (void)backend.api.mem_free(block.base);
        } else {
            backend.runtime.free(block.base);
        }
    }
}

/// The owner of the memory of a Buffer.
struct Lane::Memory {
    Memory(std::shared_ptr<Lane> lane_in, std::size_t bytes)
        : lane(std::move(lane_in)), block(lane->allocate_block(bytes)) {}
    ~Memory() {
        const std::shared_ptr<Reaper> reaper = lane->reaper_;
        if (block.base != nullptr) {
            lane->give_back(block);
        }
        lane.reset();
        // The caller may need the memory for something else.
        reaper->await_all();
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    std::shared_ptr<Lane> lane;
    const Block block;
};

Lane::Block Lane::allocate_block(std::size_t bytes) {
    Block block;
    // Neither function guarantees this alignment; ncclMemAlloc may use cudaMalloc.
    const std::size_t with_room = bytes + kAlignment;
    const NcclApi& api = backend_.api;
    block.by_nccl = api.mem_alloc != nullptr && api.mem_free != nullptr &&
                    api.mem_alloc(&block.base, with_room) == ncclSuccess && block.base != nullptr;
    if (!block.by_nccl) {
        block.base = backend_.runtime.allocate(with_room);
    }
    const auto address = reinterpret_cast<std::uintptr_t>(block.base);
    const std::size_t skipped = (kAlignment - address % kAlignment) % kAlignment;
    block.data = block.base == nullptr ? nullptr : static_cast<std::byte*>(block.base) + skipped;
    return block;
}

Buffer Lane::allocate(const std::shared_ptr<Lane>& lane, std::size_t bytes) {
    const Device device = lane->identity_.device;
    if (bytes == 0) {
        return {.device = device};
    }
    const cuda::DeviceScope scope(lane->backend_.runtime, device.index);
    const auto memory = std::make_shared<Memory>(lane, rounded_up(bytes));
    void* const data = memory->block.data;
    if (data == nullptr) {
        throw Error(Errc::system, "allocate" + lane->place_ + ": no " + std::to_string(bytes) +
                                      " bytes of GPU memory left");
    }
    lane->backend_.runtime.clear(data, bytes);
    const NcclApi& api = lane->backend_.api;
    void* handle = nullptr;
    if (memory->block.by_nccl && api.comm_register != nullptr && api.comm_deregister != nullptr) {
        // Registration is optional: it speeds up operations where the hardware supports it.
        const CommReport report = lane->communicator_->call([&](ncclComm_t comm) {
            return api.comm_register(comm, data, rounded_up(bytes), &handle);
        });
        if (report.state == CommState::ready && handle != nullptr) {
            const std::lock_guard lock(lane->mutex_);
            lane->registrations_.emplace(data, handle);
        }
    }
    return {.data = data, .bytes = bytes, .device = device, .owner = memory};
}

/// Frees `block` and the blocks kept before. Unlike cudaFree, ncclMemFree does not wait for
/// kernels. So the lane keeps memory while an operation is in flight or an abort of NCCL is under
/// way.
void Lane::give_back(const Block& block) {
    std::vector<Block> blocks;
    std::vector<void*> handles;
    {
        const std::lock_guard lock(mutex_);
        kept_.push_back(block);
        const bool ended = failure_ || posted_ || leaving_;
        if (!gone_ && (ended || issuing_ || !in_flight_.empty())) {
            return;
        }
        blocks.swap(kept_);
        for (const Block& each : blocks) {
            if (const auto node = registrations_.extract(each.data)) {
                handles.push_back(node.mapped());
            }
        }
    }
    for (void* const handle : handles) {
        (void)communicator_->call(
            [&](ncclComm_t comm) { return backend_.api.comm_deregister(comm, handle); });
    }
    reaper_->take([&api = backend_.api, &runtime = backend_.runtime, blocks] {
        free_blocks({api, runtime}, blocks);
    });
}

/// The communicator and its kernels have ended.
void Lane::note_gone() {
    std::vector<Block> blocks;
    {
        const std::lock_guard lock(mutex_);
        gone_ = true;
        blocks.swap(kept_);
    }
    free_blocks(backend_, blocks);
}

void Lane::leave() {
    std::map<void*, void*> registrations;
    {
        const std::lock_guard lock(mutex_);
        leaving_ = true;
        registrations.swap(registrations_);
    }
    for (const auto& [memory, handle] : registrations) {
        (void)communicator_->call([&, registered = handle](ncclComm_t comm) {
            return backend_.api.comm_deregister(comm, registered);
        });
    }
    // The other half of the limit is for the abort.
    const CommReport report =
        complete([](Communicator& communicator) { return communicator.begin_leaving(); },
                 after(SteadyClock().now(), backend_.freeing_max / 2));
    if (report.state == CommState::ready) {
        communicator_->finish_leaving();
    } else {
        Communicator* const self = communicator_.get();
        Communicator::abort_all(backend_.api, {&self, 1});
    }
    note_gone();
}

void Lane::drop_child() {
    const auto child = std::make_shared<Communicator>(backend_.api, backend_.blocking);
    if (communicator_->hand_child_to(*child)) {
        reaper_->take([&api = backend_.api, child] {
            Communicator* const self = child.get();
            Communicator::abort_all(api, {&self, 1});
        });
    }
}

void Lane::abort_all(const NcclApi& api, std::span<const std::shared_ptr<Lane>> lanes) {
    std::vector<Communicator*> communicators;
    for (const std::shared_ptr<Lane>& lane : lanes) {
        communicators.push_back(lane->communicator_.get());
    }
    Communicator::abort_all(api, communicators);
    for (const std::shared_ptr<Lane>& lane : lanes) {
        lane->note_gone();
    }
}

}  // namespace regroup::nccl
