// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <cstdint>
#include <vector>

#include "worker_sdk/src/cpu/mesh.h"
#include "worker_sdk/src/cpu/operation.h"

/// What a caller asks for, checked and put into the form in which it is carried out. Each function
/// throws Error `invalid_argument` for what cannot be right, which costs the group nothing: nothing
/// has been issued.
namespace regroup::cpu::request {

[[nodiscard]] Operation all_reduce(TensorView buffer, Reduction reduction);
[[nodiscard]] Operation reduce(const GroupPosition& position, TensorView buffer,
                               Reduction reduction, std::uint32_t root);
[[nodiscard]] Operation reduce_scatter(const GroupPosition& position, ConstTensorView input,
                                       TensorView output, Reduction reduction);
[[nodiscard]] Operation broadcast(const GroupPosition& position, TensorView buffer,
                                  std::uint32_t root);
[[nodiscard]] Operation all_gather(const GroupPosition& position, ConstTensorView input,
                                   TensorView output);
[[nodiscard]] Operation gather(const GroupPosition& position, ConstTensorView input,
                               TensorView output, std::uint32_t root);
[[nodiscard]] Operation scatter(const GroupPosition& position, ConstTensorView input,
                                TensorView output, std::uint32_t root);
[[nodiscard]] Operation all_to_all(const GroupPosition& position, ConstTensorView input,
                                   TensorView output);
[[nodiscard]] Operation barrier();
[[nodiscard]] Operation send(const GroupPosition& position, ConstTensorView buffer,
                             std::uint32_t peer, std::uint32_t tag);
[[nodiscard]] Operation recv(const GroupPosition& position, TensorView buffer, std::uint32_t peer,
                             std::uint32_t tag);

/// Requires at least one rank, each existing and listed once.
void check_members(const std::vector<std::uint32_t>& ranks, std::uint32_t world_size);

}  // namespace regroup::cpu::request
