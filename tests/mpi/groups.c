/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups, and the communicators that are made of them. For any number of ranks.
 */
#include "check.h"

static int size_of(MPI_Group group) {
    int size = -1;
    MPI_Group_size(group, &size);
    return size;
}

static int compare(MPI_Group left, MPI_Group right) {
    int result = -1;
    MPI_Group_compare(left, right, &result);
    return result;
}

static void sets(MPI_Group world) {
    MPI_Group even, odd, all, none, reversed, first, rest, same;
    int evens[1][3] = {{0, ranks - 1, 2}};
    int back[1][3] = {{ranks - 1, 0, -1}};
    const int zero = 0;
    MPI_Group_range_incl(world, 1, evens, &even);
    MPI_Group_range_excl(world, 1, evens, &odd);
    EXPECT(size_of(even) == (ranks + 1) / 2 && size_of(odd) == ranks / 2);
    MPI_Group_union(even, odd, &all);
    EXPECT(compare(all, world) == (ranks <= 2 ? MPI_IDENT : MPI_SIMILAR));
    MPI_Group_intersection(even, odd, &none);
    EXPECT(none == MPI_GROUP_EMPTY && size_of(none) == 0);
    MPI_Group_range_incl(world, 1, back, &reversed);
    EXPECT(compare(reversed, world) == (ranks == 1 ? MPI_IDENT : MPI_SIMILAR));
    int place = -1;
    MPI_Group_rank(reversed, &place);
    EXPECT(place == ranks - 1 - rank);
    MPI_Group_incl(world, 1, &zero, &first);
    MPI_Group_excl(world, 1, &zero, &rest);
    MPI_Group_rank(first, &place);
    EXPECT(place == (rank == 0 ? 0 : MPI_UNDEFINED));
    EXPECT(compare(first, rest) == MPI_UNEQUAL);
    MPI_Group_difference(world, first, &same);
    EXPECT(compare(same, rest) == MPI_IDENT);
    const int asked[2] = {0, MPI_PROC_NULL};
    int found[2] = {-1, -1};
    MPI_Group_translate_ranks(world, 2, asked, reversed, found);
    EXPECT(found[0] == ranks - 1 && found[1] == MPI_PROC_NULL);
    MPI_Group_translate_ranks(world, 1, asked, rest, found);
    EXPECT(found[0] == MPI_UNDEFINED);
    MPI_Group *const made[] = {&even, &odd, &all, &none, &reversed, &first, &rest, &same};
    for (size_t i = 0; i < sizeof made / sizeof *made; ++i) {
        MPI_Group_free(made[i]);
        EXPECT(*made[i] == MPI_GROUP_NULL);
    }
}

/* The even ranks in one communicator and the odd ones in another, both backwards. */
static void halves(MPI_Group world) {
    const int parity = rank % 2;
    const int last = (ranks - 1) % 2 == parity ? ranks - 1 : ranks - 2;
    int range[1][3] = {{last, parity, -2}};
    MPI_Group half;
    MPI_Comm part, copy, all;
    MPI_Group_range_incl(world, 1, range, &half);
    MPI_Comm_create(MPI_COMM_WORLD, half, &part);
    int place = -1;
    int size = -1;
    MPI_Comm_rank(part, &place);
    MPI_Comm_size(part, &size);
    EXPECT(place == (last - rank) / 2 && size == size_of(half));
    int sum = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, part);
    int expected = 0;
    for (int i = parity; i < ranks; i += 2) {
        expected += i;
    }
    EXPECT(sum == expected);
    MPI_Group again;
    MPI_Comm_group(part, &again);
    EXPECT(compare(again, half) == MPI_IDENT);

    int result = -1;
    MPI_Comm_dup(part, &copy);
    MPI_Comm_compare(part, part, &result);
    EXPECT(result == MPI_IDENT);
    MPI_Comm_compare(part, copy, &result);
    EXPECT(result == MPI_CONGRUENT);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &all);
    MPI_Comm_compare(MPI_COMM_WORLD, all, &result);
    EXPECT(result == (ranks == 1 ? MPI_CONGRUENT : MPI_SIMILAR));
    MPI_Comm_compare(part, MPI_COMM_WORLD, &result);
    EXPECT(result == (ranks == 1 ? MPI_CONGRUENT : MPI_UNEQUAL));

    /* A message stays in its communicator. */
    if (ranks > 1) {
        const int to = (rank + 1) % ranks;
        const int from = (rank + ranks - 1) % ranks;
        int values[2] = {-1, -1};
        const int one = 1;
        const int two = 2;
        MPI_Request sent[2];
        MPI_Isend(&one, 1, MPI_INT, to, 1, MPI_COMM_WORLD, &sent[0]);
        MPI_Isend(&two, 1, MPI_INT, ranks - 1 - to, 1, all, &sent[1]);
        MPI_Recv(&values[1], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, all, MPI_STATUS_IGNORE);
        MPI_Recv(&values[0], 1, MPI_INT, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EXPECT(values[0] == 1 && values[1] == 2);
        MPI_Waitall(2, sent, MPI_STATUSES_IGNORE);
    }
    MPI_Comm_free(&all);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&part);
    MPI_Group_free(&again);
    MPI_Group_free(&half);
}

/* MPI_Comm_free does not wait for the other ranks, even if a receive looks for more messages. */
static void frees(void) {
    for (int i = 0; i < 10 && ranks > 1; ++i) {
        MPI_Comm copy;
        MPI_Comm_dup(MPI_COMM_WORLD, &copy);
        int flag = 1;
        int value = rank;
        MPI_Iprobe(MPI_ANY_SOURCE, 1, copy, &flag, MPI_STATUS_IGNORE);
        EXPECT(flag == 0);
        MPI_Barrier(copy);
        if (rank == 0) {
            MPI_Comm_free(&copy);
            MPI_Send(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
        } else if (rank == 1) {
            MPI_Recv(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Comm_free(&copy);
        } else {
            MPI_Comm_free(&copy);
        }
    }
}

static void refusals(MPI_Group world) {
    MPI_Group group = MPI_GROUP_NULL;
    MPI_Comm part = MPI_COMM_NULL;
    const int twice[2] = {0, 0};
    int range[1][3] = {{0, 0, 0}};
    int size = 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    EXPECT(MPI_Group_size(MPI_GROUP_NULL, &size) == MPI_ERR_GROUP);
    EXPECT(MPI_Group_incl(world, 2, twice, &group) == MPI_ERR_RANK);
    EXPECT(MPI_Group_incl(world, 1, &ranks, &group) == MPI_ERR_RANK);
    EXPECT(MPI_Group_range_incl(world, 1, range, &group) == MPI_ERR_ARG);
    EXPECT(MPI_Comm_create(MPI_COMM_WORLD, MPI_GROUP_NULL, &part) == MPI_ERR_GROUP);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_create(MPI_COMM_WORLD, MPI_GROUP_EMPTY, &part);
    EXPECT(part == MPI_COMM_NULL);
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    MPI_Group world;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    EXPECT(size_of(world) == ranks);
    sets(world);
    halves(world);
    frees();
    refusals(world);
    MPI_Group_free(&world);
    return finish();
}
