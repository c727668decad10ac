// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker_sdk/src/cpu/node_barrier.h"
#include "worker_sdk/src/cpu/shared_memory.h"
#include "worker_sdk/src/cpu/wire.h"

namespace regroup::cpu {

/// The entry that a rank publishes when it enters a collective.
struct NodeEntry {
    Signature called{};
    std::uint32_t region = 0;  ///< The region in which others may read its buffer; 0: none.
    std::uint64_t offset = 0;
};

// An answer for which other ranks wait.
inline constexpr std::uint32_t kUndecided = 0;
inline constexpr std::uint32_t kYes = 1;
inline constexpr std::uint32_t kNo = 2;

/// Whether a rank of a node looks at its messages, for the others.
enum class Attention : std::uint32_t {
    none,     ///< It waits for no message and no room: look later.
    asleep,   ///< It waits, and must be woken.
    looking,  ///< It looks at its rings all the time.
};

/// The bytes on their way from one rank to another. Positions count all bytes ever.
struct MessageRing {
    std::atomic<std::uint64_t>* written = nullptr;  ///< The sender alone changes it.
    std::atomic<std::uint64_t>* read = nullptr;     ///< The receiver alone changes it.
    std::byte* data = nullptr;
    std::size_t capacity = 0;  ///< A power of two.
};

/// The shared memory of the ranks of one node: a segment made by each rank, mapped by all.
///
///     board     the barrier's words (rank 0's count), what the rank has entered
///     slots     two for small messages, used in turn: a slot is free again when every rank has
///               entered the next collective
///     staging   two for parts of large ones, likewise by barriers, and one for reduced parts
///     rings     one for the messages to each other rank, and how far this rank has read theirs
///
/// A rank writes only into its own segment and buffers, and only reads those of other ranks. A rank
/// that is out of step because its group has ended cannot corrupt another rank's data.
class NodeMemory {
   public:
    static constexpr std::size_t kSlotBytes = std::size_t{16} << 10U;
    /// If each rank has its own processor, a few parts of this size fit into its second-level
    /// cache. Otherwise parts are larger, since each part costs several context switches.
    static constexpr std::size_t kStagingBytes = std::size_t{256} << 10U;
    static constexpr std::size_t kStagingBytesCrowded = std::size_t{1} << 20U;

    /// The size of a segment.
    [[nodiscard]] static std::size_t segment_bytes();

    NodeMemory(std::vector<SharedMemory> segments, bool crowded);

    struct Board {
        BarrierWords barrier;
        std::array<NodeEntry, 2> entries;
        alignas(64) std::atomic<std::uint32_t> arrivals;  ///< At the barrier.
        std::atomic<std::uint32_t> left;                  ///< 1: it will not arrive again.
        /// 1: its operations have failed, and its caller may have reused the buffers.
        std::atomic<std::uint32_t> failed;
        alignas(64) std::atomic<Attention> attention;
        // While the group forms; each is a Decision.
        std::atomic<std::uint32_t> opens_all;  ///< This rank can open all memory of its node.
        std::atomic<std::uint32_t>
            all_share;  ///< Said by the first rank: all ranks of all nodes can.
    };

    [[nodiscard]] static Board& board_of(const SharedMemory& segment) noexcept;
    [[nodiscard]] Board& board(std::uint32_t rank) const noexcept;
    [[nodiscard]] std::byte* slot(std::uint32_t rank, std::uint32_t half) const noexcept;
    [[nodiscard]] std::byte* staging(std::uint32_t rank, std::uint32_t half) const noexcept;
    [[nodiscard]] std::byte* reduced(std::uint32_t rank) const noexcept;
    [[nodiscard]] MessageRing ring(std::uint32_t sender, std::uint32_t receiver) const noexcept;
    [[nodiscard]] std::uint32_t ranks() const noexcept {
        return static_cast<std::uint32_t>(segments_.size());
    }
    [[nodiscard]] std::size_t staging_bytes() const noexcept { return staging_bytes_; }
    [[nodiscard]] bool crowded() const noexcept { return crowded_; }

   private:
    /// How far this rank has come with the messages from and to another.
    struct Positions {
        alignas(64) std::atomic<std::uint64_t> written;
        alignas(64) std::atomic<std::uint64_t> read;
    };
    [[nodiscard]] Positions& positions(std::uint32_t of, std::uint32_t with) const noexcept;

    std::vector<SharedMemory> segments_;  // by rank
    bool crowded_;
    std::size_t staging_bytes_;
    std::size_t ring_bytes_;
};

}  // namespace regroup::cpu
