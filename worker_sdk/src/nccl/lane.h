// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/cuda/device_runtime.h"
#include "worker_sdk/src/group/group_failure.h"
#include "worker_sdk/src/group/work.h"
#include "worker_sdk/src/nccl/backend.h"
#include "worker_sdk/src/nccl/communicator.h"
#include "worker_sdk/src/nccl/operation.h"
#include "worker_sdk/src/nccl/reaper.h"
#include "worker_sdk/src/nccl/waiters.h"
#include "worker_sdk/src/net/wakeup.h"

namespace regroup::nccl {

/// The constants of a group.
struct GroupIdentity {
    std::string name{};
    /// 0 for the group that `create` formed; its sub-groups count from 1, equally on all ranks.
    std::uint32_t scope = 0;
    std::uint32_t rank = 0;
    std::vector<std::uint32_t> members{};  ///< By rank: the ranks in the group of scope 0.
    Device device{};
    Duration timeout{};
    /// The scope of the Context. Its end ends the group, and it counts the group's operations.
    std::shared_ptr<RoundScope> round{};

    /// "rank 1 (world rank 3)", of a member by its rank in the group of scope 0.
    [[nodiscard]] std::string name_of(std::uint32_t member) const;
};

/// A rank's message to the others before all of them do the same thing.
struct Proposal {
    std::uint64_t digest = 0;   ///< Of what it is about to do.
    std::uint64_t is_able = 0;  ///< 1: its own part has succeeded so far.
};

/// One communicator with its stream and its operations in flight. The caller's thread puts
/// operations into the stream; the watchdog detects how they end.
///
/// The destructor of a lane does not block: the reaper frees its streams and memory.
class Lane {
   public:
    [[nodiscard]] static std::shared_ptr<Lane> make(const Backend& backend, GroupIdentity identity,
                                                    std::shared_ptr<net::Wakeup> watchdog,
                                                    const std::shared_ptr<Reaper>& reaper);
    ~Lane();
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    [[nodiscard]] const Backend& backend() const noexcept { return backend_; }
    [[nodiscard]] const GroupIdentity& identity() const noexcept { return identity_; }
    [[nodiscard]] Communicator& communicator() noexcept { return *communicator_; }
    /// The failure with which the group has ended, or is about to.
    [[nodiscard]] std::optional<GroupFailure> failure() const;
    /// Ends the group with `failure`, unless it has ended. Any thread; the watchdog does it soon.
    void post(GroupFailure failure) noexcept;

    // The caller's thread.

    /// The stream of operations for which no other is named.
    [[nodiscard]] void* own_stream() const noexcept { return own_stream_; }
    /// Empty: the lane's own stream.
    void use_stream(std::optional<Stream> stream) noexcept { user_stream_ = stream; }
    [[nodiscard]] std::optional<Stream> current_stream() const noexcept { return user_stream_; }
    /// Puts `calls` into the stream as one group of NCCL; their Works tell how they end. Throws
    /// Error `overloaded` or `system` if nothing was issued.
    void issue(std::vector<Call> calls);
    /// Makes the call `begin`, which waits for other ranks, and waits for its end: `ready`,
    /// `failed`, `gone`, or still `in_progress` at the deadline. A blocking call is made in
    /// a thread of its own, and the end of the lane ends it.
    using Begin = std::function<CommReport(Communicator& communicator)>;
    [[nodiscard]] CommReport complete(Begin begin, Instant deadline);
    /// Makes a child of the communicator, as Communicator::begin_split, and waits for it as long as
    /// an operation may take. All ranks must call it, so it counts as a collective.
    [[nodiscard]] CommReport split(int color, int key);
    /// Whether the communicator has this group's size, and this rank its place. True if it is gone.
    [[nodiscard]] bool has_expected_place();
    /// The number of the last collective.
    [[nodiscard]] std::uint64_t last_collective() const noexcept { return issued_.collective; }
    /// Ends the child of the last split, in the background: for a rank that no child was made for.
    void drop_child();
    /// After post(): the failure with which the watchdog has ended the group, which may hold more
    /// facts than the posted one. Empty if the watchdog takes too long.
    [[nodiscard]] std::optional<GroupFailure> await_end() const;
    /// Memory of this GPU, zeroed, registered if NCCL can. Throws Error `system`.
    [[nodiscard]] static Buffer allocate(const std::shared_ptr<Lane>& lane, std::size_t bytes);
    /// One word on the GPU for barriers.
    [[nodiscard]] void* barrier_word() const noexcept { return barrier_word_; }
    /// Memory on the GPU for a Proposal of each rank.
    [[nodiscard]] void* table() const noexcept;
    /// The Proposal of this rank on the host. The stream may read it after the call that put it
    /// there has thrown.
    [[nodiscard]] Proposal& proposal() noexcept { return proposal_; }
    [[nodiscard]] bool is_idle() const;
    /// For the Works of the operations.
    [[nodiscard]] const std::shared_ptr<Waiters>& waiters() const noexcept { return waiters_; }
    /// How far this rank has come in the group's collectives.
    [[nodiscard]] Standing standing() const;

    // The reaper.

    /// Leaves in order, or aborts at the limit. Requires that nothing is in flight and that the
    /// watchdog has removed the lane.
    void leave();
    /// Aborts the communicators of `lanes`, which have ended, together.
    static void abort_all(const NcclApi& api, std::span<const std::shared_ptr<Lane>> lanes);

