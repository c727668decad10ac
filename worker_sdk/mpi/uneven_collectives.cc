// SPDX-License-Identifier: Apache-2.0
// mpi.h: collectives in which the ranks have different amounts.
#include <algorithm>
#include <cstring>
#include <utility>

#include "worker_sdk/mpi/collectives.h"
#include "worker_sdk/mpi/session.h"

namespace regroup::mpi {
namespace {

/// A rank's part of a buffer.
struct Part {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
};

/// Moves each rank's part to and from every other: sends[r] goes to rank r, receives[r] comes from
/// it. Both sides of a transfer give the same size; a pair with nothing to move sends nothing.
/// Every collective of this file with unequal parts comes here.
Collective exchange(const Communicator& ranks, const std::vector<Part>& sends,
                    const std::vector<Part>& receives) {
    auto started = std::make_unique<CompoundRequest>();
    const std::uint32_t world = ranks.group->world_size();
    const std::uint32_t own = ranks.group->rank();
    require_equal(sends[own].bytes, receives[own].bytes);
    // Each rank begins with the next one, so that not all send to rank 0 first.
    for (std::uint32_t step = 1; step < world; ++step) {
        const std::uint32_t from = (own + world - step) % world;
        if (receives[from].bytes > 0) {
            started->parts.push_back(std::make_unique<ReceiveRequest>(
                ranks.mail, ranks.mail->post(receives[from].data, receives[from].bytes,
                                             static_cast<int>(from), kInternalTag)));
        }
    }
    for (std::uint32_t step = 1; step < world; ++step) {
        const std::uint32_t to = (own + step) % world;
        if (sends[to].bytes > 0) {
            started->parts.push_back(std::make_unique<SendRequest>(
                ranks.mail->send(sends[to].data, sends[to].bytes, to, kInternalTag)));
        }
    }
    if (sends[own].bytes > 0 && sends[own].data != receives[own].data) {
        std::memmove(receives[own].data, sends[own].data, sends[own].bytes);
    }
    return started;
}

/// The parts of a buffer, by rank: counts[r] elements from displacements[r] on.
std::vector<Part> parts_of(const void* buffer, const int* counts, const int* displacements,
                           MPI_Datatype type, std::uint32_t world) {
    require_pointer(counts, "counts");
    require_pointer(displacements, "displacements");
    const auto width = static_cast<std::ptrdiff_t>(datatype_of(type).bytes);
    std::vector<Part> parts(world);
    for (std::uint32_t rank = 0; rank < world; ++rank) {
        parts[rank].bytes = bytes_of(counts[rank], type);
        require_buffer(buffer, parts[rank].bytes);
        if (parts[rank].bytes > 0) {
            parts[rank].data =
                static_cast<std::byte*>(const_cast<void*>(buffer)) + displacements[rank] * width;
        }
    }
    return parts;
}

Part part_of(const void* buffer, int count, MPI_Datatype type) {
    const std::size_t bytes = bytes_of(count, type);
    require_buffer(buffer, bytes);
    return {static_cast<std::byte*>(const_cast<void*>(buffer)), bytes};
}

/// Sends from a copy, since what is received goes to the same place.
Collective exchange_in_place(const Communicator& ranks, const std::vector<Part>& rows) {
    std::vector<std::byte> copy;
    for (const Part& part : rows) {
        copy.insert(copy.end(), part.data, part.data + part.bytes);
    }
    std::vector<Part> sends = rows;
    std::byte* at = copy.data();
    for (Part& part : sends) {
        part.data = std::exchange(at, at + part.bytes);
    }
    Collective started = exchange(ranks, sends, rows);
    started->scratch = std::move(copy);
    return started;
}

/// The checked arguments of a reduction whose results go to the ranks in parts.
struct ScatteredReduction {
    std::vector<std::size_t> counts;
    std::size_t first = 0;  ///< Of this rank's part.
    ReductionCall whole;

    ScatteredReduction(std::vector<std::size_t> counts_in, std::uint32_t rank, MPI_Datatype type,
                       MPI_Op op)
        : counts(std::move(counts_in)), whole(0, type, op) {
        for (std::size_t i = 0; i < counts.size(); ++i) {
            first += i < rank ? counts[i] : 0;
            whole.count += counts[i];
        }
        whole.bytes = whole.count * whole.type.bytes;
    }
    [[nodiscard]] bool is_even() const {
        return std::equal(counts.begin() + 1, counts.end(), counts.begin());
    }
};

Collective start_reduce_scatter(ProcessGroup& group, const ScatteredReduction& call,
                                const void* send, void* receive) {
    const std::size_t own_count = call.counts[group.rank()];
    const std::size_t own_bytes = own_count * call.whole.type.bytes;
    require_buffer(receive, own_bytes);
    const void* const input = send == MPI_IN_PLACE ? receive : send;
    require_buffer(input, call.whole.bytes);
    auto started = std::make_unique<CompoundRequest>();
    const auto reduction = group_reduction(call.whole.op, call.whole.type);
    const bool is_direct = reduction && call.is_even();
    if (!is_direct || send == MPI_IN_PLACE) {
        const auto* const values = static_cast<const std::byte*>(input);
        started->scratch.assign(values, values + call.whole.bytes);
    }
    std::byte* const all = started->scratch.data();
    if (is_direct) {
        started->work = group.reduce_scatter(
            {send == MPI_IN_PLACE ? all : send, call.whole.count, reduction->dtype},
            {receive, own_count, reduction->dtype}, reduction->op);
        return started;
    }
    // Every rank gets all results, and takes its own.
    started->parts.push_back(start_all_reduce(group, call.whole, MPI_IN_PLACE, all));
    if (own_bytes > 0) {
        started->conclude = [own = all + call.first * call.whole.type.bytes, receive, own_bytes] {
            std::memcpy(receive, own, own_bytes);
        };
    }
    return started;
}

}  // namespace
}  // namespace regroup::mpi

