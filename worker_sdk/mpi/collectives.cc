// SPDX-License-Identifier: Apache-2.0
// mpi.h: collectives in which all ranks have equally much.
#include "worker_sdk/mpi/collectives.h"

#include <cstring>
#include <utility>

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

/// Folds all ranks' values in the order of the ranks into `receive`, which may be null.
Collective reduce_by_gathering(ProcessGroup& group, const ReductionCall& call, const void* send,
                               void* receive) {
    Collective started = collective();
    started->scratch.resize(group.world_size() * call.bytes);
    std::byte* const all = started->scratch.data();
    started->work = group.all_gather(moved(const_cast<void*>(send), call.bytes),
                                     moved(all, started->scratch.size()));
    if (receive != nullptr && call.bytes > 0) {
        started->conclude = [call, all, receive, ranks = group.world_size()] {
            for (std::uint32_t rank = 1; rank < ranks; ++rank) {
                call.type.fold(call.op, {all + rank * call.bytes, call.bytes}, {all, call.bytes});
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

Collective start_all_reduce(MPI_Comm comm, const void* send, void* receive, int count,
                            MPI_Datatype type, MPI_Op op) {
    return all_reduce(*session().communicator(comm).group, ReductionCall(count, type, op), send,
                      receive);
}

Collective start_reduce(MPI_Comm comm, const void* send, void* receive, int count,
                        MPI_Datatype type, MPI_Op op, int root) {
    const ReductionCall call(count, type, op);
    const Communicator& ranks = session().communicator(comm);
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

Collective start_broadcast(MPI_Comm comm, const Side& side, int root) {
    const Communicator& ranks = session().communicator(comm);
    return collective(
        ranks.group->broadcast(moved(side.part()), rank_in(ranks, root, MPI_ERR_ROOT)));
}

Collective start_all_gather(MPI_Comm comm, const Side& send, const Side& receive) {
    ProcessGroup& group = *session().communicator(comm).group;
    const Part rows = receive.part();
    const Part own = send.part_or(rows.row(group.rank()));
    require_equal(own.bytes, rows.bytes);
    return collective(group.all_gather(moved(own), moved(rows, group.world_size())));
}

Collective start_gather(MPI_Comm comm, const Side& send, const Side& receive, int root) {
    const Communicator& ranks = session().communicator(comm);
    ProcessGroup& group = *ranks.group;
    const std::uint32_t at = rank_in(ranks, root, MPI_ERR_ROOT);
    if (group.rank() != at) {
        return collective(group.gather(moved(send.part()), {}, at));
    }
    const Part rows = receive.part();
    const Part own = send.part_or(rows.row(at));
    require_equal(own.bytes, rows.bytes);
    return collective(group.gather(moved(own), moved(rows, group.world_size()), at));
}

Collective start_scatter(MPI_Comm comm, const Side& send, const Side& receive, int root) {
    const Communicator& ranks = session().communicator(comm);
    ProcessGroup& group = *ranks.group;
    const std::uint32_t at = rank_in(ranks, root, MPI_ERR_ROOT);
    if (group.rank() != at) {
        return collective(group.scatter({}, moved(receive.part()), at));
    }
    const Part rows = send.part();
    const Part own = receive.part_or(rows.row(at));  // Its own row, onto itself.
    require_equal(rows.bytes, own.bytes);
    return collective(group.scatter(moved(rows, group.world_size()), moved(own), at));
}

Collective start_all_to_all(MPI_Comm comm, const Side& send, const Side& receive) {
    ProcessGroup& group = *session().communicator(comm).group;
    const Part rows = receive.part();
    const std::size_t all = group.world_size() * rows.bytes;
    Collective started = collective();
    if (send.buffer == MPI_IN_PLACE) {
        started->scratch.assign(rows.data, rows.data + all);
    }
    const Part sent = send.part_or({started->scratch.data(), rows.bytes});
    require_equal(sent.bytes, rows.bytes);
    started->work = group.all_to_all(moved(sent.data, all), moved(rows.data, all));
    return started;
}

Collective start_barrier(MPI_Comm comm) {
    return collective(session().communicator(comm).group->barrier());
}

}  // namespace

Collective all_reduce(ProcessGroup& group, const ReductionCall& call, const void* send,
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
    return complete(__func__, comm, start_barrier);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
    return begin(__func__, comm, request, start_barrier);
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    return complete(__func__, comm, start_broadcast, Side{buffer, count, type}, root);
}

int MPI_Ibcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm,
               MPI_Request* request) {
    return begin(__func__, comm, request, start_broadcast, Side{buffer, count, type}, root);
}

int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
    return complete(__func__, comm, start_all_reduce, send, receive, count, type, op);
}

int MPI_Iallreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request* request) {
    return begin(__func__, comm, request, start_all_reduce, send, receive, count, type, op);
}

int MPI_Reduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, int root,
               MPI_Comm comm) {
    return complete(__func__, comm, start_reduce, send, receive, count, type, op, root);
}

int MPI_Ireduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, int root,
                MPI_Comm comm, MPI_Request* request) {
    return begin(__func__, comm, request, start_reduce, send, receive, count, type, op, root);
}

int MPI_Allgather(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                  int receive_count, MPI_Datatype receive_type, MPI_Comm comm) {
    return complete(__func__, comm, start_all_gather, Side{send, send_count, send_type},
                    Side{receive, receive_count, receive_type});
}

int MPI_Iallgather(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                   int receive_count, MPI_Datatype receive_type, MPI_Comm comm,
                   MPI_Request* request) {
    return begin(__func__, comm, request, start_all_gather, Side{send, send_count, send_type},
                 Side{receive, receive_count, receive_type});
}

int MPI_Gather(const void* send, int send_count, MPI_Datatype send_type, void* receive,
               int receive_count, MPI_Datatype receive_type, int root, MPI_Comm comm) {
    return complete(__func__, comm, start_gather, Side{send, send_count, send_type},
                    Side{receive, receive_count, receive_type}, root);
}

int MPI_Igather(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                int receive_count, MPI_Datatype receive_type, int root, MPI_Comm comm,
                MPI_Request* request) {
    return begin(__func__, comm, request, start_gather, Side{send, send_count, send_type},
                 Side{receive, receive_count, receive_type}, root);
}

int MPI_Scatter(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                int receive_count, MPI_Datatype receive_type, int root, MPI_Comm comm) {
    return complete(__func__, comm, start_scatter, Side{send, send_count, send_type},
                    Side{receive, receive_count, receive_type}, root);
}

int MPI_Iscatter(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                 int receive_count, MPI_Datatype receive_type, int root, MPI_Comm comm,
                 MPI_Request* request) {
    return begin(__func__, comm, request, start_scatter, Side{send, send_count, send_type},
                 Side{receive, receive_count, receive_type}, root);
}

int MPI_Alltoall(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                 int receive_count, MPI_Datatype receive_type, MPI_Comm comm) {
    return complete(__func__, comm, start_all_to_all, Side{send, send_count, send_type},
                    Side{receive, receive_count, receive_type});
}

int MPI_Ialltoall(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                  int receive_count, MPI_Datatype receive_type, MPI_Comm comm,
                  MPI_Request* request) {
    return begin(__func__, comm, request, start_all_to_all, Side{send, send_count, send_type},
                 Side{receive, receive_count, receive_type});
}