    // The watchdog's thread.

    /// Completes the operations that are done. Returns the failure that ends the group: a posted
    /// failure, an error of NCCL or CUDA, or a deadline.
    [[nodiscard]] std::optional<GroupFailure> check(Instant now);
    /// The time until the next check.
    [[nodiscard]] Duration patience(Instant now) const;
    /// A member has left in order; operations that still need it will fail.
    void note_departure(std::uint32_t member, Instant now);
    /// Ends the group: fails the operations in flight and all later operations.
    void end(const GroupFailure& failure);
    /// Another member has told its standing. Returns the failure if it calls a collective that
    /// differs from this rank's.
    [[nodiscard]] std::optional<GroupFailure> compare(std::uint32_t member,
                                                      const Standing& standing) const;

   private:
    struct InFlight {
        std::vector<Call> calls;
        std::optional<cuda::Event> event;  ///< None if the calls have failed already.
        Instant turn_began;
    };
    /// The operation that the caller's thread is putting into the stream.
    struct Issuing {
        std::vector<Operation> operations;
        Instant since;
    };
    class IssuingScope;
    /// Memory as it was allocated.
    struct Block {
        void* base = nullptr;
        void* data = nullptr;
        bool by_nccl = false;
    };
    struct Memory;

    Lane(const Backend& backend, GroupIdentity identity, std::shared_ptr<net::Wakeup> watchdog,
         std::shared_ptr<Reaper> reaper);
    [[nodiscard]] std::string explain(const GroupFailure& failure,
                                      const Operation& operation) const;
    void fail(std::span<const Call> calls, const GroupFailure& failure) const;
    /// The numbers of the last operations, collectives and messages.
    struct Numbers {
        std::uint64_t collective = 0;
        std::uint64_t message = 0;
    };
    /// Waits while NCCL works in the background, as `complete`.
    [[nodiscard]] CommReport await_ready(Instant deadline);
    [[nodiscard]] Numbers number(std::vector<Call>& calls) const;
    void record_issue(std::vector<Call>& calls) const;
    void note_done(const Call& call, Instant now) const;
    [[nodiscard]] void* begin_stream(const std::optional<Stream>& stream);
    [[nodiscard]] Duration timeout_of(const Operation& operation) const noexcept {
        return operation.options.timeout.value_or(identity_.timeout);
    }
    [[nodiscard]] std::optional<GroupFailure> launch(std::span<const Call> calls, void* stream);
    [[nodiscard]] std::optional<GroupFailure> make_reductions(std::span<const Call> calls,
                                                              std::vector<ncclRedOp_t>& reductions);
    /// The failure of `operation`, whose time is up.
    [[nodiscard]] GroupFailure expired(const Operation& operation, const std::string& what) const;
    [[nodiscard]] GroupFailure failure_of(const CommReport& report, const Operation& operation);
    void track(std::vector<Call> calls, std::optional<cuda::Event> event);
    [[nodiscard]] cuda::Event record(void* stream);
    [[nodiscard]] cuda::Event take_event();
    [[nodiscard]] std::string oldest() const;
    [[nodiscard]] std::optional<GroupFailure> deserted(Instant now) const;
    [[nodiscard]] std::optional<GroupFailure> overdue(Instant now) const;
    [[nodiscard]] void* front_event() const;
    [[nodiscard]] std::vector<Call> complete_front(Instant now);
    [[nodiscard]] Block allocate_block(std::size_t bytes);
    void give_back(const Block& block);
    static void free_blocks(const Backend& backend, std::span<const Block> blocks) noexcept;
    void note_gone();

    const Backend backend_;
    const GroupIdentity identity_;
    const std::string place_;     // " on cuda:0 in group \"<name>\"".
    const std::uint32_t record_;  // The group's number in the flight recorder.
    const std::shared_ptr<net::Wakeup> watchdog_;
    const std::shared_ptr<Waiters> waiters_;
    const std::shared_ptr<Reaper> reaper_;
    const std::shared_ptr<Communicator> communicator_;

    // The caller's thread.
    std::optional<Stream> user_stream_;
    void* own_stream_ = nullptr;
    void* barrier_word_ = nullptr;
    Proposal proposal_;
    std::optional<cuda::Event> default_stream_passed_;
    Numbers issued_;

    mutable std::mutex mutex_;  // Guards the rest.
    std::deque<InFlight> in_flight_;
    std::optional<Issuing> issuing_;
    std::deque<Signature> called_;  // The last collectives, complete or not.
    std::size_t outstanding_ = 0;
    std::vector<cuda::Event> free_events_;
    std::map<std::uint32_t, Instant> departed_;
    std::map<void*, void*> registrations_;  // of memory, NCCL's handles
    std::vector<Block> kept_;  // given back, but an operation in flight may still use it
    bool leaving_ = false;
    bool gone_ = false;  // nothing of NCCL will touch memory any more
    std::optional<GroupFailure> posted_;
    std::optional<GroupFailure> failure_;
};

/// Waits a little, longer with every call: for states that must be polled.
class Backoff {
   public:
    void pause();

   private:
    int turns_ = 0;
};

/// The Errc for an NCCL result.
[[nodiscard]] Errc errc_of(ncclResult_t result) noexcept;
/// The failure that NCCL reports for `operation`, which may be empty.
[[nodiscard]] GroupFailure failure_of_nccl(const CommReport& report, std::string operation);

}  // namespace regroup::nccl