using namespace regroup::mpi;
using regroup::ProcessGroup;

int MPI_Allgatherv(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                   const int receive_counts[], const int displacements[], MPI_Datatype receive_type,
                   MPI_Comm comm) {
    return complete(__func__, comm, [&] {
        const Communicator& ranks = session().communicator(comm);
        const std::uint32_t world = ranks.group->world_size();
        const std::vector<Part> rows =
            parts_of(receive, receive_counts, displacements, receive_type, world);
        const Part own =
            send == MPI_IN_PLACE ? rows[ranks.group->rank()] : part_of(send, send_count, send_type);
        return exchange(ranks, std::vector<Part>(world, own), rows);
    });
}

int MPI_Gatherv(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                const int receive_counts[], const int displacements[], MPI_Datatype receive_type,
                int root, MPI_Comm comm) {
    return complete(__func__, comm, [&] {
        const Communicator& ranks = session().communicator(comm);
        const std::uint32_t world = ranks.group->world_size();
        const std::uint32_t at = rank_in(ranks, root, MPI_ERR_ROOT);
        std::vector<Part> sends(world);
        std::vector<Part> rows(world);
        if (ranks.group->rank() == at) {
            rows = parts_of(receive, receive_counts, displacements, receive_type, world);
        }
        sends[at] = send == MPI_IN_PLACE && ranks.group->rank() == at
                        ? rows[at]
                        : part_of(send, send_count, send_type);
        return exchange(ranks, sends, rows);
    });
}

int MPI_Scatterv(const void* send, const int send_counts[], const int displacements[],
                 MPI_Datatype send_type, void* receive, int receive_count,
                 MPI_Datatype receive_type, int root, MPI_Comm comm) {
    return complete(__func__, comm, [&] {
        const Communicator& ranks = session().communicator(comm);
        const std::uint32_t world = ranks.group->world_size();
        const std::uint32_t at = rank_in(ranks, root, MPI_ERR_ROOT);
        std::vector<Part> sends(world);
        std::vector<Part> rows(world);
        if (ranks.group->rank() == at) {
            sends = parts_of(send, send_counts, displacements, send_type, world);
        }
        rows[at] = receive == MPI_IN_PLACE && ranks.group->rank() == at
                       ? sends[at]
                       : part_of(receive, receive_count, receive_type);
        return exchange(ranks, sends, rows);
    });
}

int MPI_Alltoallv(const void* send, const int send_counts[], const int send_displacements[],
                  MPI_Datatype send_type, void* receive, const int receive_counts[],
                  const int receive_displacements[], MPI_Datatype receive_type, MPI_Comm comm) {
    return complete(__func__, comm, [&] {
        const Communicator& ranks = session().communicator(comm);
        const std::uint32_t world = ranks.group->world_size();
        const std::vector<Part> rows =
            parts_of(receive, receive_counts, receive_displacements, receive_type, world);
        if (send == MPI_IN_PLACE) {
            return exchange_in_place(ranks, rows);
        }
        return exchange(ranks, parts_of(send, send_counts, send_displacements, send_type, world),
                        rows);
    });
}

int MPI_Reduce_scatter(const void* send, void* receive, const int receive_counts[],
                       MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    return complete(__func__, comm, [&] {
        ProcessGroup& group = *session().communicator(comm).group;
        require_pointer(receive_counts, "counts");
        std::vector<std::size_t> counts;
        for (std::uint32_t rank = 0; rank < group.world_size(); ++rank) {
            counts.push_back(count_of(receive_counts[rank]));
        }
        return start_reduce_scatter(
            group, ScatteredReduction(std::move(counts), group.rank(), type, op), send, receive);
    });
}

int MPI_Reduce_scatter_block(const void* send, void* receive, int receive_count, MPI_Datatype type,
                             MPI_Op op, MPI_Comm comm) {
    return complete(__func__, comm, [&] {
        ProcessGroup& group = *session().communicator(comm).group;
        const std::vector<std::size_t> counts(group.world_size(), count_of(receive_count));
        return start_reduce_scatter(group, ScatteredReduction(counts, group.rank(), type, op), send,
                                    receive);
    });
}
