// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/node_memory.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace regroup::cpu {
namespace {

constexpr std::size_t kBoardBytes = 4096;
static_assert(sizeof(NodeMemory::Board) <= kBoardBytes);
constexpr std::size_t kStagingBegin = kBoardBytes + 2 * NodeMemory::kSlotBytes;
constexpr std::size_t kRingsBegin = kStagingBegin + 3 * NodeMemory::kStagingBytesCrowded;
/// For all rings of a rank together, and for one.
constexpr std::size_t kRingsBytes = std::size_t{4} << 20U;
constexpr std::size_t kRingBytesMax = std::size_t{256} << 10U;

}  // namespace

// The same with enough processors and without: untouched pages cost nothing.
std::size_t NodeMemory::segment_bytes() {
    return kRingsBegin + kRingsBytes;
}

NodeMemory::NodeMemory(std::vector<SharedMemory> segments, bool crowded)
    : segments_(std::move(segments)),
      crowded_(crowded),
      staging_bytes_(crowded ? kStagingBytesCrowded : kStagingBytes),
      ring_bytes_(std::min(kRingBytesMax,
                           std::bit_floor(kRingsBytes / segments_.size() - sizeof(Positions)))) {}

NodeMemory::Board& NodeMemory::board_of(const SharedMemory& segment) noexcept {
    return *reinterpret_cast<Board*>(segment.data());
}

NodeMemory::Board& NodeMemory::board(std::uint32_t rank) const noexcept {
    return board_of(segments_[rank]);
}

std::byte* NodeMemory::slot(std::uint32_t rank, std::uint32_t half) const noexcept {
    return segments_[rank].data() + kBoardBytes + half * kSlotBytes;
}

std::byte* NodeMemory::staging(std::uint32_t rank, std::uint32_t half) const noexcept {
    return segments_[rank].data() + kStagingBegin + half * staging_bytes_;
}

std::byte* NodeMemory::reduced(std::uint32_t rank) const noexcept {
    return segments_[rank].data() + kStagingBegin + 2 * staging_bytes_;
}

NodeMemory::Positions& NodeMemory::positions(std::uint32_t of, std::uint32_t with) const noexcept {
    return reinterpret_cast<Positions*>(segments_[of].data() + kRingsBegin)[with];
}

MessageRing NodeMemory::ring(std::uint32_t sender, std::uint32_t receiver) const noexcept {
    return {.written = &positions(sender, receiver).written,
            .read = &positions(receiver, sender).read,
            .data = segments_[sender].data() + kRingsBegin + ranks() * sizeof(Positions) +
                    receiver * ring_bytes_,
            .capacity = ring_bytes_};
}

}  // namespace regroup::cpu
