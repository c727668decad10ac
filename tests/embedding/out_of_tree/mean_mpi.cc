// SPDX-License-Identifier: Apache-2.0
// An MPI program without any use of regroup, in C and in C++.
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
    int rank = 0;
    int ranks = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const double mine = rank;
    double sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    printf("MPI: rank %d of %d: mean %.2f\n", rank, ranks, sum / ranks);
    MPI_Finalize();
    return 2 * sum == ranks * (ranks - 1.0) ? 0 : 1;
}
