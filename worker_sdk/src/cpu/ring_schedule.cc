// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/ring_schedule.h"

#include <algorithm>

#include "rendezvous/base/ensure.h"

namespace regroup::cpu {

RingSchedule::RingSchedule(std::uint32_t rank, std::uint32_t world_size)
    : rank_(rank), world_size_(world_size) {
    ENSURE(rank < world_size);
}

RingStep RingSchedule::scatter_reduce(std::uint32_t step) const {
    ENSURE(step < steps());
    // 2N keeps the unsigned difference positive.
    const std::uint64_t base = 2ULL * world_size_ + rank_ - step;
    return {static_cast<std::uint32_t>(base % world_size_),
            static_cast<std::uint32_t>((base - 1) % world_size_)};
}

RingStep RingSchedule::all_gather(std::uint32_t step) const {
    ENSURE(step < steps());
    const std::uint64_t base = 2ULL * world_size_ + rank_ - step;
    return {static_cast<std::uint32_t>((base + 1) % world_size_),
            static_cast<std::uint32_t>(base % world_size_)};
}

Chunk chunk_of(std::size_t count, std::uint32_t parts, std::uint32_t index) {
    ENSURE(index < parts);
    const std::size_t least = count / parts;
    const std::size_t longer = count % parts;  // The first so many chunks have one element more.
    return {index * least + std::min<std::size_t>(index, longer), least + (index < longer ? 1 : 0)};
}

}  // namespace regroup::cpu
