// SPDX-License-Identifier: Apache-2.0
// The group's operations in NCCL's terms. A count of zero asks NCCL nothing, on all ranks alike.
#include <regroup/process_group.h>

#include <cstddef>

#include "worker_sdk/src/nccl/nccl_process_group.h"

namespace regroup::nccl {
namespace {

/// Row `index` of rows of `count` values each.
std::byte* row(void* rows, std::size_t index, std::size_t count, DType dtype) {
    return static_cast<std::byte*>(rows) + index * count * item_bytes(dtype);
}

const std::byte* row(const void* rows, std::size_t index, std::size_t count, DType dtype) {
    return static_cast<const std::byte*>(rows) + index * count * item_bytes(dtype);
}

/// The first result that is not a success of the calls for each rank.
template <class Body>
ncclResult_t for_each_rank(std::uint32_t world_size, const Body& body) {
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
        const ncclResult_t result = body(rank);
        if (!is_good(result)) {
            return result;
        }
    }
    return ncclSuccess;
}

}  // namespace

Work NcclProcessGroup::all_reduce(TensorView buffer, Reduction reduction) {
    check_buffer("all_reduce", buffer, bounds_);
    check_reduction("all_reduce", reduction, buffer.dtype, bounds_);
    return issue({.operation = {.kind = OperationKind::all_reduce,
                                .count = buffer.count,
                                .dtype = buffer.dtype,
                                .reduction = reduction},
                  .launch = [&api = backend_.api, buffer](auto comm, auto op, auto stream) {
                      return buffer.count == 0
                                 ? ncclSuccess
                                 : api.all_reduce(buffer.data, buffer.data, buffer.count,
                                                  nccl_type(buffer.dtype), op, comm, stream);
                  }});
}

Work NcclProcessGroup::reduce(TensorView buffer, Reduction reduction, std::uint32_t root) {
    check_buffer("reduce", buffer, bounds_);
    check_reduction("reduce", reduction, buffer.dtype, bounds_);
    check_root("reduce: root", root, bounds_);
    void* const output = root == bounds_.rank ? buffer.data : nullptr;
    return issue(
        {.operation = {.kind = OperationKind::reduce,
                       .count = buffer.count,
                       .dtype = buffer.dtype,
                       .reduction = reduction,
                       .peer = root},
         .launch = [&api = backend_.api, buffer, output, root](auto comm, auto op, auto stream) {
             return buffer.count == 0
                        ? ncclSuccess
                        : api.reduce(buffer.data, output, buffer.count, nccl_type(buffer.dtype), op,
                                     static_cast<int>(root), comm, stream);
         }});
}

Work NcclProcessGroup::reduce_scatter(ConstTensorView input, TensorView output,
                                      Reduction reduction) {
    check_rows("reduce_scatter", output, input, bounds_);
    check_reduction("reduce_scatter", reduction, output.dtype, bounds_);
    return issue({.operation = {.kind = OperationKind::reduce_scatter,
                                .count = output.count,
                                .dtype = output.dtype,
                                .reduction = reduction},
                  .launch = [&api = backend_.api, input, output](auto comm, auto op, auto stream) {
                      return output.count == 0
                                 ? ncclSuccess
                                 : api.reduce_scatter(input.data, output.data, output.count,
                                                      nccl_type(output.dtype), op, comm, stream);
                  }});
}

Work NcclProcessGroup::broadcast(TensorView buffer, std::uint32_t root) {
    check_buffer("broadcast", buffer, bounds_);
    check_root("broadcast: root", root, bounds_);
    return issue({.operation = {.kind = OperationKind::broadcast,
                                .count = buffer.count,
                                .dtype = buffer.dtype,
                                .peer = root},
                  .launch = [&api = backend_.api, buffer, root](auto comm, auto, auto stream) {
                      return buffer.count == 0
                                 ? ncclSuccess
                                 : api.broadcast(buffer.data, buffer.data, buffer.count,
                                                 nccl_moved_type(buffer.dtype),
                                                 static_cast<int>(root), comm, stream);
                  }});
}

Work NcclProcessGroup::all_gather(ConstTensorView input, TensorView output) {
    check_rows("all_gather", input, output, bounds_);
    return issue({.operation = {.kind = OperationKind::all_gather,
                                .count = input.count,
                                .dtype = input.dtype},
                  .launch = [&api = backend_.api, input, output](auto comm, auto, auto stream) {
                      return input.count == 0
                                 ? ncclSuccess
                                 : api.all_gather(input.data, output.data, input.count,
                                                  nccl_moved_type(input.dtype), comm, stream);
                  }});
}

