// SPDX-License-Identifier: Apache-2.0
// mpi.h: communicators.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "worker_sdk/mpi/session.h"

namespace regroup::mpi {
namespace {

struct ColorAndKey {
    std::int32_t color = 0;
    std::int32_t key = 0;
};

/// The choices of all ranks of the communicator, by rank.
std::vector<ColorAndKey> exchange(const Communicator& communicator, ColorAndKey own) {
    std::vector<ColorAndKey> all(communicator.group->world_size());
    communicator.group
        ->all_gather({&own, sizeof own, DType::uint8},
                     {all.data(), all.size() * sizeof own, DType::uint8})
        .wait();
    return all;
}

/// Splits a communicator into one part for each colour; this rank is in one part or none. All ranks
/// form all parts together, in the order of the colours.
MPI_Comm split(Communicator& whole, ColorAndKey own) {
    const std::vector<ColorAndKey> all = exchange(whole, own);
    std::map<std::int32_t, std::vector<std::uint32_t>> parts;
    for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank].color != MPI_UNDEFINED) {
            parts[all[rank].color].push_back(rank);
        }
    }
    MPI_Comm mine = MPI_COMM_NULL;
    for (auto& [color, ranks] : parts) {
        std::sort(ranks.begin(), ranks.end(), [&](std::uint32_t left, std::uint32_t right) {
            return std::pair(all[left].key, left) < std::pair(all[right].key, right);
        });
        const std::string name = whole.name + "/" + std::to_string(whole.children++);
        std::unique_ptr<ProcessGroup> group = whole.group->new_group(ranks, name);
        if (color == own.color) {
            mine = session().add(std::make_unique<Communicator>(Communicator{
                .group = std::move(group), .name = name, .errors_return = whole.errors_return}));
        }
    }
    return mine;
}

}  // namespace
}  // namespace regroup::mpi

using namespace regroup::mpi;

int MPI_Comm_rank(MPI_Comm comm, int* rank) {
    return carry_out(__func__, comm, [&] {
        give(static_cast<int>(session().communicator(comm).group->rank()), rank, "rank");
    });
}

int MPI_Comm_size(MPI_Comm comm, int* ranks) {
    return carry_out(__func__, comm, [&] {
        give(static_cast<int>(session().communicator(comm).group->world_size()), ranks, "ranks");
    });
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* copy) {
    return carry_out(__func__, comm, [&] {
        require_pointer(copy, "copy");
        Communicator& whole = session().communicator(comm);
        *copy = split(whole, {0, 0});
    });
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* part) {
    return carry_out(__func__, comm, [&] {
        require_pointer(part, "part");
        if (color < 0 && color != MPI_UNDEFINED) {
            throw CallError(MPI_ERR_ARG, "the color " + std::to_string(color) +
                                             " is neither MPI_UNDEFINED nor at least 0");
        }
        *part = split(session().communicator(comm), {color, key});
    });
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info /*info*/, MPI_Comm* part) {
    return carry_out(__func__, comm, [&] {
        require_pointer(part, "part");
        if (type != MPI_COMM_TYPE_SHARED && type != MPI_UNDEFINED) {
            throw CallError(MPI_ERR_ARG, "only MPI_COMM_TYPE_SHARED is supported");
        }
        const auto node = static_cast<std::int32_t>(session().context().group_rank);
        *part = split(session().communicator(comm),
                      {type == MPI_UNDEFINED ? MPI_UNDEFINED : node, key});
    });
}

int MPI_Comm_free(MPI_Comm* comm) {
    return carry_out(__func__, comm != nullptr ? *comm : MPI_COMM_NULL, [&] {
        require_pointer(comm, "comm");
        session().free(*comm);
        *comm = MPI_COMM_NULL;
    });
}

int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) {
    return carry_out(__func__, comm, [&] {
        if (handler != MPI_ERRORS_RETURN && handler != MPI_ERRORS_ARE_FATAL) {
            throw CallError(MPI_ERR_ARG,
                            "only MPI_ERRORS_ARE_FATAL and MPI_ERRORS_RETURN are supported");
        }
        session().communicator(comm).errors_return = handler == MPI_ERRORS_RETURN;
    });
}
