// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/gpu_memory.h"

#include <regroup/error.h>

#include <utility>

namespace regroup::nccl {
namespace {

constexpr std::size_t kAlignment = 4096;
/// Of the barrier word, which the proposals follow.
constexpr std::size_t kWordBytes = 256;

std::size_t rounded_up(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

/// The owner of the memory of a Buffer.
struct GpuMemory::Owner {
    Owner(std::shared_ptr<GpuMemory> memory_in, std::size_t bytes)
        : memory(std::move(memory_in)), block(memory->allocate_block(bytes)) {}
    ~Owner() {
        const std::shared_ptr<Reaper> reaper = memory->reaper_;
        if (block.base != nullptr) {
            memory->give_back(block);
        }
        memory.reset();
        // The caller may need the memory for something else.
        reaper->await_all();
    }
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;

    std::shared_ptr<GpuMemory> memory;
    const Block block;
};

GpuMemory::GpuMemory(const Backend& backend, const GroupIdentity& identity,
                     Communicator& communicator, const InFlight& in_flight,
                     std::shared_ptr<Reaper> reaper)
    : backend_(backend),
      identity_(identity),
      communicator_(communicator),
      in_flight_(in_flight),
      reaper_(std::move(reaper)) {
    const std::size_t bytes = kWordBytes + identity_.members.size() * sizeof(Proposal);
    own_ = backend_.runtime.allocate(bytes);
    if (own_ == nullptr) {
        throw Error(Errc::system, to_string(identity_.device) + " has not even " +
                                      std::to_string(bytes) + " bytes of memory left");
    }
    backend_.runtime.clear(own_, bytes);
}

GpuMemory::~GpuMemory() {
    backend_.runtime.free(own_);
    free_blocks(backend_, kept_);
}

Proposal* GpuMemory::proposals() const noexcept {
    return reinterpret_cast<Proposal*>(static_cast<std::byte*>(own_) + kWordBytes);
}

void GpuMemory::free_blocks(const Backend& backend, std::span<const Block> blocks) noexcept {
    for (const Block& block : blocks) {
        if (block.by_nccl) {
            (void)backend.api.mem_free(block.base);
        } else {
            backend.runtime.free(block.base);
        }
    }
}

GpuMemory::Block GpuMemory::allocate_block(std::size_t bytes) const {
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

Buffer GpuMemory::allocate(std::shared_ptr<GpuMemory> memory, std::size_t bytes) {
    const Backend& backend = memory->backend_;
    const GroupIdentity& identity = memory->identity_;
    if (bytes == 0) {
        return {.device = identity.device};
    }
    const cuda::DeviceScope scope(backend.runtime, identity.device.index);
    const auto owner = std::make_shared<Owner>(std::move(memory), rounded_up(bytes));
    const Block& block = owner->block;
    if (block.data == nullptr) {
        throw Error(Errc::system, "allocate" + identity.place() + ": no " + std::to_string(bytes) +
                                      " bytes of GPU memory left");
    }
    backend.runtime.clear(block.data, bytes);
    owner->memory->register_block(block, rounded_up(bytes));
    return {.data = block.data, .bytes = bytes, .device = identity.device, .owner = owner};
}

/// Registration is optional: it speeds up operations where the hardware supports it.
void GpuMemory::register_block(const Block& block, std::size_t bytes) {
    const NcclApi& api = backend_.api;
    if (!block.by_nccl || api.comm_register == nullptr || api.comm_deregister == nullptr) {
        return;
    }
    void* handle = nullptr;
    const CommReport report = communicator_.call(
        [&](ncclComm_t comm) { return api.comm_register(comm, block.data, bytes, &handle); });
    if (report.state == CommState::ready && handle != nullptr) {
        const std::lock_guard lock(mutex_);
        registrations_.emplace(block.data, handle);
    }
}

void GpuMemory::deregister(void* handle) {
    (void)communicator_.call(
        [&](ncclComm_t comm) { return backend_.api.comm_deregister(comm, handle); });
}

/// Frees `block` and the blocks kept before. Unlike cudaFree, ncclMemFree does not wait for
/// kernels. So the group keeps memory while an operation is in flight or an abort of NCCL is under
/// way.
void GpuMemory::give_back(const Block& block) {
    std::vector<Block> blocks;
    std::vector<void*> handles;
    {
        const std::lock_guard lock(mutex_);
        kept_.push_back(block);
        if (!gone_ && (leaving_ || in_flight_.may_touch_memory())) {
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
        deregister(handle);
    }
    reaper_->take([backend = backend_, blocks] { free_blocks(backend, blocks); });
}

void GpuMemory::end_registrations() {
    std::map<void*, void*> registrations;
    {
        const std::lock_guard lock(mutex_);
        leaving_ = true;
        registrations.swap(registrations_);
    }
    for (const auto& [data, handle] : registrations) {
        deregister(handle);
    }
}

void GpuMemory::note_gone() {
    std::vector<Block> blocks;
    {
        const std::lock_guard lock(mutex_);
        gone_ = true;
        blocks.swap(kept_);
    }
    free_blocks(backend_, blocks);
}

}  // namespace regroup::nccl
