// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "worker_sdk/mpi/session.h"

namespace regroup::mpi {

/// MPI_IDENT, MPI_SIMILAR or MPI_UNEQUAL.
[[nodiscard]] int compare(const regroup_mpi_group& left, const regroup_mpi_group& right);

}  // namespace regroup::mpi
