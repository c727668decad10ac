// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "worker_sdk/mpi/mpi.h"

namespace regroup::mpi {

enum class Kind : std::uint8_t { byte, boolean, integer, floating };

struct Datatype {
    /// into[i] = into[i] op values[i], for equal sizes.
    using Fold = void (*)(MPI_Op op, std::span<const std::byte> values, std::span<std::byte> into);

    const char* name;  ///< "MPI_INT".
    Kind kind;
    std::size_t bytes;
    std::optional<DType> dtype;  ///< The type with the same elements.
    Fold fold;                   ///< Of integers. The group reduces all others.
};

/// Throws CallError MPI_ERR_TYPE for a datatype that mpi.h does not define.
[[nodiscard]] const Datatype& datatype_of(MPI_Datatype type);
/// Of `count` elements. Throws CallError.
[[nodiscard]] std::size_t bytes_of(int count, MPI_Datatype type);

/// Throws CallError MPI_ERR_OP for an operation that mpi.h does not define, or that is undefined
/// for `type`: bits of floats, sums of bytes.
void require_defined(MPI_Op op, const Datatype& type);

/// The values that the process group reduces: elements of `dtype`, `items` of them for each of
/// MPI's. nullopt if the values must be gathered and folded here.
struct GroupReduction {
    DType dtype;
    ReduceOp op;
    std::size_t items;
};
[[nodiscard]] std::optional<GroupReduction> group_reduction(MPI_Op op, const Datatype& type);

}  // namespace regroup::mpi
