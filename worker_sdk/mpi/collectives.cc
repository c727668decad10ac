// SPDX-License-Identifier: Apache-2.0
// mpi.h: collectives.
#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "worker_sdk/mpi/datatype.h"
#include "worker_sdk/mpi/session.h"
#include "worker_sdk/mpi/side.h"

namespace regroup::mpi {
namespace {

/// Carries out a collective of the communicator's group.
int collective(const char* function, MPI_Comm comm,
               const std::function<void(ProcessGroup& group)>& body) {
    return carry_out(function, comm, [&] { body(*session().communicator(comm).group); });
}

/// Throws CallError MPI_ERR_COUNT if one rank's part differs on its two sides.
void require_equal(std::size_t sent, std::size_t received) {
    if (sent != received) {
        throw CallError(MPI_ERR_COUNT, "a rank sends " + std::to_string(sent) +
                                           " bytes and receives " + std::to_string(received) +
                                           "; both sides must give the same");
    }
}

/// The checked arguments of a reduction of `count` elements.
struct ReductionCall {
    const Datatype& type;
    std::size_t count;
    std::size_t bytes;
    MPI_Op op;

    ReductionCall(std::size_t count_in, MPI_Datatype type_in, MPI_Op op_in)
        : type(datatype_of(type_in)), count(count_in), bytes(count * type.bytes), op(op_in) {
        require_defined(op, type);
    }
    /// The elements at `data`, as the group reduces them.
    [[nodiscard]] TensorView values(void* data, const GroupReduction& reduction) const {
        return {data, count * reduction.items, reduction.dtype};
    }
};

/// Folds all ranks' values in the order of the ranks into `receive`, which may be null.
void reduce_by_gathering(ProcessGroup& group, const ReductionCall& call, const void* send,
                         void* receive) {
    std::vector<std::byte> all(group.world_size() * call.bytes);
    group.all_gather(moved(const_cast<void*>(send), call.bytes), moved(all.data(), all.size()))
        .wait();
    if (receive != nullptr && call.bytes > 0) {
        for (std::uint32_t rank = 1; rank < group.world_size(); ++rank) {
            call.type.fold(call.op, {all.data() + rank * call.bytes, call.bytes},
                           {all.data(), call.bytes});
        }
        std::memcpy(receive, all.data(), call.bytes);
    }
}

/// Puts a rank's own values where the result is to be.
void place(const void* send, void* receive, std::size_t bytes) {
    require_buffer(receive, bytes);
    if (send != MPI_IN_PLACE && bytes > 0) {
        require_buffer(send, bytes);
        std::memmove(receive, send, bytes);
    }
}

/// `receive` becomes the reduction of all ranks' `send`, which may be MPI_IN_PLACE.
void all_reduce(ProcessGroup& group, const ReductionCall& call, const void* send, void* receive) {
    place(send, receive, call.bytes);
    if (const auto reduction = group_reduction(call.op, call.type)) {
        group.all_reduce(call.values(receive, *reduction), reduction->op).wait();
    } else {
        reduce_by_gathering(group, call, receive, receive);
    }
}

void reduce(ProcessGroup& group, const ReductionCall& call, const void* send, void* receive,
            std::uint32_t root) {
    if (group.rank() == root) {
        place(send, receive, call.bytes);
    } else {
        require_buffer(send, call.bytes);
        receive = nullptr;
    }
    // In place on the root; the others' buffers are left alone.
    void* const values = receive != nullptr ? receive : const_cast<void*>(send);
    if (const auto reduction = group_reduction(call.op, call.type)) {
        group.reduce(call.values(values, *reduction), reduction->op, root).wait();
    } else {
        reduce_by_gathering(group, call, values, receive);
    }
}

/// `counts` are the elements of each rank's part of the result.
void reduce_scatter(ProcessGroup& group, const std::vector<std::size_t>& counts, MPI_Datatype type,
                    MPI_Op op, const void* send, void* receive) {
    const auto own = counts.begin() + static_cast<std::ptrdiff_t>(group.rank());
    const std::size_t first = std::reduce(counts.begin(), own);
    const ReductionCall call(std::reduce(counts.begin(), counts.end()), type, op);
    const std::size_t own_bytes = *own * call.type.bytes;
    require_buffer(receive, own_bytes);
    const void* input = send == MPI_IN_PLACE ? receive : send;
    require_buffer(input, call.bytes);
    const auto reduction = group_reduction(op, call.type);
    std::vector<std::byte> copy;
    if (!reduction || send == MPI_IN_PLACE) {
        const auto* const values = static_cast<const std::byte*>(input);
        copy.assign(values, values + call.bytes);
        input = copy.data();
    }
    if (!reduction) {  // Every rank gets all results, and takes its own.
        all_reduce(group, call, MPI_IN_PLACE, copy.data());
        if (own_bytes > 0) {
            std::memcpy(receive, copy.data() + first * call.type.bytes, own_bytes);
        }
        return;
    }
    std::vector<std::size_t> items;  // None if the parts are equal, which can be faster.
    if (!std::equal(counts.begin() + 1, counts.end(), counts.begin())) {
        for (const std::size_t count : counts) {
            items.push_back(count * reduction->items);
        }
    }
    group
        .reduce_scatter(call.values(const_cast<void*>(input), *reduction),
                        {receive, *own * reduction->items, reduction->dtype}, reduction->op, items)
        .wait();
}

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
void exchange(ProcessGroup& group, const std::vector<Part>& sends,
              const std::vector<Part>& receives) {
    const std::uint32_t own = group.rank();
    require_equal(sends[own].bytes, receives[own].bytes);
    move(sends[own], receives[own]);
    std::vector<Work> works;
    for (std::uint32_t rank = 0; rank < sends.size(); ++rank) {
        if (rank != own && receives[rank].bytes > 0) {
            works.push_back(group.recv(moved(receives[rank]), rank, kInternalTag));
        }
        if (rank != own && sends[rank].bytes > 0) {
            works.push_back(group.send(moved(sends[rank]), rank, kInternalTag));
        }
    }
    for (const Work& work : works) {
        work.wait();
    }
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

}  // namespace
}  // namespace regroup::mpi

using namespace regroup::mpi;
using regroup::ProcessGroup;

int MPI_Barrier(MPI_Comm comm) {
    return collective(__func__, comm, [](ProcessGroup& group) { group.barrier().wait(); });
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    return collective(__func__, comm, [&](ProcessGroup& group) {
        group.broadcast(moved(Side{buffer, count, type}.part()), rank_in(group, root, MPI_ERR_ROOT))
            .wait();
    });
}

int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
    return collective(__func__, comm, [&](ProcessGroup& group) {
        all_reduce(group, {count_of(count), type, op}, send, receive);
    });
}

