// SPDX-License-Identifier: Apache-2.0
// mpi.h: collectives in which the ranks have different amounts.
#include <algorithm>
#include <cstring>
#include <utility>

#include "worker_sdk/mpi/collectives.h"

namespace regroup::mpi {
namespace {

void move(const Part& from, const Part& to) {
    if (from.bytes > 0 && from.data != to.data) {
        std::memmove(to.data, from.data, from.bytes);
    }
}

/// The rows of a buffer one after the other, as a process group takes them: in place if they lie
/// like that, else in a copy.
struct Rows {
    explicit Rows(std::vector<Part> own_in, bool must_copy = false) : own(std::move(own_in)) {
        for (const Part& row : own) {
            counts.push_back(row.bytes);
            must_copy = must_copy || (row.bytes > 0 && bytes > 0 && row.data != data + bytes);
            data = bytes == 0 ? row.data : data;
            bytes += row.bytes;
        }
        if (must_copy) {
            memory.resize(bytes);
            data = memory.data();
        }
    }
    Rows(const Rows&) = delete;
    Rows& operator=(const Rows&) = delete;

    /// Row by row between the own places and `data`.
    void pack() const { move_rows(true); }
    void unpack() const { move_rows(false); }

    const std::vector<Part> own;
    std::vector<std::size_t> counts{};  ///< Bytes of each.
    std::size_t bytes = 0;              ///< Of all.
    std::byte* data = nullptr;
    std::vector<std::byte> memory{};

   private:
    void move_rows(bool packing) const {
        std::byte* at = data;
        for (const Part& row : own) {
            const Part packed{std::exchange(at, at + row.bytes), row.bytes};
            move(packing ? row : packed, packing ? packed : row);
        }
    }
};

/// Moves parts between the root and the other ranks by messages, since only the root knows all
/// sizes: sends[r] goes to rank r, receives[r] comes from it. A part of no bytes is not sent.
Collective exchange(const Communicator& ranks, const std::vector<Part>& sends,
                    const std::vector<Part>& receives) {
    Collective started = collective();
    const std::uint32_t own = ranks.group->rank();
    require_equal(sends[own].bytes, receives[own].bytes);
    move(sends[own], receives[own]);
    for (std::uint32_t rank = 0; rank < sends.size(); ++rank) {
        if (rank != own && receives[rank].bytes > 0) {
            started->parts.push_back(std::make_unique<ReceiveRequest>(
                ranks.mail, ranks.mail->post(receives[rank].data, receives[rank].bytes,
                                             static_cast<int>(rank), kInternalTag)));
        }
        if (rank != own && sends[rank].bytes > 0) {
            started->parts.push_back(std::make_unique<SendRequest>(
                ranks.mail->send(sends[rank].data, sends[rank].bytes, rank, kInternalTag)));
        }
    }
    return started;
}

/// One side of a transfer that is a part for each rank: counts[r] elements from displacements[r]
/// on.
struct Sides {
    const void* buffer;
    const int* counts;
    const int* displacements;
    MPI_Datatype type;

