// SPDX-License-Identifier: Apache-2.0
// mpi.h: collectives in which all ranks have equally much.
#include "worker_sdk/mpi/collectives.h"

#include <cstring>
#include <utility>

#include "worker_sdk/mpi/session.h"

namespace regroup::mpi {

void require_equal(std::size_t sent, std::size_t received) {
    if (sent != received) {
        throw CallError(MPI_ERR_COUNT, "a rank sends " + std::to_string(sent) +
                                           " bytes and receives " + std::to_string(received) +
                                           "; both sides must give the same");
    }
}

ReductionCall::ReductionCall(int count_in, MPI_Datatype type_in, MPI_Op op_in)
    : type(datatype_of(type_in)), count(count_of(count_in)), bytes(count * type.bytes), op(op_in) {
    require_defined(op, type);
}

namespace {

Collective collective(Work work = {}) {
    auto started = std::make_unique<CompoundRequest>();
    started->work = std::move(work);
    return started;
}

/// Folds all ranks' values in the order of the ranks into `receive`, which may be null.
Collective reduce_by_gathering(ProcessGroup& group, const ReductionCall& call, const void* send,
                               void* receive) {
    Collective started = collective();
    started->scratch.resize(group.world_size() * call.bytes);
    std::byte* const all = started->scratch.data();
    started->work = group.all_gather(moved(send, call.bytes), moved(all, started->scratch.size()));
    if (receive != nullptr && call.bytes > 0) {
        started->conclude = [call, all, receive, ranks = group.world_size()] {
            for (std::uint32_t rank = 1; rank < ranks; ++rank) {
                fold(call.op, call.type, {row(all, rank, call.bytes), call.bytes},
                     {all, call.bytes});
            }
            std::memcpy(receive, all, call.bytes);
        };
    }
    return started;
}

/// Puts a rank's own values where the result is to be.
void place(const void* send, void* receive, std::size_t bytes) {
    if (send != MPI_IN_PLACE && bytes > 0) {
        require_buffer(send, bytes);
        std::memmove(receive, send, bytes);
    }
}

Collective start_reduce(const void* send, void* receive, const ReductionCall& call, int root,
                        MPI_Comm comm) {
    Communicator& ranks = session().communicator(comm);
    ProcessGroup& group = *ranks.group;
    const std::uint32_t at = rank_in(ranks, root, MPI_ERR_ROOT);
    if (group.rank() == at) {
        require_buffer(receive, call.bytes);
        place(send, receive, call.bytes);
    } else {
        require_buffer(send, call.bytes);
        receive = nullptr;
    }
    if (const auto reduction = group_reduction(call.op, call.type)) {
        // In place on the root; the others' buffers are left alone.
        void* const values = receive != nullptr ? receive : const_cast<void*>(send);
        return collective(group.reduce(call.values(values, *reduction), reduction->op, at));
    }
    return reduce_by_gathering(group, call, receive != nullptr ? receive : send, receive);
}

Collective start_broadcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    Communicator& ranks = session().communicator(comm);
    const std::size_t bytes = bytes_of(count, type);
    require_buffer(buffer, bytes);
    return collective(
        ranks.group->broadcast(moved(buffer, bytes), rank_in(ranks, root, MPI_ERR_ROOT)));
}

Collective start_all_gather(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                            int receive_count, MPI_Datatype receive_type, MPI_Comm comm) {
    ProcessGroup& group = *session().communicator(comm).group;
    const std::size_t bytes = bytes_of(receive_count, receive_type);
    require_buffer(receive, bytes);
    if (send == MPI_IN_PLACE) {
        send = row(receive, group.rank(), bytes);
    } else {
        require_equal(bytes_of(send_count, send_type), bytes);
        require_buffer(send, bytes);
    }
    return collective(
        group.all_gather(moved(send, bytes), moved(receive, group.world_size() * bytes)));
}

Collective start_gather(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                        int receive_count, MPI_Datatype receive_type, int root, MPI_Comm comm) {
    Communicator& ranks = session().communicator(comm);
    ProcessGroup& group = *ranks.group;
    const std::uint32_t at = rank_in(ranks, root, MPI_ERR_ROOT);
    if (group.rank() != at) {
        const std::size_t bytes = bytes_of(send_count, send_type);
        require_buffer(send, bytes);
        return collective(group.gather(moved(send, bytes), {}, at));
    }
    const std::size_t bytes = bytes_of(receive_count, receive_type);
    require_buffer(receive, bytes);
    if (send == MPI_IN_PLACE) {
        send = row(receive, at, bytes);
    } else {
        require_equal(bytes_of(send_count, send_type), bytes);
        require_buffer(send, bytes);
    }
    return collective(
        group.gather(moved(send, bytes), moved(receive, group.world_size() * bytes), at));
}

Collective start_scatter(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                         int receive_count, MPI_Datatype receive_type, int root, MPI_Comm comm) {
    Communicator& ranks = session().communicator(comm);
    ProcessGroup& group = *ranks.group;
    const std::uint32_t at = rank_in(ranks, root, MPI_ERR_ROOT);
    if (group.rank() != at) {
        const std::size_t bytes = bytes_of(receive_count, receive_type);
        require_buffer(receive, bytes);
        return collective(group.scatter({}, moved(receive, bytes), at));
    }
    const std::size_t bytes = bytes_of(send_count, send_type);
    require_buffer(send, bytes);
    if (receive == MPI_IN_PLACE) {
        receive = row(const_cast<void*>(send), at, bytes);  // Its own row, onto itself.
    } else {
        require_equal(bytes, bytes_of(receive_count, receive_type));
        require_buffer(receive, bytes);
    }
    return collective(
        group.scatter(moved(send, group.world_size() * bytes), moved(receive, bytes), at));
}

Collective start_all_to_all(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                            int receive_count, MPI_Datatype receive_type, MPI_Comm comm) {
    ProcessGroup& group = *session().communicator(comm).group;
    const std::size_t bytes = bytes_of(receive_count, receive_type);
    const std::size_t all = group.world_size() * bytes;
    require_buffer(receive, bytes);
    Collective started = collective();
    if (send == MPI_IN_PLACE) {
        const auto* const rows = static_cast<const std::byte*>(receive);
        started->scratch.assign(rows, rows + all);
        send = started->scratch.data();
    } else {
        require_equal(bytes_of(send_count, send_type), bytes);
        require_buffer(send, bytes);
    }
    started->work = group.all_to_all(moved(send, all), moved(receive, all));
    return started;
}

Collective start_all_reduce(const void* send, void* receive, int count, MPI_Datatype type,
                            MPI_Op op, MPI_Comm comm) {
    return start_all_reduce(*session().communicator(comm).group, ReductionCall(count, type, op),
                            send, receive);
}

Collective start_barrier(MPI_Comm comm) {
    return collective(session().communicator(comm).group->barrier());
}

}  // namespace

