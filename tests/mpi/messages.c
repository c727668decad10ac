/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages whose sender, tag or size the receiver does not know. For two ranks and more.
 */
#include "check.h"

enum { LARGE = 80 << 20 }; /* More than a rank buffers for a peer without a receive. */

static int next(void) {
    return (rank + 1) % ranks;
}

static int previous(void) {
    return (rank + ranks - 1) % ranks;
}

static int count_of(const MPI_Status *status, MPI_Datatype type) {
    int count = -1;
    MPI_Get_count(status, type, &count);
    return count;
}

/* A buffer that is larger than the message, for several sizes. */
static void short_messages(void) {
    int out[100];
    int in[100];
    for (int i = 0; i < 100; ++i) {
        out[i] = 1000 * rank + i;
    }
    for (int count = 0; count <= 100; count += 25) {
        MPI_Status status;
        memset(in, 0xff, sizeof in);
        MPI_Sendrecv(out, count, MPI_INT, next(), 1, in, 100, MPI_INT, previous(), 1,
                     MPI_COMM_WORLD, &status);
        EXPECT(count_of(&status, MPI_INT) == count);
        EXPECT(count_of(&status, MPI_BYTE) == 4 * count);
        EXPECT(status.MPI_SOURCE == previous() && status.MPI_TAG == 1);
        EXPECT(count == 0 || in[count - 1] == 1000 * previous() + count - 1);
        EXPECT(count == 100 || in[count] == -1);
    }
    char odd[3] = {1, 2, 3};
    MPI_Status status;
    MPI_Sendrecv(odd, 3, MPI_CHAR, next(), 2, in, 100, MPI_INT, previous(), 2, MPI_COMM_WORLD,
                 &status);
    EXPECT(count_of(&status, MPI_INT) == MPI_UNDEFINED && count_of(&status, MPI_CHAR) == 3);
}

