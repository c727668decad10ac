// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/node_memory.h"

#include <utility>

namespace regroup::cpu {
namespace {

constexpr std::size_t kBoardBytes = 4096;
static_assert(sizeof(NodeMemory::Board) <= kBoardBytes);
constexpr std::size_t kStagingBegin = kBoardBytes + 2 * NodeMemory::kSlotBytes;

}  // namespace

// The same with enough processors and without: untouched pages cost nothing.
std::size_t NodeMemory::segment_bytes() {
    return kStagingBegin + 3 * kStagingBytesCrowded;
}

NodeMemory::NodeMemory(std::vector<SharedMemory> segments, bool crowded)
    : segments_(std::move(segments)),
      crowded_(crowded),
      staging_bytes_(crowded ? kStagingBytesCrowded : kStagingBytes) {}

NodeMemory::Board& NodeMemory::board(std::uint32_t rank) const noexcept {
    return *reinterpret_cast<Board*>(segments_[rank].data());
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

}  // namespace regroup::cpu