    /// By rank. Throws CallError.
    [[nodiscard]] std::vector<Part> parts(std::uint32_t world) const {
        require_pointer(counts, "counts");
        require_pointer(displacements, "displacements");
        const auto width = static_cast<std::ptrdiff_t>(datatype_of(type).bytes);
        std::vector<Part> all(world);
        for (std::uint32_t rank = 0; rank < world; ++rank) {
            const Part part = Side{buffer, counts[rank], type}.part();
            if (part.bytes > 0) {
                all[rank] = {part.data + displacements[rank] * width, part.bytes};
            }
        }
        return all;
    }
};

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
    /// For the group: none if the parts are equal, which can be faster.
    [[nodiscard]] std::vector<std::size_t> uneven_counts(const GroupReduction& reduction) const {
        std::vector<std::size_t> items;
        if (!std::equal(counts.begin() + 1, counts.end(), counts.begin())) {
            for (const std::size_t count : counts) {
                items.push_back(count * reduction.items);
            }
        }
        return items;
    }
};

Collective reduce_scatter(ProcessGroup& group, const ScatteredReduction& call, const void* send,
                          void* receive) {
    const std::size_t own_count = call.counts[group.rank()];
    const std::size_t own_bytes = own_count * call.whole.type.bytes;
    require_buffer(receive, own_bytes);
    const void* const input = send == MPI_IN_PLACE ? receive : send;
    require_buffer(input, call.whole.bytes);
    Collective started = collective();
    const auto reduction = group_reduction(call.whole.op, call.whole.type);
    if (!reduction || send == MPI_IN_PLACE) {
        const auto* const values = static_cast<const std::byte*>(input);
        started->scratch.assign(values, values + call.whole.bytes);
    }
    std::byte* const all = started->scratch.data();
    if (reduction) {
        started->work =
            group.reduce_scatter({send == MPI_IN_PLACE ? all : send,
                                  call.whole.count * reduction->items, reduction->dtype},
                                 {receive, own_count * reduction->items, reduction->dtype},
                                 reduction->op, call.uneven_counts(*reduction));
        return started;
    }
    // Every rank gets all results, and takes its own.
    started->parts.push_back(all_reduce(group, call.whole, MPI_IN_PLACE, all));
    if (own_bytes > 0) {
        started->conclude = [own = all + call.first * call.whole.type.bytes, receive, own_bytes] {
            std::memcpy(receive, own, own_bytes);
        };
    }
    return started;
}

Collective start_uneven_all_gather(MPI_Comm comm, const Side& send, const Sides& receive) {
    ProcessGroup& group = *session().communicator(comm).group;
    const auto rows = std::make_shared<Rows>(receive.parts(group.world_size()));
    const Part& own_row = rows->own[group.rank()];
    const Part own = send.part_or(own_row);
    require_equal(own.bytes, own_row.bytes);
    Collective started =
        collective(group.all_gather(moved(own), moved(rows->data, rows->bytes), rows->counts));
    started->conclude = [rows] { rows->unpack(); };
    return started;
}

Collective start_uneven_gather(MPI_Comm comm, const Side& send, const Sides& receive, int root) {
    const Communicator& ranks = session().communicator(comm);
    const std::uint32_t at = rank_in(ranks, root, MPI_ERR_ROOT);
    std::vector<Part> sends(ranks.group->world_size());
    std::vector<Part> rows(ranks.group->world_size());
    if (ranks.group->rank() == at) {
        rows = receive.parts(ranks.group->world_size());
        sends[at] = send.part_or(rows[at]);
    } else {
        sends[at] = send.part();
    }
    return exchange(ranks, sends, rows);
}

Collective start_uneven_scatter(MPI_Comm comm, const Sides& send, const Side& receive, int root) {
    const Communicator& ranks = session().communicator(comm);
    const std::uint32_t at = rank_in(ranks, root, MPI_ERR_ROOT);
    std::vector<Part> sends(ranks.group->world_size());
    std::vector<Part> rows(ranks.group->world_size());
    if (ranks.group->rank() == at) {
        sends = send.parts(ranks.group->world_size());
        rows[at] = receive.part_or(sends[at]);
    } else {
        rows[at] = receive.part();
    }
    return exchange(ranks, sends, rows);
}

Collective start_uneven_all_to_all(MPI_Comm comm, const Sides& send, const Sides& receive) {
    ProcessGroup& group = *session().communicator(comm).group;
    const std::uint32_t world = group.world_size();
    const auto rows = std::make_shared<Rows>(receive.parts(world));
    const bool in_place = send.buffer == MPI_IN_PLACE;
    const auto sends = std::make_shared<Rows>(in_place ? rows->own : send.parts(world), in_place);
    require_equal(sends->counts[group.rank()], rows->counts[group.rank()]);
    sends->pack();
    Collective started =
        collective(group.all_to_all(moved(sends->data, sends->bytes),
                                    moved(rows->data, rows->bytes), sends->counts, rows->counts));
    started->conclude = [sends, rows] { rows->unpack(); };
    return started;
}

Collective start_reduce_scatter(MPI_Comm comm, const void* send, void* receive,
                                const int* receive_counts, MPI_Datatype type, MPI_Op op) {
    ProcessGroup& group = *session().communicator(comm).group;
    require_pointer(receive_counts, "counts");
    std::vector<std::size_t> counts(group.world_size());
    std::transform(receive_counts, receive_counts + counts.size(), counts.begin(), count_of);
    return reduce_scatter(group, {std::move(counts), group.rank(), type, op}, send, receive);
}

Collective start_reduce_scatter_block(MPI_Comm comm, const void* send, void* receive,
                                      int receive_count, MPI_Datatype type, MPI_Op op) {
    ProcessGroup& group = *session().communicator(comm).group;
    const std::vector<std::size_t> counts(group.world_size(), count_of(receive_count));
    return reduce_scatter(group, {counts, group.rank(), type, op}, send, receive);
}

}  // namespace
}  // namespace regroup::mpi

