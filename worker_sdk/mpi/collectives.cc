// SPDX-License-Identifier: Apache-2.0
// mpi.h: collectives.
#include <cstring>
#include <utility>

#include "worker_sdk/mpi/datatype.h"
#include "worker_sdk/mpi/session.h"

namespace regroup::mpi {
namespace {

/// Bytes that are moved, whatever they mean.
TensorView moved(void* data, std::size_t bytes) {
    return {data, bytes, DType::uint8};
}
ConstTensorView moved(const void* data, std::size_t bytes) {
    return {data, bytes, DType::uint8};
}

std::byte* row(void* rows, std::uint32_t index, std::size_t bytes) {
    return static_cast<std::byte*>(rows) + index * bytes;
}

/// One rank's part on either side of a gather or scatter.
void require_equal(std::size_t sent, std::size_t received) {
    if (sent != received) {
        throw CallError(MPI_ERR_COUNT, "a rank sends " + std::to_string(sent) +
                                           " bytes and receives " + std::to_string(received) +
                                           "; both sides must give the same");
    }
}

/// `send` and `receive` of a reduction of `count` elements, checked.
struct ReductionCall {
    const Datatype& type;
    std::size_t count;
    std::size_t bytes;
    MPI_Op op;

    ReductionCall(int count_in, MPI_Datatype type_in, MPI_Op op_in)
        : type(datatype_of(type_in)),
          count(count_of(count_in)),
          bytes(count * type.bytes),
          op(op_in) {
        require_defined(op, type);
    }
};

/// Folds all ranks' values in the order of the ranks into `receive`.
void reduce_by_gathering(ProcessGroup& group, const ReductionCall& call, const void* send,
                         void* receive) {
    std::vector<std::byte> all(group.world_size() * call.bytes);
    group.all_gather(moved(send, call.bytes), moved(all.data(), all.size())).wait();
    std::vector<std::byte> result(all.begin(),
                                  all.begin() + static_cast<std::ptrdiff_t>(call.bytes));
    for (std::uint32_t rank = 1; rank < group.world_size(); ++rank) {
        fold(call.op, call.type, {row(all.data(), rank, call.bytes), call.bytes}, result);
    }
    if (receive != nullptr && call.bytes > 0) {
        std::memcpy(receive, result.data(), call.bytes);
    }
}

/// Puts a rank's own values where the result is to be.
void place(const void* send, void* receive, std::size_t bytes) {
    if (send != MPI_IN_PLACE && bytes > 0) {
        require_buffer(send, bytes);
        std::memcpy(receive, send, bytes);
    }
}

void all_reduce(ProcessGroup& group, const ReductionCall& call, const void* send, void* receive) {
    require_buffer(receive, call.bytes);
    place(send, receive, call.bytes);
    if (const auto reduction = group_reduction(call.op, call.type)) {
        group.all_reduce({receive, call.count, reduction->dtype}, reduction->op).wait();
    } else {
        reduce_by_gathering(group, call, receive, receive);
    }
}

void reduce(ProcessGroup& group, const ReductionCall& call, const void* send, void* receive,
            std::uint32_t root) {
    if (group.rank() == root) {
        require_buffer(receive, call.bytes);
        place(send, receive, call.bytes);
    } else {
        require_buffer(send, call.bytes);
        receive = nullptr;
    }
    if (const auto reduction = group_reduction(call.op, call.type)) {
        // In place on the root; the others' buffers are left alone.
        void* const values = receive != nullptr ? receive : const_cast<void*>(send);
        group.reduce({values, call.count, reduction->dtype}, reduction->op, root).wait();
    } else {
        reduce_by_gathering(group, call, receive != nullptr ? receive : send, receive);
    }
}

}  // namespace
}  // namespace regroup::mpi

using namespace regroup::mpi;
using regroup::ProcessGroup;

int MPI_Barrier(MPI_Comm comm) {
    return carry_out(__func__, comm, [&] { session().communicator(comm).group->barrier().wait(); });
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    return carry_out(__func__, comm, [&] {
        Communicator& ranks = session().communicator(comm);
        const std::size_t bytes = bytes_of(count, type);
        require_buffer(buffer, bytes);
        ranks.group->broadcast(moved(buffer, bytes), rank_in(ranks, root, MPI_ERR_ROOT)).wait();
    });
}

