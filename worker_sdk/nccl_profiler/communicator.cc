// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/nccl_profiler/communicator.h"

namespace regroup::nccl_profiler {

using worker_link::CollectiveSignature;
using worker_link::GroupIdentity;
using worker_link::GroupWriter;
using Kind = Handle::Kind;

/// std::mutex would need the C++ library at run time.
class Communicator::Lock {
   public:
    explicit Lock(pthread_mutex_t& mutex) noexcept : mutex_(mutex) {
        ::pthread_mutex_lock(&mutex_);
    }
    ~Lock() { ::pthread_mutex_unlock(&mutex_); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    pthread_mutex_t& mutex_;
};

constinit Communicator Communicator::g_all[kCommunicators];

Communicator* Communicator::take() noexcept {
    for (Communicator& one : g_all) {
        if (!one.is_taken_.load(std::memory_order_relaxed) && !one.is_taken_.exchange(true)) {
            return &one;
        }
    }
    return nullptr;
}

Communicator* Communicator::at(std::uint32_t index) noexcept {
    return index < kCommunicators ? &g_all[index] : nullptr;
}

std::uint32_t Communicator::index() const noexcept {
    return static_cast<std::uint32_t>(this - g_all);
}

void Communicator::release() noexcept {
    {
        const Lock lock(mutex_);
        writer_.value = GroupWriter();
        // No handle fits a batch any more.
        for (Batch& batch : batches_) {
            batch.number.store(0, std::memory_order_relaxed);
        }
        is_identified_ = false;
        has_graphs_ = false;
        group_ = Handle();
        last_ = 0;
        last_message_ = 0;
    }
    is_taken_.store(false);
}

void Communicator::identify(const GroupIdentity& identity) noexcept {
    const Lock lock(mutex_);
    if (!is_identified_) {
        is_identified_ = true;
        has_kernels_ = identity.knows_starts;
        knows_starts_ = identity.knows_starts;
        knows_ends_ = identity.knows_ends;
        rank_ = static_cast<std::int32_t>(identity.rank);
        writer_.value = GroupWriter(identity);
    }
}

Handle Communicator::handle(Kind kind, const Batch& batch) const noexcept {
    return Handle(kind, index(), batch.number.load(std::memory_order_relaxed));
}

Communicator::Batch* Communicator::find(Handle handle) noexcept {
    Batch& batch = place(handle.batch());
    const bool fits =
        handle.batch() != 0 && batch.number.load(std::memory_order_acquire) == handle.batch();
    return fits ? &batch : nullptr;
}

Communicator::Batch& Communicator::batch_of(Handle group) noexcept {
    Batch& latest = place(latest_);
    const bool has_latest = latest_ != 0 && latest.number.load() == latest_;
    if (has_latest && group.kind() == Kind::group && group == group_) {
        return latest;
    }
    if (has_latest && !has_graphs_ && latest.enqueued < latest.called) {
        // NCCL tells of no kernel of collectives that it does in other ways: by copy engines, and
        // in symmetric memory.
        forget(true, true);
    }
    group_ = group;
    Batch& batch = place(++latest_);
    batch.open_channels.store(0, std::memory_order_relaxed);
    batch.has_begun.store(false, std::memory_order_relaxed);
    batch.called = 0;
    batch.enqueued = 0;
    batch.before = batch.last = last_;
    batch.messages_before = batch.last_message = last_message_;
    batch.number.store(latest_, std::memory_order_release);
    return batch;
}

void Communicator::begin(Batch& batch) noexcept {
    batch.has_begun.store(true, std::memory_order_relaxed);
    if (knows_ends_) {
        writer_.value.completed(batch.before);
        writer_.value.messages_completed(batch.messages_before);
    }
    if (knows_starts_) {
        writer_.value.started(batch.last);
    }
}

void Communicator::end(Batch& batch) noexcept {
    if (knows_ends_) {
        if (batch.enqueued == batch.called) {
            writer_.value.completed(batch.last);
        }
        writer_.value.messages_completed(batch.last_message);
    }
}

void Communicator::forget(bool starts, bool ends) noexcept {
    const bool changes = (knows_starts_ && starts) || (knows_ends_ && ends);
    if (changes) {
        knows_starts_ = knows_starts_ && !starts;
        knows_ends_ = knows_ends_ && !ends;
        writer_.value.knows(knows_starts_, knows_ends_);
    }
}

void Communicator::add_channels(Batch& batch, std::uint32_t channels) noexcept {
    if (channels == kChannelsUnknown) {
        forget(false, true);
    } else {
        batch.open_channels.fetch_add(static_cast<std::int32_t>(channels),
                                      std::memory_order_relaxed);
    }
}

void Communicator::enter(Batch& batch, CollectiveSignature signature) noexcept {
    writer_.value.entered(signature);
    batch.last = ++last_;
    ++batch.called;
}

Handle Communicator::called(Handle group, bool is_captured,
                            CollectiveSignature signature) noexcept {
    const Lock lock(mutex_);
    has_graphs_ = has_graphs_ || (is_captured && has_kernels_);
    if (is_captured || has_graphs_) {
        return Handle(Kind::ignored);
    }
    Batch& batch = batch_of(group);
    enter(batch, signature);
    return handle(Kind::call, batch);
}

Handle Communicator::message_called(Handle group, bool is_captured) noexcept {
    const Lock lock(mutex_);
    has_graphs_ = has_graphs_ || (is_captured && has_kernels_);
    return is_captured || has_graphs_ ? Handle(Kind::ignored) : handle(Kind::call, batch_of(group));
}

Handle Communicator::enqueued(Handle call, Handle group, CollectiveSignature signature,
                              std::uint32_t channels) noexcept {
    const Lock lock(mutex_);
    Batch* batch = call.kind() == Kind::call ? find(call) : nullptr;
    if (batch == nullptr || batch->enqueued == batch->called) {
        batch = &batch_of(group);
        enter(*batch, signature);
    }
    ++batch->enqueued;
    add_channels(*batch, channels);
    return handle(Kind::task, *batch);
}

Handle Communicator::message_enqueued(Handle call, Handle group, CollectiveSignature signature,
                                      std::int32_t peer, std::uint32_t channels) noexcept {
    const Lock lock(mutex_);
    Batch* batch = call.kind() == Kind::call ? find(call) : nullptr;
    if (batch == nullptr) {
        batch = &batch_of(group);
    }
    writer_.value.message_entered(signature, static_cast<std::uint32_t>(peer));
    batch->last_message = ++last_message_;
    if (peer != rank_) {  // NCCL tells of no channel of a message to the rank itself.
        add_channels(*batch, channels);
    }
    return handle(Kind::task, *batch);
}

Handle Communicator::channel_started(Handle task) noexcept {
    Batch* const batch = task.kind() == Kind::task ? find(task) : nullptr;
    if (batch == nullptr) {
        return {};
    }
    if (!batch->has_begun.load(std::memory_order_relaxed)) {
        const Lock lock(mutex_);
        if (find(task) != nullptr && !batch->has_begun.load(std::memory_order_relaxed)) {
            begin(*batch);
        }
    }
    return handle(Kind::channel, *batch);
}

void Communicator::channel_ended(Handle channel) noexcept {
    Batch* const batch = find(channel);
    if (batch != nullptr && batch->open_channels.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        const Lock lock(mutex_);
        if (find(channel) != nullptr && batch->open_channels.load(std::memory_order_relaxed) == 0) {
            end(*batch);
        }
    }
}

}  // namespace regroup::nccl_profiler