using namespace regroup::mpi;

int MPI_Allgatherv(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                   const int receive_counts[], const int displacements[], MPI_Datatype receive_type,
                   MPI_Comm comm) {
    return complete(__func__, comm, start_uneven_all_gather, Side{send, send_count, send_type},
                    Sides{receive, receive_counts, displacements, receive_type});
}

int MPI_Iallgatherv(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                    const int receive_counts[], const int displacements[],
                    MPI_Datatype receive_type, MPI_Comm comm, MPI_Request* request) {
    return begin(__func__, comm, request, start_uneven_all_gather,
                 Side{send, send_count, send_type},
                 Sides{receive, receive_counts, displacements, receive_type});
}

int MPI_Gatherv(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                const int receive_counts[], const int displacements[], MPI_Datatype receive_type,
                int root, MPI_Comm comm) {
    return complete(__func__, comm, start_uneven_gather, Side{send, send_count, send_type},
                    Sides{receive, receive_counts, displacements, receive_type}, root);
}

int MPI_Igatherv(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                 const int receive_counts[], const int displacements[], MPI_Datatype receive_type,
                 int root, MPI_Comm comm, MPI_Request* request) {
    return begin(__func__, comm, request, start_uneven_gather, Side{send, send_count, send_type},
                 Sides{receive, receive_counts, displacements, receive_type}, root);
}

int MPI_Scatterv(const void* send, const int send_counts[], const int displacements[],
                 MPI_Datatype send_type, void* receive, int receive_count,
                 MPI_Datatype receive_type, int root, MPI_Comm comm) {
    return complete(__func__, comm, start_uneven_scatter,
                    Sides{send, send_counts, displacements, send_type},
                    Side{receive, receive_count, receive_type}, root);
}

int MPI_Iscatterv(const void* send, const int send_counts[], const int displacements[],
                  MPI_Datatype send_type, void* receive, int receive_count,
                  MPI_Datatype receive_type, int root, MPI_Comm comm, MPI_Request* request) {
    return begin(__func__, comm, request, start_uneven_scatter,
                 Sides{send, send_counts, displacements, send_type},
                 Side{receive, receive_count, receive_type}, root);
}

int MPI_Alltoallv(const void* send, const int send_counts[], const int send_displacements[],
                  MPI_Datatype send_type, void* receive, const int receive_counts[],
                  const int receive_displacements[], MPI_Datatype receive_type, MPI_Comm comm) {
    return complete(__func__, comm, start_uneven_all_to_all,
                    Sides{send, send_counts, send_displacements, send_type},
                    Sides{receive, receive_counts, receive_displacements, receive_type});
}

int MPI_Ialltoallv(const void* send, const int send_counts[], const int send_displacements[],
                   MPI_Datatype send_type, void* receive, const int receive_counts[],
                   const int receive_displacements[], MPI_Datatype receive_type, MPI_Comm comm,
                   MPI_Request* request) {
    return begin(__func__, comm, request, start_uneven_all_to_all,
                 Sides{send, send_counts, send_displacements, send_type},
                 Sides{receive, receive_counts, receive_displacements, receive_type});
}

int MPI_Reduce_scatter(const void* send, void* receive, const int receive_counts[],
                       MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    return complete(__func__, comm, start_reduce_scatter, send, receive, receive_counts, type, op);
}

int MPI_Ireduce_scatter(const void* send, void* receive, const int receive_counts[],
                        MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request* request) {
    return begin(__func__, comm, request, start_reduce_scatter, send, receive, receive_counts, type,
                 op);
}

int MPI_Reduce_scatter_block(const void* send, void* receive, int receive_count, MPI_Datatype type,
                             MPI_Op op, MPI_Comm comm) {
    return complete(__func__, comm, start_reduce_scatter_block, send, receive, receive_count, type,
                    op);
}

int MPI_Ireduce_scatter_block(const void* send, void* receive, int receive_count, MPI_Datatype type,
                              MPI_Op op, MPI_Comm comm, MPI_Request* request) {
    return begin(__func__, comm, request, start_reduce_scatter_block, send, receive, receive_count,
                 type, op);
}