Work NcclProcessGroup::gather(ConstTensorView input, TensorView output, std::uint32_t root) {
    check_root("gather: root", root, bounds_);
    const bool is_root = root == bounds_.rank;
    if (is_root) {
        check_rows("gather", input, output, bounds_);
    } else {
        check_buffer("gather", input, bounds_);
    }
    void* const rows = is_root ? output.data : nullptr;
    return issue({.operation = {.kind = OperationKind::gather,
                                .count = input.count,
                                .dtype = input.dtype,
                                .peer = root},
                  .launch = [&api = backend_.api, input, rows, root, size = bounds_.world_size](
                                auto comm, auto, auto stream) {
                      const ncclDataType_t type = nccl_moved_type(input.dtype);
                      const auto to = static_cast<int>(root);
                      if (input.count == 0) {
                          return ncclSuccess;
                      }
                      if (api.gather != nullptr) {
                          return api.gather(input.data, rows, input.count, type, to, comm, stream);
                      }
                      const ncclResult_t sent =
                          api.send(input.data, input.count, type, to, comm, stream);
                      if (rows == nullptr || !is_good(sent)) {
                          return sent;
                      }
                      return for_each_rank(size, [&](std::uint32_t rank) {
                          return api.recv(row(rows, rank, input.count, input.dtype), input.count,
                                          type, static_cast<int>(rank), comm, stream);
                      });
                  }});
}

Work NcclProcessGroup::scatter(ConstTensorView input, TensorView output, std::uint32_t root) {
    check_root("scatter: root", root, bounds_);
    const bool is_root = root == bounds_.rank;
    if (is_root) {
        check_rows("scatter", output, input, bounds_);
    } else {
        check_buffer("scatter", output, bounds_);
    }
    const void* const rows = is_root ? input.data : nullptr;
    return issue(
        {.operation = {.kind = OperationKind::scatter,
                       .count = output.count,
                       .dtype = output.dtype,
                       .peer = root},
         .launch = [&api = backend_.api, output, rows, root, size = bounds_.world_size](
                       auto comm, auto, auto stream) {
             const ncclDataType_t type = nccl_moved_type(output.dtype);
             const auto from = static_cast<int>(root);
             if (output.count == 0) {
                 return ncclSuccess;
             }
             if (api.scatter != nullptr) {
                 return api.scatter(rows, output.data, output.count, type, from, comm, stream);
             }
             const ncclResult_t got = api.recv(output.data, output.count, type, from, comm, stream);
             if (rows == nullptr || !is_good(got)) {
                 return got;
             }
             return for_each_rank(size, [&](std::uint32_t rank) {
                 return api.send(row(rows, rank, output.count, output.dtype), output.count, type,
                                 static_cast<int>(rank), comm, stream);
             });
         }});
}

Work NcclProcessGroup::all_to_all(ConstTensorView input, TensorView output) {
    check_exchange("all_to_all", input, output, bounds_);
    const std::size_t count = input.count / bounds_.world_size;
    return issue(
        {.operation = {.kind = OperationKind::all_to_all, .count = count, .dtype = input.dtype},
         .launch = [&api = backend_.api, input, output, count, size = bounds_.world_size](
                       auto comm, auto, auto stream) {
             const ncclDataType_t type = nccl_moved_type(input.dtype);
             if (count == 0) {
                 return ncclSuccess;
             }
             if (api.all_to_all != nullptr) {
                 return api.all_to_all(input.data, output.data, count, type, comm, stream);
             }
             return for_each_rank(size, [&](std::uint32_t rank) {
                 const auto peer = static_cast<int>(rank);
                 const ncclResult_t sent = api.send(row(input.data, rank, count, input.dtype),
                                                    count, type, peer, comm, stream);
                 return !is_good(sent) ? sent
                                       : api.recv(row(output.data, rank, count, input.dtype), count,
                                                  type, peer, comm, stream);
             });
         }});
}

Work NcclProcessGroup::barrier() {
    return issue({.operation = {.kind = OperationKind::barrier},
                  .launch = [&api = backend_.api, word = lane_->barrier_word()](auto comm, auto,
                                                                                auto stream) {
                      return api.all_reduce(word, word, 1, ncclInt32, ncclSum, comm, stream);
                  }});
}

Work NcclProcessGroup::send(ConstTensorView buffer, std::uint32_t peer, std::uint32_t tag) {
    check_buffer("send", buffer, bounds_);
    check_peer("send", peer, bounds_);
    return issue({.operation = {.kind = OperationKind::send,
                                .count = buffer.count,
                                .dtype = buffer.dtype,
                                .peer = peer,
                                .tag = tag},
                  .launch = [&api = backend_.api, buffer, peer](auto comm, auto, auto stream) {
                      return buffer.count == 0 ? ncclSuccess
                                               : api.send(buffer.data, buffer.count,
                                                          nccl_moved_type(buffer.dtype),
                                                          static_cast<int>(peer), comm, stream);
                  }});
}

Work NcclProcessGroup::recv(TensorView buffer, std::uint32_t peer, std::uint32_t tag) {
    check_buffer("recv", buffer, bounds_);
    check_peer("recv", peer, bounds_);
    return issue({.operation = {.kind = OperationKind::recv,
                                .count = buffer.count,
                                .dtype = buffer.dtype,
                                .peer = peer,
                                .tag = tag},
                  .launch = [&api = backend_.api, buffer, peer](auto comm, auto, auto stream) {
                      return buffer.count == 0 ? ncclSuccess
                                               : api.recv(buffer.data, buffer.count,
                                                          nccl_moved_type(buffer.dtype),
                                                          static_cast<int>(peer), comm, stream);
                  }});
}

}  // namespace regroup::nccl
