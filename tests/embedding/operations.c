/* SPDX-License-Identifier: Apache-2.0
 *
 * The general forms of the operations from C: three ranks as threads check their results. The
 * flight record goes to the file of the first argument.
 */
#include <regroup/c_api.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORLD = 3, PATIENCE_MS = 60000 };

static regroup_store* store;

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: not true: %s (%s)\n", __FILE__, __LINE__, #condition, \
                    regroup_last_error());                                                \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)
#define OK(call) CHECK((call) == REGROUP_OK)

static regroup_tensor floats(float* values, size_t count) {
    const regroup_tensor tensor = {values, count, REGROUP_FLOAT32, REGROUP_CPU, 0};
    return tensor;
}

static void check_values(const float* values, const float* expected, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        CHECK(values[i] == expected[i]);
    }
}

/* Into another buffer; the input stays. */
static void reduce_out_of_place(regroup_group* group, uint32_t rank) {
    const float expected[2] = {3, 30};
    float input[2] = {(float)rank, 10};
    float sum[2] = {-1, -1};
    OK(regroup_all_reduce_with(group, floats(input, 2), floats(sum, 2), REGROUP_SUM, NULL, NULL));
    check_values(sum, expected, 2);
    CHECK(input[0] == (float)rank && input[1] == 10);

    float at_root[2] = {-1, -1};
    OK(regroup_reduce_with(group, floats(input, 2), floats(at_root, rank == 1 ? 2 : 0), REGROUP_SUM,
                           1, NULL, NULL));
    CHECK(at_root[0] == (rank == 1 ? 3 : -1));
    CHECK(input[0] == (float)rank);
}

/* Rank i has i + 1 elements, all of the value i. */
static void use_uneven_rows(regroup_group* group, uint32_t rank) {
    const size_t counts[WORLD] = {1, 2, 3};
    const float expected[6] = {0, 1, 1, 2, 2, 2};
    float row[3];
    for (size_t i = 0; i <= rank; ++i) {
        row[i] = (float)rank;
    }
    float all[6];
    OK(regroup_all_gather_with(group, floats(row, rank + 1), floats(all, 6), counts, NULL, NULL));
    check_values(all, expected, 6);

    const float reduced[6] = {0, 3, 3, 6, 6, 6};
    OK(regroup_reduce_scatter_with(group, floats(all, 6), floats(row, rank + 1), REGROUP_SUM,
                                   counts, NULL, NULL));
    check_values(row, reduced + (rank == 0 ? 0 : rank == 1 ? 1 : 3), rank + 1);

    /* Rank r sends i + 1 elements to rank i, and gets r + 1 from each. */
    const size_t gets[WORLD] = {rank + 1, rank + 1, rank + 1};
    float received[9];
    for (size_t i = 0; i < 6; ++i) {
        all[i] = (float)rank;
    }
    regroup_work* work = NULL;
    OK(regroup_all_to_all_with(group, floats(all, 6), floats(received, 3 * (rank + 1)), counts,
                               gets, NULL, &work));
    OK(regroup_work_wait(work));
    regroup_work_free(work);
    for (size_t i = 0; i < 3 * ((size_t)rank + 1); ++i) {
        CHECK(received[i] == (float)(i / (rank + 1)));
    }

    const size_t wrong[WORLD] = {1, 1, 1};
    CHECK(regroup_all_gather_with(group, floats(row, rank + 1), floats(all, 6), wrong, NULL,
                                  NULL) == REGROUP_INVALID_ARGUMENT);
    CHECK(strstr(regroup_last_error(), "all_gather") != NULL);
}

/* The limit is that of one operation: the group's is long. It ends the group. */
static void let_a_limit_pass(regroup_group* group, uint32_t rank) {
    const regroup_operation_options options = {.struct_bytes = sizeof options, .timeout_ms = 100};
    float value = 0;
    const regroup_errc code =
        regroup_recv_with(group, floats(&value, 1), (rank + 1) % WORLD, 7, &options, NULL);
    CHECK(code == REGROUP_DEADLINE_EXCEEDED);
    CHECK(strstr(regroup_last_error(), "tag 7") != NULL);
}

static pthread_barrier_t all_there;

static void* run_rank(void* number) {
    const uint32_t rank = *(const uint32_t*)number;
    regroup_context* context = NULL;
    regroup_group* group = NULL;
    OK(regroup_context_create(rank, WORLD, "127.0.0.1", 0, &context));
    OK(regroup_context_use_store(context, store));
    OK(regroup_group_create(context, "cpu", NULL, PATIENCE_MS, REGROUP_ANY_DEVICE, &group));
    reduce_out_of_place(group, rank);
    use_uneven_rows(group, rank);
    OK(regroup_barrier_with(group, NULL, NULL));
    pthread_barrier_wait(&all_there);
    let_a_limit_pass(group, rank);
    pthread_barrier_wait(&all_there);
    regroup_group_free(group);
    regroup_context_free(context);
    return NULL;
}

static void check_record(const char* path) {
    char* json = NULL;
    size_t bytes = 0;
    OK(regroup_flight_record(&json, &bytes));
    CHECK(bytes == strlen(json) && json[0] == '{');
    CHECK(strstr(json, "reduce_scatter") != NULL);
    CHECK(regroup_flight_record(NULL, NULL) == REGROUP_INVALID_ARGUMENT);

    OK(regroup_save_flight_record(path));
    FILE* const file = fopen(path, "r");
    CHECK(file != NULL);
    CHECK(fgetc(file) == '{' && fseek(file, 0, SEEK_END) == 0 && ftell(file) == (long)bytes);
    fclose(file);
    CHECK(regroup_save_flight_record("/nowhere/record") == REGROUP_SYSTEM);
    CHECK(regroup_save_flight_record(NULL) == REGROUP_INVALID_ARGUMENT);
    regroup_free(json);
}

int main(int argc, char** argv) {
    uint32_t ranks[WORLD];
    pthread_t threads[WORLD];
    CHECK(argc == 2);
    CHECK(pthread_barrier_init(&all_there, NULL, WORLD) == 0);
    OK(regroup_store_local(PATIENCE_MS, &store));
    for (uint32_t rank = 0; rank < WORLD; ++rank) {
        ranks[rank] = rank;
        CHECK(pthread_create(&threads[rank], NULL, run_rank, &ranks[rank]) == 0);
    }
    for (uint32_t rank = 0; rank < WORLD; ++rank) {
        CHECK(pthread_join(threads[rank], NULL) == 0);
    }
    regroup_store_free(store);
    check_record(argv[1]);
    return 0;
}