int MPI_Reduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, int root,
               MPI_Comm comm) {
    return collective(__func__, comm, [&](ProcessGroup& group) {
        reduce(group, {count_of(count), type, op}, send, receive,
               rank_in(group, root, MPI_ERR_ROOT));
    });
}

int MPI_Allgather(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                  int receive_count, MPI_Datatype receive_type, MPI_Comm comm) {
    return collective(__func__, comm, [&](ProcessGroup& group) {
        const Part rows = Side{receive, receive_count, receive_type}.part();
        const Part own = Side{send, send_count, send_type}.part_or(rows.row(group.rank()));
        require_equal(own.bytes, rows.bytes);
        group.all_gather(moved(own), moved(rows, group.world_size())).wait();
    });
}

// NOLINTBEGIN(readability-function-size): the parameters are those of the standard.
int MPI_Gather(const void* send, int send_count, MPI_Datatype send_type, void* receive,
               int receive_count, MPI_Datatype receive_type, int root, MPI_Comm comm) {
    return collective(__func__, comm, [&](ProcessGroup& group) {
        const std::uint32_t at = rank_in(group, root, MPI_ERR_ROOT);
        const Side sent{send, send_count, send_type};
        if (group.rank() != at) {
            return group.gather(moved(sent.part()), {}, at).wait();
        }
        const Part rows = Side{receive, receive_count, receive_type}.part();
        const Part own = sent.part_or(rows.row(at));
        require_equal(own.bytes, rows.bytes);
        group.gather(moved(own), moved(rows, group.world_size()), at).wait();
    });
}

int MPI_Scatter(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                int receive_count, MPI_Datatype receive_type, int root, MPI_Comm comm) {
    return collective(__func__, comm, [&](ProcessGroup& group) {
        const std::uint32_t at = rank_in(group, root, MPI_ERR_ROOT);
        const Side received{receive, receive_count, receive_type};
        if (group.rank() != at) {
            return group.scatter({}, moved(received.part()), at).wait();
        }
        const Part rows = Side{send, send_count, send_type}.part();
        const Part own = received.part_or(rows.row(at));  // Its own row, onto itself.
        require_equal(rows.bytes, own.bytes);
        group.scatter(moved(rows, group.world_size()), moved(own), at).wait();
    });
}

