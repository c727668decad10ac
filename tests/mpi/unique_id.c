/* SPDX-License-Identifier: Apache-2.0
 *
 * The usual start of GPU programs: every rank finds its local rank by comparing host names, rank 0
 * makes an id of 128 bytes and broadcasts it, and each part of the world gets an id of its own.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                             \
    do {                                                        \
        int code_ = (call);                                     \
        if (code_ != MPI_SUCCESS) {                             \
            char text_[MPI_MAX_ERROR_STRING];                   \
            int length_ = 0;                                    \
            MPI_Error_string(code_, text_, &length_);           \
            fprintf(stderr, "%s: %.*s\n", #call, length_, text_); \
            exit(EXIT_FAILURE);                                 \
        }                                                       \
    } while (0)

typedef struct {
    char internal[128];
} UniqueId;

static uint64_t host_hash(void) {
    char name[MPI_MAX_PROCESSOR_NAME];
    int length = 0;
    CHECK(MPI_Get_processor_name(name, &length));
    uint64_t hash = 5381;
    for (int i = 0; i < length; ++i) {
        hash = hash * 33 ^ (uint64_t)(unsigned char)name[i];
    }
    return hash;
}

static int local_rank_of(int rank, int ranks) {
    uint64_t *hashes = calloc((size_t)ranks, sizeof *hashes);
    hashes[rank] = host_hash();
    CHECK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, hashes, sizeof *hashes, MPI_BYTE,
                        MPI_COMM_WORLD));
    int local_rank = 0;
    for (int other = 0; other < rank; ++other) {
        local_rank += hashes[other] == hashes[rank];
    }
    free(hashes);
    return local_rank;
}

static unsigned checksum(const UniqueId *id) {
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof id->internal; ++i) {
        sum = sum * 31 + (unsigned char)id->internal[i];
    }
    return sum;
}

static void share_id(UniqueId *id, int seed, MPI_Comm comm) {
    int rank = -1;
    CHECK(MPI_Comm_rank(comm, &rank));
    memset(id, 0, sizeof *id);
    for (size_t i = 0; rank == 0 && i < sizeof id->internal; ++i) {
        id->internal[i] = (char)(seed + (int)i * 7);
    }
    CHECK(MPI_Bcast(id, sizeof *id, MPI_BYTE, 0, comm));
}

int main(int argc, char **argv) {
    int rank = -1;
    int ranks = 0;
    CHECK(MPI_Init(&argc, &argv));
    CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    CHECK(MPI_Comm_size(MPI_COMM_WORLD, &ranks));

    const int local_rank = local_rank_of(rank, ranks);
    UniqueId id;
    share_id(&id, 1, MPI_COMM_WORLD);

    /* Even and odd ranks apart, the highest rank first in each. */
    MPI_Comm part;
    int part_rank = -1;
    int part_ranks = 0;
    CHECK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part));
    CHECK(MPI_Comm_rank(part, &part_rank));
    CHECK(MPI_Comm_size(part, &part_ranks));
    UniqueId part_id;
    share_id(&part_id, 100 + rank % 2, part);
    CHECK(MPI_Barrier(MPI_COMM_WORLD));

    int best = rank;
    CHECK(MPI_Allreduce(MPI_IN_PLACE, &best, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    printf("rank %d of %d, local rank %d, id %u, part %d of %d, part id %u, best %d\n", rank, ranks,
           local_rank, checksum(&id), part_rank, part_ranks, checksum(&part_id), best);
    CHECK(MPI_Comm_free(&part));
    CHECK(MPI_Finalize());
    return 0;
}
