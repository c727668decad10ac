// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/requests.h"

#include <regroup/error.h>

#include <set>
#include <string>

#include "worker_sdk/src/cpu/arguments.h"

namespace regroup::cpu::request {

Operation all_reduce(TensorView buffer, Reduction reduction) {
    check_buffer("all_reduce", buffer);
    check_reduction("all_reduce", reduction, buffer.dtype);
    return {.signature = {.count = buffer.count,
                          .kind = OperationKind::all_reduce,
                          .dtype = buffer.dtype,
                          .reduce_op = reduction.op},
            .buffer = buffer,
            .factor = reduction.factor};
}

Operation reduce(const GroupPosition& position, TensorView buffer, Reduction reduction,
                 std::uint32_t root) {
    check_buffer("reduce", buffer);
    check_reduction("reduce", reduction, buffer.dtype);
    check_rank("reduce: root", root, position.world_size);
    return {.signature = {.count = buffer.count,
                          .peer = root,
                          .kind = OperationKind::reduce,
                          .dtype = buffer.dtype,
                          .reduce_op = reduction.op},
            .buffer = buffer,
            .factor = reduction.factor};
}

Operation reduce_scatter(const GroupPosition& position, ConstTensorView input, TensorView output,
                         Reduction reduction) {
    check_buffer("reduce_scatter: input", input);
    check_buffer("reduce_scatter: output", output);
    check_rows("reduce_scatter", output, input, position.world_size);
    check_reduction("reduce_scatter", reduction, input.dtype);
    return {.signature = {.count = output.count,
                          .kind = OperationKind::reduce_scatter,
                          .dtype = input.dtype,
                          .reduce_op = reduction.op},
            .buffer = output,
            .input = input,
            .factor = reduction.factor};
}

Operation broadcast(const GroupPosition& position, TensorView buffer, std::uint32_t root) {
    check_buffer("broadcast", buffer);
    check_rank("broadcast: root", root, position.world_size);
    return {.signature = {.count = buffer.count,
                          .peer = root,
                          .kind = OperationKind::broadcast,
                          .dtype = buffer.dtype},
            .buffer = buffer};
}

Operation all_gather(const GroupPosition& position, ConstTensorView input, TensorView output) {
    check_buffer("all_gather: input", input);
    check_buffer("all_gather: output", output);
    check_rows("all_gather", input, output, position.world_size);
    return {.signature = {.count = input.count,
                          .kind = OperationKind::all_gather,
                          .dtype = input.dtype},
            .buffer = output,
            .input = input};
}

Operation gather(const GroupPosition& position, ConstTensorView input, TensorView output,
                 std::uint32_t root) {
    check_buffer("gather: input", input);
    check_rank("gather: root", root, position.world_size);
    if (position.rank == root) {
        check_buffer("gather: output", output);
        check_rows("gather", input, output, position.world_size);
    }
    return {.signature = {.count = input.count,
                          .peer = root,
                          .kind = OperationKind::gather,
                          .dtype = input.dtype},
            .buffer = output,
            .input = input};
}

Operation scatter(const GroupPosition& position, ConstTensorView input, TensorView output,
                  std::uint32_t root) {
    check_buffer("scatter: output", output);
    check_rank("scatter: root", root, position.world_size);
    if (position.rank == root) {
        check_buffer("scatter: input", input);
        check_rows("scatter", output, input, position.world_size);
    }
    return {.signature = {.count = output.count,
                          .peer = root,
                          .kind = OperationKind::scatter,
                          .dtype = output.dtype},
            .buffer = output,
            .input = input};
}

Operation all_to_all(const GroupPosition& position, ConstTensorView input, TensorView output) {
    check_buffer("all_to_all: input", input);
    check_buffer("all_to_all: output", output);
    check_exchange("all_to_all", input, output, position.world_size);
    return {.signature = {.count = input.count / position.world_size,
                          .kind = OperationKind::all_to_all,
                          .dtype = input.dtype},
            .buffer = output,
            .input = input};
}

Operation barrier() {
    return {.signature = {.kind = OperationKind::barrier}};
}

Operation send(const GroupPosition& position, ConstTensorView buffer, std::uint32_t peer,
               std::uint32_t tag) {
    check_buffer("send", buffer);
    check_peer("send", peer, position.rank, position.world_size);
    return {.signature = {.count = buffer.count,
                          .peer = peer,
                          .tag = tag,
                          .kind = OperationKind::send,
                          .dtype = buffer.dtype},
            .buffer = {const_cast<void*>(buffer.data), buffer.count, buffer.dtype}};
}

Operation recv(const GroupPosition& position, TensorView buffer, std::uint32_t peer,
               std::uint32_t tag) {
    check_buffer("recv", buffer);
    check_peer("recv", peer, position.rank, position.world_size);
    return {.signature = {.count = buffer.count,
                          .peer = peer,
                          .tag = tag,
                          .kind = OperationKind::recv,
                          .dtype = buffer.dtype},
            .buffer = buffer};
}

void check_members(const std::vector<std::uint32_t>& ranks, std::uint32_t world_size) {
    if (ranks.empty()) {
        throw Error(Errc::invalid_argument, "new_group: a group of no ranks");
    }
    std::set<std::uint32_t> seen;
    for (const std::uint32_t rank : ranks) {
        check_rank("new_group", rank, world_size);
        if (!seen.insert(rank).second) {
            throw Error(Errc::invalid_argument,
                        "new_group: rank " + std::to_string(rank) + " is listed twice");
        }
    }
}

}  // namespace regroup::cpu::request
