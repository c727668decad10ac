// SPDX-License-Identifier: Apache-2.0
//
// What collectives share: each one is started as a CompoundRequest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "worker_sdk/mpi/datatype.h"
#include "worker_sdk/mpi/request.h"
#include "worker_sdk/mpi/session.h"
#include "worker_sdk/mpi/side.h"

namespace regroup::mpi {

using Collective = std::unique_ptr<CompoundRequest>;

[[nodiscard]] inline Collective collective(Work work = {}) {
    auto started = std::make_unique<CompoundRequest>();
    started->work = std::move(work);
    return started;
}

/// Bytes that are moved, whatever they mean.
[[nodiscard]] inline TensorView moved(void* data, std::size_t bytes) {
    return {data, bytes, DType::uint8};
}
/// The first of `rows` parts.
[[nodiscard]] inline TensorView moved(const Part& part, std::uint32_t rows = 1) {
    return {part.data, rows * part.bytes, DType::uint8};
}

/// Throws CallError MPI_ERR_COUNT if one rank's part differs on its two sides.
void require_equal(std::size_t sent, std::size_t received);

/// The checked arguments of a reduction of `count` elements.
struct ReductionCall {
    const Datatype& type;
    std::size_t count;
    std::size_t bytes;
    MPI_Op op;

    ReductionCall(int count_in, MPI_Datatype type_in, MPI_Op op_in);
    /// The elements at `data`, as the group reduces them.
    [[nodiscard]] TensorView values(void* data, const GroupReduction& reduction) const {
        return {data, count * reduction.items, reduction.dtype};
    }
};

/// `receive` becomes the reduction of all ranks' `send`, which may be MPI_IN_PLACE.
[[nodiscard]] Collective all_reduce(ProcessGroup& group, const ReductionCall& call,
                                    const void* send, void* receive);

}  // namespace regroup::mpi
