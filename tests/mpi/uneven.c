/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives with different amounts for the ranks. Rank r has r + 1 elements; between two ranks'
 * parts there is a gap of one.
 */
#include "check.h"

static int *counts, *places, *rows;
static int* dense; /* The places of parts without gaps. */

static int sum_of_ranks(void) {
    return ranks * (ranks - 1) / 2;
}

static int width(void) {
    return places[ranks - 1] + counts[ranks - 1];
}

static void clear_rows(void) {
    for (int i = 0; i < width(); ++i) {
        rows[i] = -1;
    }
}

static void expect_rows(void) {
    for (int r = 0; r < ranks; ++r) {
        for (int i = 0; i < counts[r]; ++i) {
            EXPECT(rows[places[r] + i] == 100 * r + i);
        }
        EXPECT(r == ranks - 1 || rows[places[r] + counts[r]] == -1);
    }
}

static void fill(int* values, int of, int count) {
    for (int i = 0; i < count; ++i) {
        values[i] = 100 * of + i;
    }
}

static void gathers(void) {
    const int root = ranks - 1;
    int* own = malloc((size_t)(rank + 1) * sizeof *own);
    fill(own, rank, rank + 1);
    clear_rows();
    MPI_Allgatherv(own, rank + 1, MPI_INT, rows, counts, places, MPI_INT, MPI_COMM_WORLD);
    expect_rows();
    clear_rows();
    fill(rows + places[rank], rank, rank + 1);
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_INT, rows, counts, places, MPI_INT, MPI_COMM_WORLD);
    expect_rows();

    int* joined = malloc((size_t)(ranks * (ranks + 1) / 2) * sizeof *joined);
    MPI_Allgatherv(own, rank + 1, MPI_INT, joined, counts, dense, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < ranks; ++r) {
        for (int i = 0; i < counts[r]; ++i) {
            EXPECT(joined[dense[r] + i] == 100 * r + i);
            joined[dense[r] + i] = r == rank ? 100 * r + i : -1;
        }
    }
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_INT, joined, counts, dense, MPI_INT, MPI_COMM_WORLD);
    EXPECT(joined[dense[0]] == 0 && joined[dense[ranks - 1]] == 100 * (ranks - 1));
    free(joined);

    clear_rows();
    if (rank == root) {
        MPI_Gatherv(own, rank + 1, MPI_INT, rows, counts, places, MPI_INT, root, MPI_COMM_WORLD);
        expect_rows();
        clear_rows();
        fill(rows + places[rank], rank, rank + 1);
        MPI_Gatherv(MPI_IN_PLACE, 0, MPI_INT, rows, counts, places, MPI_INT, root, MPI_COMM_WORLD);
        expect_rows();
        MPI_Scatterv(rows, counts, places, MPI_INT, own, rank + 1, MPI_INT, root, MPI_COMM_WORLD);
        MPI_Scatterv(rows, counts, places, MPI_INT, MPI_IN_PLACE, 0, MPI_INT, root, MPI_COMM_WORLD);
        expect_rows();
    } else {
        MPI_Gatherv(own, rank + 1, MPI_INT, NULL, NULL, NULL, MPI_INT, root, MPI_COMM_WORLD);
        MPI_Gatherv(own, 4 * (rank + 1), MPI_BYTE, NULL, NULL, NULL, MPI_INT, root, MPI_COMM_WORLD);
        for (int i = 0; i < 2; ++i) {
            memset(own, 0xff, (size_t)(rank + 1) * sizeof *own);
            MPI_Scatterv(NULL, NULL, NULL, MPI_INT, own, rank + 1, MPI_INT, root, MPI_COMM_WORLD);
            EXPECT(own[rank] == 100 * rank + rank);
        }
    }
    free(own);
}

/* Rank i sends i + j elements to rank j, and so nothing from rank 0 to itself. The parts lie in the
 * order of the ranks, or backwards, with `gap` elements between them. */
