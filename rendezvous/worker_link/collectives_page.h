// SPDX-License-Identifier: Apache-2.0
//
// The memory in which a worker writes the collectives that it is in, and which its agent reads. A
// library inside the process writes it: NCCL's profiler plugin, or the SDK. So the program itself
// need not know of it, and a write costs no system call.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace regroup::worker_link {

/// The path of the file that a worker maps, which the agent puts into its environment. A process
/// without it writes nothing.
inline constexpr const char* kCollectivesVariable = "REGROUP_COLLECTIVES";

/// The version of the layout below. A writer of another version writes nothing.
inline constexpr std::uint32_t kCollectivesVersion = 2;
inline constexpr std::size_t kGroupsMax = 64;
/// The last collectives of a group whose signatures are kept: a program calls them ahead of its
/// GPU, often those of several steps.
inline constexpr std::size_t kSignaturesKept = 256;
/// The kinds of collectives whose longest times are known apart.
inline constexpr std::size_t kTimesKept = 16;
inline constexpr std::size_t kGroupNameBytes = 32;

enum class CollectiveBackend : std::uint32_t { nccl, gloo, cpu, other };

enum class CollectiveKind : std::uint8_t {
    none,
    all_reduce,
    reduce,
    broadcast,
    all_gather,
    reduce_scatter,
    all_to_all,
    gather,
    scatter,
    barrier,
    send,
    receive,
    other,
};

enum class ElementType : std::uint8_t {
    unknown,
    int8,
    uint8,
    int32,
    uint32,
    int64,
    uint64,
    float16,
    float32,
    float64,
    bfloat16,
    float8_e4m3,
    float8_e5m2,
};

/// The arguments of an operation that must be the same on all ranks, in one word: one store writes
/// all of them.
struct CollectiveSignature {
    CollectiveKind kind = CollectiveKind::none;
    ElementType type = ElementType::unknown;
    std::uint64_t elements = 0;  ///< Those beyond 48 bits are cut off.

    [[nodiscard]] constexpr std::uint64_t packed() const noexcept {
        return (static_cast<std::uint64_t>(kind) << 56U) |
               (static_cast<std::uint64_t>(type) << 48U) | (elements & kElementsMask);
    }
    [[nodiscard]] static constexpr CollectiveSignature unpacked(std::uint64_t word) noexcept {
        return {static_cast<CollectiveKind>(word >> 56U),
                static_cast<ElementType>((word >> 48U) & 0xffU), word & kElementsMask};
    }
    friend bool operator==(const CollectiveSignature&, const CollectiveSignature&) = default;

    static constexpr std::uint64_t kElementsMask = (std::uint64_t{1} << 48U) - 1;
};

/// One group (NCCL's communicator) of the process. Collectives have numbers from 1, in the order in
/// which the program has called them, which is the same on all ranks. All times are of
/// CLOCK_MONOTONIC, in ns. A field has one writer at a time.
struct CollectiveGroup {  // NOLINT(clang-analyzer-optin.performance.Padding): by who writes
    // NOLINTNEXTLINE(readability-identifier-naming): they are used as constants.
    enum State : std::uint32_t { kFree, kTaken, kInUse };

    /// kInUse once the identity below is complete.
    alignas(64) std::atomic<std::uint32_t> state{kFree};
    std::atomic<CollectiveBackend> backend{CollectiveBackend::other};
    std::atomic<std::uint64_t> id{0};    ///< The same on all ranks of the group.
    std::atomic<std::uint32_t> size{0};  ///< Ranks; 0: unknown.
    std::atomic<std::uint32_t> rank{0};  ///< Of this process, in the group.
    /// 1: the writer learns when the device begins a collective, or when it ends one. Without it,
    /// `started` or `completed` means nothing. A writer may find so later, and write 0 then.
    std::atomic<std::uint32_t> knows_starts{0};
    std::atomic<std::uint32_t> knows_ends{0};
    std::array<char, kGroupNameBytes> name{};  ///< Given by the program; ends with a zero.

    /// Written by the thread that calls a collective; `entered` last.
    alignas(64) std::atomic<std::uint64_t> entered{0};
    /// Of the collective n at n % kSignaturesKept: its signature, packed, and when it was entered.
    /// Written with release and read with acquire: a reader that finds those of n here finds
    /// `entered` at n - 1 at least, and so learns that the place has been used again.
    std::array<std::atomic<std::uint64_t>, kSignaturesKept> signatures{};
    std::array<std::atomic<std::int64_t>, kSignaturesKept> entered_at{};

    /// Written by the thread that learns of it. All collectives up to these have begun or ended.
    alignas(64) std::atomic<std::uint64_t> started{0};
    std::atomic<std::uint64_t> completed{0};
    std::atomic<std::int64_t> started_at{0};
    std::atomic<std::int64_t> completed_at{0};
    /// Not 0 if the writer does not learn of ends at once, but looks for them: `completed` is true
    /// as of this time.
    std::atomic<std::int64_t> looked_at{0};
    /// The time spent in all completed collectives, that of waiting for other ranks included.
    std::atomic<std::int64_t> spent{0};
    /// The longest time in a collective, by time_slot() of its signature. Without `knows_ends`, the
    /// longest time until the next one was entered; then the thread that calls collectives writes.
    std::array<std::atomic<std::int64_t>, kTimesKept> longest{};

    /// Messages (send, receive) have numbers of their own. The peer and the signature are those of
    /// the last one.
    alignas(64) std::atomic<std::uint64_t> messages_entered{0};
    std::atomic<std::uint64_t> messages_completed{0};
    std::atomic<std::int64_t> message_at{0};
    std::atomic<std::uint64_t> message{0};
    std::atomic<std::uint32_t> message_peer{0};  ///< Its rank in the group.
};

/// Where the longest time of collectives with this signature is kept.
[[nodiscard]] constexpr std::size_t time_slot(std::uint64_t packed) noexcept {
    return (packed * 0x9e3779b97f4a7c15U) >> 60U;
}
static_assert(kTimesKept == 16);

/// A writer that looks for ends, and has not looked for so long, no longer knows them.
inline constexpr std::int64_t kLookIsOldNs = 2'000'000'000;

/// One page per worker process. A reader may see fields of different instants, so no decision
/// depends on a single look. The process can write anything: a reader checks each value.
struct CollectivesPage {
    std::uint32_t version = kCollectivesVersion;
    /// The process that writes. The first one that maps the page takes it; another one only after
    /// its end.
    std::atomic<std::int32_t> pid{0};
    std::atomic<std::uint64_t> groups_refused{0};  ///< No group was free for them.
    /// So many groups at the begin have ever been used. Nobody touches the memory of the others.
    std::atomic<std::uint32_t> groups_used{0};
    std::array<CollectiveGroup, kGroupsMax> groups{};

    /// The groups that have ever been used.
    [[nodiscard]] std::span<CollectiveGroup> used() noexcept {
        return std::span(groups).first(std::min<std::size_t>(groups_used.load(), kGroupsMax));
    }
    [[nodiscard]] std::span<const CollectiveGroup> used() const noexcept {
        return std::span(groups).first(std::min<std::size_t>(groups_used.load(), kGroupsMax));
    }
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace regroup::worker_link
