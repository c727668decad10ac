// SPDX-License-Identifier: Apache-2.0
// mpi.h: groups. They are local: no function here waits for another rank.
#include "worker_sdk/mpi/group.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace regroup::mpi {
namespace {

using Members = std::vector<std::uint32_t>;

bool holds(const Members& members, std::uint32_t member) {
    return std::find(members.begin(), members.end(), member) != members.end();
}

/// The rank of a member in a group; MPI_UNDEFINED if it is none.
int rank_of(const Members& members, std::uint32_t member) {
    const auto found = std::find(members.begin(), members.end(), member);
    return found == members.end() ? MPI_UNDEFINED : static_cast<int>(found - members.begin());
}

std::uint32_t member_at(const Members& members, int rank) {
    if (rank < 0 || static_cast<std::size_t>(rank) >= members.size()) {
        throw CallError(MPI_ERR_RANK, "rank " + std::to_string(rank) + " is none of a group of " +
                                          std::to_string(members.size()));
    }
    return members[static_cast<std::size_t>(rank)];
}

/// The members of `ranks`, each once.
Members selected(const Members& members, const std::vector<int>& ranks) {
    Members chosen;
    for (const int rank : ranks) {
        const std::uint32_t member = member_at(members, rank);
        if (holds(chosen, member)) {
            throw CallError(MPI_ERR_RANK, "rank " + std::to_string(rank) + " is named twice");
        }
        chosen.push_back(member);
    }
    return chosen;
}

Members without(const Members& members, const Members& others) {
    Members left;
    std::copy_if(members.begin(), members.end(), std::back_inserter(left),
                 [&](std::uint32_t member) { return !holds(others, member); });
    return left;
}

std::vector<int> list(int count, const int* ranks) {
    if (count_of(count) > 0) {
        require_pointer(ranks, "ranks");
    }
    return {ranks, ranks + count};
}

/// The ranks of ranges of a first rank, a last rank and a step.
std::vector<int> list_of_ranges(int count, int ranges[][3]) {
    if (count_of(count) > 0) {
        require_pointer(ranges, "ranges");
    }
    std::vector<int> ranks;
    for (int i = 0; i < count; ++i) {
        const auto [first, last, step] = std::tuple(ranges[i][0], ranges[i][1], ranges[i][2]);
        if (step == 0) {
            throw CallError(MPI_ERR_ARG, "the step of a range is 0");
        }
        for (std::int64_t rank = first; step > 0 ? rank <= last : rank >= last; rank += step) {
            if (rank < 0 || ranks.size() > UINT16_MAX) {
                throw CallError(MPI_ERR_RANK, "a range has ranks that no group has");
            }
            ranks.push_back(static_cast<int>(rank));
        }
    }
    return ranks;
}

/// Makes a group of two, by a function of their members.
template <class Combine>
int combine(const char* function, MPI_Group left, MPI_Group right, MPI_Group* result,
            const Combine& combined) {
    return carry_out(function, MPI_COMM_WORLD, [&] {
        require_pointer(result, "result");
        *result = session().add(
            {.members = combined(session().group(left).members, session().group(right).members)});
    });
}

/// Makes a group of a part of one, by a function of its members.
template <class Choose>
int choose(const char* function, MPI_Group group, MPI_Group* result, const Choose& chosen) {
    return carry_out(function, MPI_COMM_WORLD, [&] {
        require_pointer(result, "result");
        *result = session().add({.members = chosen(session().group(group).members)});
    });
}

}  // namespace

int compare(const regroup_mpi_group& left, const regroup_mpi_group& right) {
    if (left.members == right.members) {
        return MPI_IDENT;
    }
    const bool same =
        left.members.size() == right.members.size() && without(left.members, right.members).empty();
    return same ? MPI_SIMILAR : MPI_UNEQUAL;
}

}  // namespace regroup::mpi

using namespace regroup::mpi;

int MPI_Group_size(MPI_Group group, int* size) {
    return carry_out(__func__, MPI_COMM_WORLD, [&] {
        give(static_cast<int>(session().group(group).members.size()), size, "size");
    });
}

int MPI_Group_rank(MPI_Group group, int* rank) {
    return carry_out(__func__, MPI_COMM_WORLD, [&] {
        give(rank_of(session().group(group).members, session().context().rank), rank, "rank");
    });
}

int MPI_Group_incl(MPI_Group group, int count, const int ranks[], MPI_Group* result) {
    return choose(__func__, group, result,
                  [&](const Members& members) { return selected(members, list(count, ranks)); });
}

int MPI_Group_excl(MPI_Group group, int count, const int ranks[], MPI_Group* result) {
    return choose(__func__, group, result, [&](const Members& members) {
        return without(members, selected(members, list(count, ranks)));
    });
}

int MPI_Group_range_incl(MPI_Group group, int count, int ranges[][3], MPI_Group* result) {
    return choose(__func__, group, result, [&](const Members& members) {
        return selected(members, list_of_ranges(count, ranges));
    });
}

int MPI_Group_range_excl(MPI_Group group, int count, int ranges[][3], MPI_Group* result) {
    return choose(__func__, group, result, [&](const Members& members) {
        return without(members, selected(members, list_of_ranges(count, ranges)));
    });
}

int MPI_Group_union(MPI_Group left, MPI_Group right, MPI_Group* result) {
    return combine(__func__, left, right, result, [](const Members& a, const Members& b) {
        Members all = a;
        const Members more = without(b, a);
        all.insert(all.end(), more.begin(), more.end());
        return all;
    });
}

int MPI_Group_intersection(MPI_Group left, MPI_Group right, MPI_Group* result) {
    return combine(__func__, left, right, result,
                   [](const Members& a, const Members& b) { return without(a, without(a, b)); });
}

int MPI_Group_difference(MPI_Group left, MPI_Group right, MPI_Group* result) {
    return combine(__func__, left, right, result, without);
}

int MPI_Group_translate_ranks(MPI_Group from, int count, const int ranks[], MPI_Group to,
                              int results[]) {
    return carry_out(__func__, MPI_COMM_WORLD, [&] {
        const Members& source = session().group(from).members;
        const Members& target = session().group(to).members;
        const std::vector<int> given = list(count, ranks);
        if (!given.empty()) {
            require_pointer(results, "results");
        }
        for (std::size_t i = 0; i < given.size(); ++i) {
            results[i] = given[i] == MPI_PROC_NULL ? MPI_PROC_NULL
                                                   : rank_of(target, member_at(source, given[i]));
        }
    });
}

int MPI_Group_compare(MPI_Group left, MPI_Group right, int* result) {
    return carry_out(__func__, MPI_COMM_WORLD, [&] {
        give(compare(session().group(left), session().group(right)), result, "result");
    });
}

int MPI_Group_free(MPI_Group* group) {
    return carry_out(__func__, MPI_COMM_WORLD, [&] {
        require_pointer(group, "group");
        session().free(*group);
        *group = MPI_GROUP_NULL;
    });
}