static void all_to_all(int backwards, int gap) {
    int* sizes = calloc((size_t)ranks, sizeof *sizes);
    int* offsets = calloc((size_t)ranks, sizeof *offsets);
    int total = 0;
    for (int k = 0; k < ranks; ++k) {
        const int i = backwards ? ranks - 1 - k : k;
        sizes[i] = rank + i;
        offsets[i] = total;
        total += sizes[i] + gap;
    }
    int* out = malloc(((size_t)total + 1) * sizeof *out);
    int* in = malloc(((size_t)total + 1) * sizeof *in);
    memset(out, 0xff, (size_t)total * sizeof *out);
    memset(in, 0xff, (size_t)total * sizeof *in);
    for (int i = 0; i < ranks; ++i) {
        for (int k = 0; k < sizes[i]; ++k) {
            out[offsets[i] + k] = 10000 * rank + 100 * i + k;
        }
    }
    MPI_Alltoallv(out, sizes, offsets, MPI_INT, in, sizes, offsets, MPI_INT, MPI_COMM_WORLD);
    MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, out, sizes, offsets, MPI_INT,
                  MPI_COMM_WORLD);
    for (int i = 0; i < ranks; ++i) {
        for (int k = 0; k < sizes[i]; ++k) {
            EXPECT(in[offsets[i] + k] == 10000 * i + 100 * rank + k);
            EXPECT(out[offsets[i] + k] == in[offsets[i] + k]);
        }
        for (int k = sizes[i]; k < sizes[i] + gap; ++k) {
            EXPECT(in[offsets[i] + k] == -1 && out[offsets[i] + k] == -1);
        }
    }
    free(in);
    free(out);
    free(offsets);
    free(sizes);
}

static void reductions(void) {
    const int total = ranks * (ranks + 1) / 2;
    const int first = rank * (rank + 1) / 2;
    long* values = malloc((size_t)total * sizeof *values);
    long* own = malloc((size_t)(rank + 1) * sizeof *own);
    for (int i = 0; i < total; ++i) {
        values[i] = 10 * i + rank;
    }
    MPI_Reduce_scatter(values, own, counts, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i <= rank; ++i) {
        EXPECT(own[i] == 10L * (first + i) * ranks + sum_of_ranks());
    }
    MPI_Reduce_scatter(MPI_IN_PLACE, values, counts, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    EXPECT(values[rank] == 10 * (first + rank) + ranks - 1);
    free(own);
    free(values);

    int* even = malloc((size_t)ranks * sizeof *even);
    int mine = -1;
    for (int i = 0; i < ranks; ++i) {
        even[i] = i + rank;
    }
    MPI_Reduce_scatter_block(even, &mine, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(mine == rank * ranks + sum_of_ranks());
    MPI_Reduce_scatter_block(even, &mine, 1, MPI_INT, MPI_BOR, MPI_COMM_WORLD);
    int all = 0;
    for (int i = 0; i < ranks; ++i) {
        all |= rank + i;
    }
    EXPECT(mine == all);
    unsigned short* masks = malloc((size_t)total * sizeof *masks);
    for (int i = 0; i < total; ++i) {
        masks[i] = (unsigned short)(i << 8 | 1 << rank);
    }
    MPI_Reduce_scatter(MPI_IN_PLACE, masks, counts, MPI_UNSIGNED_SHORT, MPI_BOR, MPI_COMM_WORLD);
    for (int i = 0; i <= rank; ++i) {
        EXPECT(masks[i] == ((first + i) << 8 | ((1 << ranks) - 1)));
    }
    free(masks);
    MPI_Reduce_scatter_block(MPI_IN_PLACE, even, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(even[0] == rank * ranks + sum_of_ranks());
    free(even);
}

int main(int argc, char** argv) {
    start(&argc, &argv);
    counts = malloc((size_t)ranks * sizeof *counts);
    places = malloc((size_t)ranks * sizeof *places);
    dense = malloc((size_t)ranks * sizeof *dense);
    int place = 0;
    for (int i = 0; i < ranks; ++i) {
        counts[i] = i + 1;
        places[i] = place;
        place += counts[i] + 1;
        dense[i] = i * (i + 1) / 2;
    }
    rows = malloc((size_t)place * sizeof *rows);
    gathers();
    all_to_all(0, 0);
    all_to_all(0, 2);
    all_to_all(1, 0);
    reductions();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    EXPECT(MPI_Reduce_scatter(rows, rows, NULL, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_ERR_ARG);
    counts[rank] = -1;
    EXPECT(MPI_Allgatherv(rows, 1, MPI_INT, rows, counts, places, MPI_INT, MPI_COMM_WORLD) ==
           MPI_ERR_COUNT);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    free(rows);
    free(dense);
    free(places);
    free(counts);
    return finish();
}