int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
    return carry_out(__func__, comm, [&] {
        all_reduce(*session().communicator(comm).group, ReductionCall(count, type, op), send,
                   receive);
    });
}

int MPI_Reduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, int root,
               MPI_Comm comm) {
    return carry_out(__func__, comm, [&] {
        Communicator& ranks = session().communicator(comm);
        reduce(*ranks.group, ReductionCall(count, type, op), send, receive,
               rank_in(ranks, root, MPI_ERR_ROOT));
    });
}

int MPI_Allgather(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                  int receive_count, MPI_Datatype receive_type, MPI_Comm comm) {
    return carry_out(__func__, comm, [&] {
        ProcessGroup& group = *session().communicator(comm).group;
        const std::size_t bytes = bytes_of(receive_count, receive_type);
        require_buffer(receive, bytes);
        if (send == MPI_IN_PLACE) {
            send = row(receive, group.rank(), bytes);
        } else {
            require_equal(bytes_of(send_count, send_type), bytes);
            require_buffer(send, bytes);
        }
        group.all_gather(moved(send, bytes), moved(receive, group.world_size() * bytes)).wait();
    });
}

int MPI_Gather(const void* send, int send_count, MPI_Datatype send_type, void* receive,
               int receive_count, MPI_Datatype receive_type, int root, MPI_Comm comm) {
    return carry_out(__func__, comm, [&] {
        Communicator& ranks = session().communicator(comm);
        ProcessGroup& group = *ranks.group;
        const std::uint32_t at = rank_in(ranks, root, MPI_ERR_ROOT);
        if (group.rank() != at) {
            const std::size_t bytes = bytes_of(send_count, send_type);
            require_buffer(send, bytes);
            group.gather(moved(send, bytes), {}, at).wait();
            return;
        }
        const std::size_t bytes = bytes_of(receive_count, receive_type);
        require_buffer(receive, bytes);
        if (send == MPI_IN_PLACE) {
            send = row(receive, at, bytes);
        } else {
            require_equal(bytes_of(send_count, send_type), bytes);
            require_buffer(send, bytes);
        }
        group.gather(moved(send, bytes), moved(receive, group.world_size() * bytes), at).wait();
    });
}

int MPI_Scatter(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                int receive_count, MPI_Datatype receive_type, int root, MPI_Comm comm) {
    return carry_out(__func__, comm, [&] {
        Communicator& ranks = session().communicator(comm);
        ProcessGroup& group = *ranks.group;
        const std::uint32_t at = rank_in(ranks, root, MPI_ERR_ROOT);
        if (group.rank() != at) {
            const std::size_t bytes = bytes_of(receive_count, receive_type);
            require_buffer(receive, bytes);
            group.scatter({}, moved(receive, bytes), at).wait();
            return;
        }
        const std::size_t bytes = bytes_of(send_count, send_type);
        require_buffer(send, bytes);
        if (receive == MPI_IN_PLACE) {
            receive = row(const_cast<void*>(send), at, bytes);  // Its own row, onto itself.
        } else {
            require_equal(bytes, bytes_of(receive_count, receive_type));
            require_buffer(receive, bytes);
        }
        group.scatter(moved(send, group.world_size() * bytes), moved(receive, bytes), at).wait();
    });
}

int MPI_Alltoall(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                 int receive_count, MPI_Datatype receive_type, MPI_Comm comm) {
    return carry_out(__func__, comm, [&] {
        ProcessGroup& group = *session().communicator(comm).group;
        const std::size_t bytes = bytes_of(receive_count, receive_type);
        require_buffer(receive, bytes);
        std::vector<std::byte> copy;
        if (send == MPI_IN_PLACE) {
            const std::byte* const rows = row(receive, 0, bytes);
            copy.assign(rows, rows + group.world_size() * bytes);
            send = copy.data();
        } else {
            require_equal(bytes_of(send_count, send_type), bytes);
            require_buffer(send, bytes);
        }
        const std::size_t all = group.world_size() * bytes;
        group.all_to_all(moved(send, all), moved(receive, all)).wait();
    });
}
