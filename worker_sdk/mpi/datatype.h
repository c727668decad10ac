// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "worker_sdk/mpi/mpi.h"

namespace regroup::mpi {

/// The representation of a datatype's elements in memory.
enum class Element : std::uint8_t {
    byte,
    int8,
    uint8,
    int16,
    uint16,
    int32,
    uint32,
    int64,
    uint64,
    float32,
    float64,
    boolean,
};

struct Datatype {
    const char* name;  ///< "MPI_INT".
    Element element;
    std::size_t bytes;
};

/// Throws CallError MPI_ERR_TYPE for a datatype that mpi.h does not define.
[[nodiscard]] const Datatype& datatype_of(MPI_Datatype type);

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

/// into[i] = into[i] op values[i]. Requires `require_defined`, no `group_reduction`, and equal
/// sizes.
void fold(MPI_Op op, const Datatype& type, std::span<const std::byte> values,
          std::span<std::byte> into);

}  // namespace regroup::mpi