/* The receiver learns the size first, and makes the buffer then. */
static void probes(void) {
    const int own = 3 * rank + 1;
    double *out = malloc((size_t)own * sizeof *out);
    for (int i = 0; i < own; ++i) {
        out[i] = rank + i / 8.0;
    }
    MPI_Request sent;
    MPI_Status status;
    MPI_Isend(out, own, MPI_DOUBLE, next(), 7, MPI_COMM_WORLD, &sent);
    MPI_Probe(previous(), 7, MPI_COMM_WORLD, &status);
    const int count = count_of(&status, MPI_DOUBLE);
    EXPECT(count == 3 * previous() + 1 && status.MPI_SOURCE == previous());
    int flag = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
    EXPECT(flag == 1 && status.MPI_TAG == 7);
    double *in = malloc((size_t)count * sizeof *in);
    MPI_Recv(in, count, MPI_DOUBLE, previous(), 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT(in[count - 1] == previous() + (count - 1) / 8.0);
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    EXPECT(flag == 0);
    free(in);
    free(out);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Rank 0 collects from whoever comes. Messages of one sender keep their order. */
static void wildcards(void) {
    enum { EACH = 20 };
    if (rank != 0) {
        for (int i = 0; i < EACH; ++i) {
            const int value[2] = {rank, i};
            MPI_Send(value, 2, MPI_INT, 0, 100 + i % 3, MPI_COMM_WORLD);
        }
    } else {
        int *seen = calloc((size_t)ranks, sizeof *seen);
        for (int i = 0; i < EACH * (ranks - 1); ++i) {
            int value[2] = {-1, -1};
            MPI_Status status;
            MPI_Recv(value, 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            EXPECT(status.MPI_SOURCE == value[0] && status.MPI_TAG == 100 + value[1] % 3);
            EXPECT(value[1] == seen[value[0]]++);
        }
        free(seen);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    /* The older receive takes the first message, even if the younger one names it better. */
    int first = -1;
    int second = -1;
    const int out[2] = {1, 2};
    MPI_Request requests[2];
    MPI_Irecv(&first, 1, MPI_INT, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&second, 1, MPI_INT, previous(), 5, MPI_COMM_WORLD, &requests[1]);
    MPI_Send(&out[0], 1, MPI_INT, next(), 5, MPI_COMM_WORLD);
    MPI_Send(&out[1], 1, MPI_INT, next(), 5, MPI_COMM_WORLD);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    EXPECT(first == 1 && second == 2);
}

static void messages_to_oneself(void) {
    int in = -1;
    const int out = 5 + rank;
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(&in, 1, MPI_INT, rank, 3, MPI_COMM_WORLD, &request);
    MPI_Send(&out, 1, MPI_INT, rank, 3, MPI_COMM_WORLD);
    MPI_Wait(&request, &status);
    EXPECT(in == 5 + rank && status.MPI_SOURCE == rank);
    MPI_Send(&out, 1, MPI_INT, 0, 4, MPI_COMM_SELF);
    MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &status);
    EXPECT(status.MPI_SOURCE == 0 && status.MPI_TAG == 4);
}

/* Large messages that nobody wants yet block neither other messages nor collectives. */
static void large_messages(void) {
    char *large = calloc(LARGE, 1);
    char small = 'x';
    MPI_Request request;
    if (rank == 0) {
        large[LARGE - 1] = 'z';
        MPI_Isend(large, LARGE, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &request);
        MPI_Send(&small, 1, MPI_CHAR, 1, 2, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Send(large, LARGE, MPI_CHAR, 1, 3, MPI_COMM_WORLD); /* While rank 1 is in a barrier. */
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Recv(&small, 1, MPI_CHAR, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Recv(large, LARGE, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EXPECT(large[LARGE - 1] == 'z');
        large[LARGE - 1] = 0;
        MPI_Irecv(large, LARGE, MPI_CHAR, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        EXPECT(large[LARGE - 1] == 'z');
    } else {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    /* Ahead of the parts of a collective. */
    int *counts = calloc((size_t)ranks, sizeof *counts);
    int *places = calloc((size_t)ranks, sizeof *places);
    int *rows = calloc((size_t)ranks, sizeof *rows);
    for (int i = 0; i < ranks; ++i) {
        counts[i] = 1;
        places[i] = i;
    }
    if (rank == 0) {
        MPI_Isend(large, LARGE, MPI_CHAR, 1, 4, MPI_COMM_WORLD, &request);
    }
    MPI_Allgatherv(&rank, 1, MPI_INT, rows, counts, places, MPI_INT, MPI_COMM_WORLD);
    EXPECT(rows[ranks - 1] == ranks - 1);
    if (rank == 0) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        MPI_Recv(large, LARGE, MPI_CHAR, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    free(rows);
    free(places);
    free(counts);
    free(large);
}

static void completions(void) {
    int in[2] = {-1, -1};
    int out = rank;
    int index = -1;
    int done = 0;
    MPI_Request requests[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status status;
    MPI_Waitany(3, requests, &index, &status);
    EXPECT(index == MPI_UNDEFINED);
    MPI_Testany(3, requests, &index, &done, &status);
    EXPECT(index == MPI_UNDEFINED && done == 1);

    MPI_Irecv(&in[0], 1, MPI_INT, previous(), 21, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&in[1], 1, MPI_INT, previous(), 22, MPI_COMM_WORLD, &requests[2]);
    MPI_Testall(3, requests, &done, MPI_STATUSES_IGNORE);
    EXPECT(done == 0 && requests[0] != MPI_REQUEST_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&out, 1, MPI_INT, next(), 22, MPI_COMM_WORLD);
    MPI_Waitany(3, requests, &index, &status);
    EXPECT(index == 2 && in[1] == previous() && requests[2] == MPI_REQUEST_NULL);
    EXPECT(status.MPI_TAG == 22);
    MPI_Barrier(MPI_COMM_WORLD); /* Nobody sends the other message before all have checked. */
    MPI_Send(&out, 1, MPI_INT, next(), 21, MPI_COMM_WORLD);
    do {
        MPI_Testall(3, requests, &done, MPI_STATUSES_IGNORE);
    } while (!done);
    EXPECT(in[0] == previous() && requests[0] == MPI_REQUEST_NULL);
}

static void refusals(void) {
    int in[2] = {-1, -1};
    const int out[3] = {1, 2, 3};
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    /* Taken in before the receive is posted, and after. */
    for (int posted = 0; posted < 2; ++posted) {
        MPI_Request request = MPI_REQUEST_NULL;
        if (posted) {
            MPI_Irecv(in, 2, MPI_INT, previous(), 8, MPI_COMM_WORLD, &request);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Send(out, 3, MPI_INT, next(), 8, MPI_COMM_WORLD);
        MPI_Send(out, 1, MPI_INT, next(), 9, MPI_COMM_WORLD);
        if (posted) {
            EXPECT(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_ERR_TRUNCATE);
        } else {
            MPI_Probe(previous(), 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            EXPECT(MPI_Recv(in, 2, MPI_INT, previous(), 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE) ==
                   MPI_ERR_TRUNCATE);
        }
        EXPECT(MPI_Recv(in, 2, MPI_INT, previous(), 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE) ==
               MPI_SUCCESS);
        EXPECT(in[0] == 1);
    }
    EXPECT(MPI_Send(out, 1, MPI_INT, next(), MPI_ANY_TAG, MPI_COMM_WORLD) == MPI_ERR_TAG);
    EXPECT(MPI_Recv(in, 1, MPI_INT, ranks, 1, MPI_COMM_WORLD, NULL) == MPI_ERR_RANK);
    EXPECT(MPI_Recv(in, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, NULL) == MPI_ERR_OTHER);
    EXPECT(MPI_Probe(rank, 1, MPI_COMM_WORLD, NULL) == MPI_ERR_OTHER);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    short_messages();
    probes();
    wildcards();
    messages_to_oneself();
    large_messages();
    completions();
    refusals();
    /* A look for a message that never comes does not disturb the end. */
    int flag = 1;
    MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    EXPECT(flag == 0);
    return finish();
}
