// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "rendezvous/worker_link/collectives_page.h"

namespace regroup::nccl_profiler {

/// The signature of an operation by NCCL's names ("AllReduce", "ncclFloat32").
[[nodiscard]] worker_link::CollectiveSignature signature_of(const char* function, const char* type,
                                                            std::size_t count) noexcept;
/// The same by the numbers of version 1.
[[nodiscard]] worker_link::CollectiveSignature signature_of(std::uint8_t function,
                                                            std::uint8_t type,
                                                            std::size_t count) noexcept;

}  // namespace regroup::nccl_profiler
