/* SPDX-License-Identifier: Apache-2.0
 *
 * Start and end, even collectives, messages and communicators, with their results checked. Prints "all is well" on each rank.
 */
#include "check.h"

#include <stdbool.h>
#include <stdint.h>

/* The sum of 0 .. ranks-1. */
static int sum_of_ranks(void) {
    return ranks * (ranks - 1) / 2;
}

static void reductions(void) {
    int all = -1;
    MPI_Allreduce(&rank, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(all == sum_of_ranks());
    double values[2] = {rank + 1.0, -rank};
    MPI_Allreduce(MPI_IN_PLACE, values, 2, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    EXPECT(values[0] == 1.0 && values[1] == 1.0 - ranks);
    /* Types and operators that the SDK lacks. */
    short product = (short)(rank + 1);
    MPI_Allreduce(MPI_IN_PLACE, &product, 1, MPI_SHORT, MPI_PROD, MPI_COMM_WORLD);
    short factorial = 1;
    for (int i = 1; i <= ranks; ++i) {
        factorial = (short)(factorial * i);
    }
    EXPECT(product == factorial);
    bool all_are = true;
    bool is_first = rank == 0;
    MPI_Allreduce(&is_first, &all_are, 1, MPI_C_BOOL, MPI_LAND, MPI_COMM_WORLD);
    EXPECT(all_are == (ranks == 1));
    MPI_Allreduce(&is_first, &all_are, 1, MPI_C_BOOL, MPI_LXOR, MPI_COMM_WORLD);
    EXPECT(all_are);
    int odd = rank == ranks - 1 ? 7 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &odd, 1, MPI_INT, MPI_LXOR, MPI_COMM_WORLD);
    EXPECT(odd == 1);
    uint64_t bits = (uint64_t)1 << (rank + 40);
    MPI_Allreduce(MPI_IN_PLACE, &bits, 1, MPI_UINT64_T, MPI_BOR, MPI_COMM_WORLD);
    EXPECT(bits == (((uint64_t)1 << ranks) - 1) << 40);
    unsigned char byte = (unsigned char)(0xf0 | rank);
    MPI_Allreduce(MPI_IN_PLACE, &byte, 1, MPI_BYTE, MPI_BAND, MPI_COMM_WORLD);
    EXPECT((byte & 0xf0) == 0xf0);
    int16_t pair[2] = {(int16_t)(0x0f00 << rank), (int16_t)-rank};
    MPI_Allreduce(MPI_IN_PLACE, pair, 2, MPI_INT16_T, MPI_BXOR, MPI_COMM_WORLD);
    int16_t expected[2] = {0, 0};
    for (int i = 0; i < ranks; ++i) {
        expected[0] = (int16_t)(expected[0] ^ 0x0f00 << i);
        expected[1] = (int16_t)(expected[1] ^ -i);
    }
    EXPECT(pair[0] == expected[0] && pair[1] == expected[1]);

    const int root = ranks - 1;
    long own = rank;
    long total = -1;
    MPI_Reduce(&own, &total, 1, MPI_LONG, MPI_SUM, root, MPI_COMM_WORLD);
    EXPECT(own == rank);
    EXPECT(total == (rank == root ? sum_of_ranks() : -1));
    if (rank == root) {
        MPI_Reduce(MPI_IN_PLACE, &own, 1, MPI_LONG, MPI_MAX, root, MPI_COMM_WORLD);
        EXPECT(own == ranks - 1);
    } else {
        MPI_Reduce(&own, NULL, 1, MPI_LONG, MPI_MAX, root, MPI_COMM_WORLD);
    }
    signed char mask = (signed char)(1 << rank);
    signed char masks = 0;
    MPI_Reduce(&mask, &masks, 1, MPI_SIGNED_CHAR, MPI_BXOR, 0, MPI_COMM_WORLD);
    EXPECT(masks == (rank == 0 ? (1 << ranks) - 1 : 0));
}

static void gathers(void) {
    int *rows = malloc((size_t)ranks * 2 * sizeof *rows);
    int own[2] = {rank, rank * rank};
    memset(rows, 0xff, (size_t)ranks * 2 * sizeof *rows);
    MPI_Allgather(own, 2, MPI_INT, rows, 2, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < ranks; ++i) {
        EXPECT(rows[2 * i] == i && rows[2 * i + 1] == i * i);
    }
    memset(rows, 0xff, (size_t)ranks * 2 * sizeof *rows);
    MPI_Gather(own, 2, MPI_INT, rank == 0 ? rows : NULL, 2, MPI_INT, 0, MPI_COMM_WORLD);
    EXPECT(rows[2 * (ranks - 1)] == (rank == 0 ? ranks - 1 : -1));
    if (rank == 0) {
        rows[0] = 77;
        MPI_Gather(MPI_IN_PLACE, 0, MPI_INT, rows, 2, MPI_INT, 0, MPI_COMM_WORLD);
        EXPECT(rows[0] == 77 && rows[2 * (ranks - 1)] == ranks - 1);
    } else {
        MPI_Gather(own, 8, MPI_BYTE, NULL, 0, MPI_INT, 0, MPI_COMM_WORLD);
    }
    for (int i = 0; i < 2 * ranks; ++i) {
        rows[i] = rank == 0 ? 10 * i : -1;
    }
    int received[2] = {-1, -1};
    MPI_Scatter(rank == 0 ? rows : NULL, 2, MPI_INT, received, 2, MPI_INT, 0, MPI_COMM_WORLD);
    EXPECT(received[0] == 20 * rank && received[1] == 20 * rank + 10);
    if (rank == 0) {
        MPI_Scatter(rows, 2, MPI_INT, MPI_IN_PLACE, 0, MPI_INT, 0, MPI_COMM_WORLD);
        EXPECT(rows[0] == 0 && rows[1] == 10);
    } else {
        MPI_Scatter(NULL, 0, MPI_INT, received, 2, MPI_INT, 0, MPI_COMM_WORLD);
        EXPECT(received[0] == 20 * rank);
    }
    int *sent = malloc((size_t)ranks * sizeof *sent);
    for (int i = 0; i < ranks; ++i) {
        sent[i] = 100 * rank + i;
    }
    MPI_Alltoall(sent, 1, MPI_INT, rows, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, sent, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < ranks; ++i) {
        EXPECT(rows[i] == 100 * i + rank && sent[i] == rows[i]);
    }
    free(sent);
    free(rows);
}

static void messages(void) {
    const int next = (rank + 1) % ranks;
    const int previous = (rank + ranks - 1) % ranks;
    MPI_Status status;
    int count = -1;
    double got = -1;
    double own = rank + 0.5;
    MPI_Sendrecv(&own, 1, MPI_DOUBLE, next, 5, &got, 1, MPI_DOUBLE, previous, 5, MPI_COMM_WORLD,
                 &status);
    EXPECT(got == previous + 0.5 && status.MPI_SOURCE == previous && status.MPI_TAG == 5);
    MPI_Get_count(&status, MPI_DOUBLE, &count);
    EXPECT(count == 1);
    MPI_Get_count(&status, MPI_SHORT, &count);
    EXPECT(count == 4);

    MPI_Request requests[3];
    MPI_Status statuses[3];
    int in[2] = {-1, -1};
    int out[2] = {rank, 1000 + rank};
    MPI_Irecv(&in[0], 1, MPI_INT, previous, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&in[1], 1, MPI_INT, previous, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&out[1], 1, MPI_INT, next, 2, MPI_COMM_WORLD, &requests[2]);
    MPI_Send(&out[0], 1, MPI_INT, next, 1, MPI_COMM_WORLD);
    MPI_Waitall(3, requests, statuses);
    EXPECT(in[0] == previous && in[1] == 1000 + previous);
    EXPECT(requests[0] == MPI_REQUEST_NULL && statuses[1].MPI_TAG == 2);
    int done = 0;
    MPI_Test(&requests[0], &done, MPI_STATUS_IGNORE);
    EXPECT(done == 1);
    if (rank == 0) {
        MPI_Send(out, 2, MPI_INT, 1, 9, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Recv(in, 2, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EXPECT(in[0] == 0 && in[1] == 1000);
    }
    MPI_Send(out, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    MPI_Recv(in, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
    EXPECT(status.MPI_SOURCE == MPI_PROC_NULL);
}

/* More than a rank buffers for a peer without a receive. It blocks no collective. */
static void large_message(void) {
    enum { LARGE = 80 << 20 };
    char *large = calloc(LARGE, 1);
    MPI_Request request;
    large[LARGE - 1] = rank == 0 ? 'z' : 0;
    if (rank == 0) {
        MPI_Isend(large, LARGE, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &request);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        MPI_Recv(large, LARGE, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EXPECT(large[LARGE - 1] == 'z');
    }
    free(large);
}

/* A message stays in its communicator. MPI_Comm_free does not wait for the other ranks. */
static void frees(void) {
    for (int i = 0; i < 10; ++i) {
        MPI_Comm copy;
        MPI_Comm_dup(MPI_COMM_WORLD, &copy);
        int values[2] = {1, 2};
        MPI_Barrier(copy);
        if (rank == 0) {
            MPI_Send(&values[0], 1, MPI_INT, 1, 1, copy);
            MPI_Comm_free(&copy);
            MPI_Send(&values[1], 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
        } else if (rank == 1) {
            MPI_Recv(&values[0], 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Recv(&values[1], 1, MPI_INT, 0, 1, copy, MPI_STATUS_IGNORE);
            EXPECT(values[0] == 2 && values[1] == 1);
            MPI_Comm_free(&copy);
        } else {
            MPI_Comm_free(&copy);
        }
    }
}

static void communicators(void) {
    MPI_Comm copy;
    MPI_Comm node;
    MPI_Comm some;
    int value = -1;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_rank(copy, &value);
    EXPECT(value == rank);
    MPI_Comm_split_type(copy, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &value);
    EXPECT(value == ranks);
    MPI_Comm_split(node, rank == 0 ? MPI_UNDEFINED : 4, 0, &some);
    EXPECT((some == MPI_COMM_NULL) == (rank == 0));
    if (rank != 0) {
        MPI_Comm_size(some, &value);
        EXPECT(value == ranks - 1);
        int first = rank;
        MPI_Bcast(&first, 1, MPI_INT, 0, some);
        EXPECT(first == 1);
        MPI_Comm_free(&some);
        EXPECT(some == MPI_COMM_NULL);
    }
    MPI_Comm_free(&node);
    MPI_Comm_free(&copy);
    int self = 42;
    MPI_Comm_size(MPI_COMM_SELF, &value);
    EXPECT(value == 1);
    MPI_Allreduce(MPI_IN_PLACE, &self, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    EXPECT(self == 42);
}

static void returned_errors(void) {
    int value = 0;
    int length = 0;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    EXPECT(MPI_Bcast(&value, 1, MPI_INT, ranks, MPI_COMM_WORLD) == MPI_ERR_ROOT);
    MPI_Error_string(MPI_ERR_ROOT, text, &length);
    EXPECT(strstr(text, "MPI_Bcast: rank") == text && length == (int)strlen(text));
    EXPECT(MPI_Bcast(&value, -1, MPI_INT, 0, MPI_COMM_WORLD) == MPI_ERR_COUNT);
    EXPECT(MPI_Bcast(&value, 1, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD) == MPI_ERR_TYPE);
    EXPECT(MPI_Bcast(NULL, 1, MPI_INT, 0, MPI_COMM_WORLD) == MPI_ERR_BUFFER);
    float real = 0;
    EXPECT(MPI_Allreduce(MPI_IN_PLACE, &real, 1, MPI_FLOAT, MPI_BAND, MPI_COMM_WORLD) ==
           MPI_ERR_OP);
    EXPECT(MPI_Send(&value, 1, MPI_INT, 0, -3, MPI_COMM_WORLD) == MPI_ERR_TAG);
    EXPECT(MPI_Recv(&value, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, NULL) == MPI_ERR_TAG);
    EXPECT(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, NULL) == MPI_ERR_RANK);
    EXPECT(MPI_Recv(&value, 1, MPI_INT, ranks, 1, MPI_COMM_WORLD, NULL) == MPI_ERR_RANK);
    EXPECT(MPI_Send(&value, 1, MPI_INT, rank, 1, MPI_COMM_WORLD) == MPI_ERR_ARG);
    MPI_Comm world = MPI_COMM_WORLD;
    EXPECT(MPI_Comm_free(&world) == MPI_ERR_COMM);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv) {
    int flag = -1;
    int provided = -1;
    MPI_Initialized(&flag);
    EXPECT(flag == 0);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    EXPECT(provided == MPI_THREAD_SERIALIZED);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Initialized(&flag);
    EXPECT(flag == 1);
    const double begin = MPI_Wtime();
    reductions();
    gathers();
    messages();
    large_message();
    frees();
    communicators();
    returned_errors();
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT(MPI_Wtime() > begin && MPI_Wtick() > 0);
    int bytes = 0;
    MPI_Type_size(MPI_LONG_LONG_INT, &bytes);
    EXPECT(bytes == (int)sizeof(long long));
    MPI_Finalized(&flag);
    EXPECT(flag == 0);
    MPI_Finalize();
    MPI_Finalized(&flag);
    EXPECT(flag == 1);
    printf("rank %d: all is well\n", rank);
    return 0;
}
