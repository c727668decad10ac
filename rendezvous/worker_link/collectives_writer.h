// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "rendezvous/worker_link/collectives_page.h"

namespace regroup::worker_link {

/// The identity of a group for its agent; see CollectiveGroup.
struct GroupIdentity {
    CollectiveBackend backend = CollectiveBackend::other;
    std::uint64_t id = 0;
    std::uint32_t size = 0;
    std::uint32_t rank = 0;
    std::string_view name{};  ///< Cut to kGroupNameBytes - 1.
    bool knows_starts = false;
    bool knows_ends = false;
    /// The writer calls GroupWriter::looked several times a second.
    bool looks_for_ends = false;
};

/// Writes the collectives of one group into the page of this process. Without an agent, a page or a
/// free place in it, all calls do nothing. No call blocks, allocates or throws, so that a library
/// inside NCCL can make it. Only the first one in a process makes system calls. In a forked child
/// they do nothing.
///
/// Each call may be made by any thread. Calls that enter come one after the other, as they do for
/// every group; so do those that tell of starts, and those that tell of ends.
class GroupWriter {
   public:
    /// Read the clock. Else a time is of CLOCK_MONOTONIC, in ns.
    static constexpr std::int64_t kNow = 0;

    GroupWriter() noexcept = default;
    explicit GroupWriter(const GroupIdentity& identity) noexcept;
    /// True if this process has a page to write to.
    [[nodiscard]] static bool has_page() noexcept;
    /// The group has ended.
    ~GroupWriter();
    GroupWriter(GroupWriter&& other) noexcept;
    GroupWriter& operator=(GroupWriter&& other) noexcept;

    /// The program has called a collective. Returns its number.
    std::uint64_t entered(CollectiveSignature signature, std::int64_t at = kNow) noexcept;
    /// The collective `number` has begun, and so have those before it.
    void started(std::uint64_t number, std::int64_t at = kNow) noexcept;
    /// The collective `number` has ended, and so have those before it.
    void completed(std::uint64_t number, std::int64_t at = kNow) noexcept;
    /// All collectives that have ended until now have been told.
    void looked() noexcept;

    /// The writer has found that it does not learn of all starts, or of all ends. From then on
    /// `started` or `completed` means nothing.
    void knows(bool starts, bool ends) noexcept;

    /// The program has called a send or a receive with the rank `peer` of the group. Returns its
    /// number, from 1.
    std::uint64_t message_entered(CollectiveSignature signature, std::uint32_t peer,
                                  std::int64_t at = kNow) noexcept;
    /// One more message has ended.
    void message_completed() noexcept;
    /// The message `number` has ended, and so have those before it. Not together with the other
    /// one.
    void messages_completed(std::uint64_t number) noexcept;

   private:
    [[nodiscard]] CollectiveGroup* group() const noexcept;

    CollectiveGroup* group_ = nullptr;
};

}  // namespace regroup::worker_link
