/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs as tutorials and benchmarks have them, small: latency and bandwidth between two ranks,
 * collectives over growing sizes, a ring, and the order of numbers that are spread over the ranks.
 * For two ranks and more.
 */
#include "check.h"

enum { LARGEST = 1 << 18, WINDOW = 64 };

static void latency(char *out, char *in) {
    for (int size = 0; size <= LARGEST; size = size == 0 ? 1 : size * 8) {
        const double begin = MPI_Wtime();
        for (int i = 0; i < 20; ++i) {
            if (rank == 0) {
                out[0] = (char)i;
                MPI_Send(out, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
                MPI_Recv(in, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                EXPECT(size == 0 || in[0] == (char)i);
            } else if (rank == 1) {
                MPI_Recv(in, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(in, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
            }
        }
        EXPECT(MPI_Wtime() >= begin);
    }
}

/* With `both`, the ranks send to each other at the same time. */
static void bandwidth(char *out, char *in, int both) {
    MPI_Request requests[2 * WINDOW];
    const int peer = 1 - rank;
    for (int size = 1; size <= LARGEST && rank < 2; size *= 16) {
        for (int i = 0; i < 3; ++i) {
            int count = 0;
            for (int k = 0; k < WINDOW && (both || rank == 1); ++k) {
                MPI_Irecv(in, size, MPI_CHAR, peer, 100, MPI_COMM_WORLD, &requests[count++]);
            }
            for (int k = 0; k < WINDOW && (both || rank == 0); ++k) {
                MPI_Isend(out, size, MPI_CHAR, peer, 100, MPI_COMM_WORLD, &requests[count++]);
            }
            MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
            if (rank == 0) {
                MPI_Recv(in, 4, MPI_CHAR, 1, 101, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                MPI_Send(out, 4, MPI_CHAR, 0, 101, MPI_COMM_WORLD);
            }
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void collectives(char *out, char *in) {
    int *counts = malloc((size_t)ranks * sizeof *counts);
    int *places = malloc((size_t)ranks * sizeof *places);
    for (int size = 1; size * ranks <= LARGEST; size *= 8) {
        float *const values = (float *)out;
        float *const sums = (float *)in;
        const int count = size / (int)sizeof(float);
        for (int i = 0; i < count; ++i) {
            values[i] = 1;
        }
        MPI_Allreduce(values, sums, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        EXPECT(count == 0 || sums[count - 1] == (float)ranks);
        for (int i = 0; i < ranks; ++i) {
            counts[i] = size;
            places[i] = i * size;
        }
        memset(out, rank, (size_t)(size * ranks));
        MPI_Alltoallv(out, counts, places, MPI_CHAR, in, counts, places, MPI_CHAR,
                      MPI_COMM_WORLD);
        EXPECT(in[size * ranks - 1] == ranks - 1);
        MPI_Allgatherv(out, size, MPI_CHAR, in, counts, places, MPI_CHAR, MPI_COMM_WORLD);
        EXPECT(in[0] == 0 && in[size * ranks - 1] == ranks - 1);
        double time = 1 + rank;
        double latest = 0;
        MPI_Reduce(&time, &latest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        EXPECT(rank != 0 || latest == ranks);
    }
    free(places);
    free(counts);
}

static void ring(void) {
    int token = -1;
    if (rank != 0) {
        MPI_Recv(&token, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EXPECT(token == rank - 1);
    }
    token = rank;
    MPI_Send(&token, 1, MPI_INT, (rank + 1) % ranks, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Recv(&token, 1, MPI_INT, ranks - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EXPECT(token == ranks - 1);
    }
}

/* The place of each rank's number among all: rank 0 orders them and sends the places back. */
static void places(void) {
    const float own = (float)((7 * rank + 3) % ranks) + 0.5F;
    float *all = malloc((size_t)ranks * sizeof *all);
    int *order = malloc((size_t)ranks * sizeof *order);
    int place = -1;
    MPI_Gather(&own, 1, MPI_FLOAT, all, 1, MPI_FLOAT, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < ranks; ++i) {
        order[i] = 0;
        for (int k = 0; k < ranks; ++k) {
            order[i] += all[k] < all[i];
        }
    }
    MPI_Scatter(order, 1, MPI_INT, &place, 1, MPI_INT, 0, MPI_COMM_WORLD);
    EXPECT(place >= 0 && place < ranks);
    EXPECT(ranks % 7 == 0 || place == (7 * rank + 3) % ranks);
    free(order);
    free(all);
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    char *out = calloc(LARGEST, 1);
    char *in = calloc(LARGEST, 1);
    latency(out, in);
    bandwidth(out, in, 0);
    bandwidth(out, in, 1);
    collectives(out, in);
    ring();
    places();
    free(in);
    free(out);
    return finish();
}
