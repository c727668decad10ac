/* SPDX-License-Identifier: Apache-2.0
 *
 * The last rank fails in the way that the argument names, while the others are in a barrier that
 * can never be complete.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    const char *way = argc == 2 ? argv[1] : "";
    int rank = -1;
    int ranks = 0;
    if (strcmp(way, "too_early") == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == ranks - 1) {
        printf("rank %d goes by %s\n", rank, way);
        fflush(stdout); /* a signal may end the rank in its call */
        if (strcmp(way, "abort") == 0) {
            MPI_Abort(MPI_COMM_WORLD, 42);
        } else if (strcmp(way, "kill") == 0) {
            raise(SIGKILL);
        } else if (strcmp(way, "exit") == 0) {
            exit(7);
        } else if (strcmp(way, "root") == 0) {
            MPI_Bcast(&rank, 1, MPI_INT, ranks, MPI_COMM_WORLD);
        } else if (strcmp(way, "bits") == 0) {
            MPI_Allreduce(MPI_IN_PLACE, &rank, 1, MPI_INT, MPI_BOR, MPI_COMM_WORLD);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    puts("the barrier is complete");
    MPI_Finalize();
    return 0;
}
