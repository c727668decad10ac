/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the test programs: this process's place, and a check that ends the job.
 */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

#define EXPECT(condition)                                                                  \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "rank %d, line %d: not so: %s\n", rank, __LINE__, #condition); \
            MPI_Abort(MPI_COMM_WORLD, 3);                                                  \
        }                                                                                  \
    } while (0)

static inline void start(int* argc, char*** argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

static inline int finish(void) {
    MPI_Finalize();
    printf("rank %d: all is well\n", rank);
    return 0;
}

#endif
