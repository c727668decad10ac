// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker_sdk/mpi/arguments.h"
#include "worker_sdk/mpi/datatype.h"

namespace regroup::mpi {

/// A rank's part of a buffer.
struct Part {
    std::byte* data = nullptr;
    std::size_t bytes = 0;

    /// Part `index` of parts of this size, of which this one is the first.
    [[nodiscard]] Part row(std::uint32_t index) const { return {data + index * bytes, bytes}; }
};

/// One side of a transfer, as the program gives it.
struct Side {
    const void* buffer;
    int count;
    MPI_Datatype type;

    /// Throws CallError.
    [[nodiscard]] Part part() const {
        const std::size_t bytes = bytes_of(count, type);
        require_buffer(buffer, bytes);
        return {static_cast<std::byte*>(const_cast<void*>(buffer)), bytes};
    }
    /// The part of this rank: `own` if the side is MPI_IN_PLACE.
    [[nodiscard]] Part part_or(const Part& own) const {
        return buffer == MPI_IN_PLACE ? own : part();
    }
};

}  // namespace regroup::mpi
