// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/tensor_view.h>

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

/// Bytes that are moved, whatever they mean.
[[nodiscard]] inline TensorView moved(void* data, std::size_t bytes) {
    return {data, bytes, DType::uint8};
}
/// The first of `rows` parts.
[[nodiscard]] inline TensorView moved(const Part& part, std::uint32_t rows = 1) {
    return moved(part.data, rows * part.bytes);
}

/// The tag of messages inside collectives. No program can give it.
inline constexpr std::uint32_t kInternalTag = UINT32_MAX;

}  // namespace regroup::mpi
