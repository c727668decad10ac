// SPDX-License-Identifier: Apache-2.0
// MPI_Send and MPI_Recv, measured as in message_bench:
//
//     mpirun -n 2 message_mpi BYTES:ROUNDS...
//
// Prints a line "BYTES MEDIAN_US MIN_US" for each size, from rank 0: half of a round trip.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int ascending(const void* left, const void* right) {
    const double a = *(const double*)left;
    const double b = *(const double*)right;
    return (a > b) - (a < b);
}

static void measure(int bytes, int rounds) {
    char* const values = calloc((size_t)bytes, 1);
    double* const times = malloc((size_t)rounds * sizeof(double));
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int round = -2; round < rounds; ++round) {
        const double start = MPI_Wtime();
        for (int step = 0; step < 2; ++step) {
            if (step == rank) {
                MPI_Send(values, bytes, MPI_CHAR, 1 - rank, 0, MPI_COMM_WORLD);
            } else {
                MPI_Recv(values, bytes, MPI_CHAR, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
        }
        if (round >= 0) {
            times[round] = (MPI_Wtime() - start) * 1e6 / 2;
        }
    }
    qsort(times, (size_t)rounds, sizeof(double), ascending);
    if (rank == 0) {
        const double median = (times[rounds / 2] + times[(rounds - 1) / 2]) / 2;
        printf("%d %.3f %.3f\n", bytes, median, times[0]);
        fflush(stdout);
    }
    free(times);
    free(values);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    for (int i = 1; i < argc; ++i) {
        int bytes = 0;
        int rounds = 0;
        if (sscanf(argv[i], "%d:%d", &bytes, &rounds) != 2 || bytes < 1 || rounds < 1) {
            fprintf(stderr, "message_mpi: '%s' is not BYTES:ROUNDS\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        measure(bytes, rounds);
    }
    MPI_Finalize();
    return 0;
}
