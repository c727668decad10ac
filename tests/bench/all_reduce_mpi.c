// SPDX-License-Identifier: Apache-2.0
// MPI_Allreduce, measured as in all_reduce_bench:
//
//     mpirun -n RANKS all_reduce_mpi BYTES:ROUNDS...
//
// Prints a line "BYTES MEDIAN_US MIN_US" for each size, from rank 0.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int ascending(const void* left, const void* right) {
    const double a = *(const double*)left;
    const double b = *(const double*)right;
    return (a > b) - (a < b);
}

static void measure(size_t bytes, int rounds) {
    const size_t count = bytes / sizeof(float);
    float* const values = malloc(bytes);
    double* const times = malloc((size_t)rounds * sizeof(double));
    int rank = 0;
    int ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int round = -2; round < rounds; ++round) {
        for (size_t i = 0; i < count; ++i) {
            values[i] = 1.0F;
        }
        MPI_Barrier(MPI_COMM_WORLD);
        const double start = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (round >= 0) {
            times[round] = (MPI_Wtime() - start) * 1e6;
        }
        if (values[count - 1] != (float)ranks) {
            fprintf(stderr, "the sum is wrong\n");
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    qsort(times, (size_t)rounds, sizeof(double), ascending);
    if (rank == 0) {
        const double median = (times[rounds / 2] + times[(rounds - 1) / 2]) / 2;
        printf("%zu %.3f %.3f\n", bytes, median, times[0]);
        fflush(stdout);
    }
    free(times);
    free(values);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    for (int i = 1; i < argc; ++i) {
        size_t bytes = 0;
        int rounds = 0;
        if (sscanf(argv[i], "%zu:%d", &bytes, &rounds) != 2 || bytes < 4 || rounds < 1) {
            fprintf(stderr, "all_reduce_mpi: '%s' is not BYTES:ROUNDS\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        measure(bytes, rounds);
    }
    MPI_Finalize();
    return 0;
}