int MPI_Alltoall(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                 int receive_count, MPI_Datatype receive_type, MPI_Comm comm) {
    return collective(__func__, comm, [&](ProcessGroup& group) {
        const Part rows = Side{receive, receive_count, receive_type}.part();
        const std::size_t all = group.world_size() * rows.bytes;
        std::vector<std::byte> copy;
        if (send == MPI_IN_PLACE) {
            copy.assign(rows.data, rows.data + all);
        }
        const Part sent = Side{send, send_count, send_type}.part_or({copy.data(), rows.bytes});
        require_equal(sent.bytes, rows.bytes);
        group.all_to_all(moved(sent.data, all), moved(rows.data, all)).wait();
    });
}

int MPI_Allgatherv(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                   const int receive_counts[], const int displacements[], MPI_Datatype receive_type,
                   MPI_Comm comm) {
    return collective(__func__, comm, [&](ProcessGroup& group) {
        const Rows rows(
            Sides{receive, receive_counts, displacements, receive_type}.parts(group.world_size()));
        const Part& own_row = rows.own[group.rank()];
        const Part own = Side{send, send_count, send_type}.part_or(own_row);
        require_equal(own.bytes, own_row.bytes);
        group.all_gather(moved(own), moved(rows.data, rows.bytes), rows.counts).wait();
        rows.unpack();
    });
}

int MPI_Gatherv(const void* send, int send_count, MPI_Datatype send_type, void* receive,
                const int receive_counts[], const int displacements[], MPI_Datatype receive_type,
                int root, MPI_Comm comm) {
    return collective(__func__, comm, [&](ProcessGroup& group) {
        const std::uint32_t at = rank_in(group, root, MPI_ERR_ROOT);
        std::vector<Part> sends(group.world_size());
        std::vector<Part> rows(group.world_size());
        if (group.rank() == at) {
            rows = Sides{receive, receive_counts, displacements, receive_type}.parts(
                group.world_size());
        }
        sends[at] = Side{send, send_count, send_type}.part_or(rows[at]);
        exchange(group, sends, rows);
    });
}

int MPI_Scatterv(const void* send, const int send_counts[], const int displacements[],
                 MPI_Datatype send_type, void* receive, int receive_count,
                 MPI_Datatype receive_type, int root, MPI_Comm comm) {
    return collective(__func__, comm, [&](ProcessGroup& group) {
        const std::uint32_t at = rank_in(group, root, MPI_ERR_ROOT);
        std::vector<Part> sends(group.world_size());
        std::vector<Part> rows(group.world_size());
        if (group.rank() == at) {
            sends = Sides{send, send_counts, displacements, send_type}.parts(group.world_size());
        }
        rows[at] = Side{receive, receive_count, receive_type}.part_or(sends[at]);
        exchange(group, sends, rows);
    });
}

int MPI_Alltoallv(const void* send, const int send_counts[], const int send_displacements[],
                  MPI_Datatype send_type, void* receive, const int receive_counts[],
                  const int receive_displacements[], MPI_Datatype receive_type, MPI_Comm comm) {
    return collective(__func__, comm, [&](ProcessGroup& group) {
        const std::uint32_t world = group.world_size();
        const Rows rows(
            Sides{receive, receive_counts, receive_displacements, receive_type}.parts(world));
        const bool in_place = send == MPI_IN_PLACE;
        const Rows sends(in_place
                             ? rows.own
                             : Sides{send, send_counts, send_displacements, send_type}.parts(world),
                         in_place);
        require_equal(sends.counts[group.rank()], rows.counts[group.rank()]);
        sends.pack();
        group
            .all_to_all(moved(sends.data, sends.bytes), moved(rows.data, rows.bytes), sends.counts,
                        rows.counts)
            .wait();
        rows.unpack();
    });
}
// NOLINTEND(readability-function-size)

int MPI_Reduce_scatter(const void* send, void* receive, const int receive_counts[],
                       MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    return collective(__func__, comm, [&](ProcessGroup& group) {
        require_pointer(receive_counts, "counts");
        std::vector<std::size_t> counts(group.world_size());
        std::transform(receive_counts, receive_counts + counts.size(), counts.begin(), count_of);
        reduce_scatter(group, counts, type, op, send, receive);
    });
}

int MPI_Reduce_scatter_block(const void* send, void* receive, int receive_count, MPI_Datatype type,
                             MPI_Op op, MPI_Comm comm) {
    return collective(__func__, comm, [&](ProcessGroup& group) {
        const std::vector<std::size_t> counts(group.world_size(), count_of(receive_count));
        reduce_scatter(group, counts, type, op, send, receive);
    });
}
