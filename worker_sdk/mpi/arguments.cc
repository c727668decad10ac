// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/mpi/arguments.h"

namespace regroup::mpi {

std::size_t count_of(int count) {
    if (count < 0) {
        throw CallError(MPI_ERR_COUNT, "the count " + std::to_string(count) + " is negative");
    }
    return static_cast<std::size_t>(count);
}

void require_buffer(const void* buffer, std::size_t bytes) {
    if (bytes > 0 && buffer == nullptr) {
        throw CallError(MPI_ERR_BUFFER, "a buffer of " + std::to_string(bytes) + " bytes is null");
    }
    if (bytes > 0 && buffer == MPI_IN_PLACE) {
        throw CallError(MPI_ERR_BUFFER, "MPI_IN_PLACE is not allowed here");
    }
}

}  // namespace regroup::mpi