Collective start_all_reduce(ProcessGroup& group, const ReductionCall& call, const void* send,
                            void* receive) {
    require_buffer(receive, call.bytes);
    place(send, receive, call.bytes);
    if (const auto reduction = group_reduction(call.op, call.type)) {
        return collective(group.all_reduce(call.values(receive, *reduction), reduction->op));
    }
    return reduce_by_gathering(group, call, receive, receive);
}

}  // namespace regroup::mpi

using namespace regroup::mpi;

int MPI_Barrier(MPI_Comm comm) {
    return complete(__func__, comm, [&] { return start_barrier(comm); });
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
    return begin(__func__, comm, request, [&] { return start_barrier(comm); });
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    return complete(__func__, comm,
                    [&] { return start_broadcast(buffer, count, type, root, comm); });
}

int MPI_Ibcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm,
               MPI_Request* request) {
    return begin(__func__, comm, request,
                 [&] { return start_broadcast(buffer, count, type, root, comm); });
}

int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
    return complete(__func__, comm,
                    [&] { return start_all_reduce(send, receive, count, type, op, comm); });
}

int MPI_Iallreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request* request) {
    return begin(__func__, comm, request,
                 [&] { return start_all_reduce(send, receive, count, type, op, comm); });
}

int MPI_Reduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, int root,
               MPI_Comm comm) {
    return complete(__func__, comm, [&] {
        return start_reduce(send, receive, ReductionCall(count, type, op), root, comm);
    });
}

int MPI_Ireduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, int root,
                MPI_Comm comm, MPI_Request* request) {
    return begin(__func__, comm, request, [&] {
        return start_reduce(send, receive, ReductionCall(count, type, op), root, comm);
    });
}

int MPI_Allgather(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                  int receive_count, MPI_Datatype receive_type, MPI_Comm comm) {
    return complete(__func__, comm, [&] {
        return start_all_gather(send, send_count, send_type, receive, receive_count, receive_type,
                                comm);
    });
}

int MPI_Iallgather(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                   int receive_count, MPI_Datatype receive_type, MPI_Comm comm,
                   MPI_Request* request) {
    return begin(__func__, comm, request, [&] {
        return start_all_gather(send, send_count, send_type, receive, receive_count, receive_type,
                                comm);
    });
}

int MPI_Gather(const void* send, int send_count, MPI_Datatype send_type, void* receive,
               int receive_count, MPI_Datatype receive_type, int root, MPI_Comm comm) {
    return complete(__func__, comm, [&] {
        return start_gather(send, send_count, send_type, receive, receive_count, receive_type, root,
                            comm);
    });
}

int MPI_Igather(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                int receive_count, MPI_Datatype receive_type, int root, MPI_Comm comm,
                MPI_Request* request) {
    return begin(__func__, comm, request, [&] {
        return start_gather(send, send_count, send_type, receive, receive_count, receive_type, root,
                            comm);
    });
}

int MPI_Scatter(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                int receive_count, MPI_Datatype receive_type, int root, MPI_Comm comm) {
    return complete(__func__, comm, [&] {
        return start_scatter(send, send_count, send_type, receive, receive_count, receive_type,
                             root, comm);
    });
}

int MPI_Iscatter(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                 int receive_count, MPI_Datatype receive_type, int root, MPI_Comm comm,
                 MPI_Request* request) {
    return begin(__func__, comm, request, [&] {
        return start_scatter(send, send_count, send_type, receive, receive_count, receive_type,
                             root, comm);
    });
}

int MPI_Alltoall(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                 int receive_count, MPI_Datatype receive_type, MPI_Comm comm) {
    return complete(__func__, comm, [&] {
        return start_all_to_all(send, send_count, send_type, receive, receive_count, receive_type,
                                comm);
    });
}

int MPI_Ialltoall(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                  int receive_count, MPI_Datatype receive_type, MPI_Comm comm,
                  MPI_Request* request) {
    return begin(__func__, comm, request, [&] {
        return start_all_to_all(send, send_count, send_type, receive, receive_count, receive_type,
                                comm);
    });
}
