// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <pthread.h>

#include "rendezvous/worker_link/collectives_writer.h"
#include "worker_sdk/nccl_profiler/handle.h"

namespace regroup::nccl_profiler {

/// The channels of an operation of which NCCL does not say how many it has.
inline constexpr std::uint32_t kChannelsUnknown = 0;

/// NCCL's threads may still write when the process ends.
template <class T>
union NeverDestroyed {
    constexpr NeverDestroyed() noexcept : value() {}
    constexpr ~NeverDestroyed() {}  // NOLINT(modernize-use-equals-default)

    T value;
};

/// One of NCCL's communicators, as its events tell of it.
///
/// The operations of one group call form a batch. NCCL runs them in an order of its own, in one
/// kernel or several, so a batch begins with the first channel of its first kernel and ends with
/// the last channel of its last one. NCCL runs the batches of a communicator one after the other.
/// When one begins, all earlier ones have ended, whatever has been heard of them.
///
/// The events of one communicator come from several threads: that of the program, NCCL's proxy, and
/// CUDA's for host functions in graphs.
class Communicator {
   public:
    constexpr Communicator() noexcept = default;
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    /// The communicators of this process: a fixed table, so that nothing is allocated. Null if all
    /// are taken.
    [[nodiscard]] static Communicator* take() noexcept;
    /// Null for an index that is none.
    [[nodiscard]] static Communicator* at(std::uint32_t index) noexcept;
    /// The communicator has ended. Handles of it are ignored from now on.
    void release() noexcept;

    /// Does nothing if it is identified already.
    void identify(const worker_link::GroupIdentity& identity) noexcept;

    /// The program has called a collective in `group`, which is captured into a CUDA graph or not.
    Handle called(Handle group, bool is_captured,
                  worker_link::CollectiveSignature signature) noexcept;
    Handle message_called(Handle group, bool is_captured) noexcept;
    /// NCCL has enqueued a collective, of which a kernel will run `channels`. `call`: what called()
    /// has returned, if NCCL tells of calls. `group`: the operations of the same kernel.
    Handle enqueued(Handle call, Handle group, worker_link::CollectiveSignature signature,
                    std::uint32_t channels) noexcept;
    Handle message_enqueued(Handle call, Handle group, worker_link::CollectiveSignature signature,
                            std::int32_t peer, std::uint32_t channels) noexcept;
    Handle channel_started(Handle task) noexcept;
    void channel_ended(Handle channel) noexcept;

   private:
    struct Batch {
        std::atomic<std::uint64_t> number{0};
        std::atomic<std::int32_t> open_channels{0};
        std::atomic<bool> has_begun{false};
        // The rest is guarded by mutex_.
        std::uint32_t called = 0;  ///< Collectives.
        std::uint32_t enqueued = 0;
        std::uint64_t before = 0;  ///< The last collective before this batch.
        std::uint64_t last = 0;
        std::uint64_t messages_before = 0;
        std::uint64_t last_message = 0;
    };
    class Lock;

    /// As many as CUDA lets a stream have kernels that wait.
    static constexpr std::size_t kBatches = 1024;
    static constexpr std::uint32_t kCommunicators = 128;
    static Communicator g_all[kCommunicators];

    [[nodiscard]] std::uint32_t index() const noexcept;
    [[nodiscard]] Handle handle(Handle::Kind kind, const Batch& batch) const noexcept;
    /// Null if so many have come since that its place has been used again.
    [[nodiscard]] Batch* find(Handle handle) noexcept;
    [[nodiscard]] Batch& place(std::uint64_t number) noexcept {
        return batches_[number % kBatches];
    }
    /// The batch of `group`: the latest one, or a new one.
    [[nodiscard]] Batch& batch_of(Handle group) noexcept;
    void begin(Batch& batch) noexcept;
    void end(Batch& batch) noexcept;
    /// From now on, starts or ends are not known.
    void forget(bool starts, bool ends) noexcept;
    void add_channels(Batch& batch, std::uint32_t channels) noexcept;
    void enter(Batch& batch, worker_link::CollectiveSignature signature) noexcept;

    std::atomic<bool> is_taken_{false};
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    // The rest is guarded by mutex_.
    bool is_identified_ = false;
    bool knows_starts_ = false;
    bool knows_ends_ = false;
    /// NCCL tells of kernels.
    bool has_kernels_ = false;
    /// Set once a collective has been captured into a CUDA graph. Replays come with no call, and at
    /// times that differ between ranks. So from then on collectives are numbered as NCCL enqueues
    /// them, which is in the same order on all ranks. Without kernels, replays do not count.
    bool has_graphs_ = false;
    std::int32_t rank_ = 0;
    Handle group_{};
    /// Never goes back, so that no old handle fits a later communicator.
    std::uint64_t latest_ = 0;
    std::uint64_t last_ = 0;
    std::uint64_t last_message_ = 0;
    NeverDestroyed<worker_link::GroupWriter> writer_{};
    std::array<Batch, kBatches> batches_{};
};

}  // namespace regroup::nccl_profiler
