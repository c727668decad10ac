/* SPDX-License-Identifier: Apache-2.0
 *
 * Elastic training in C, for elastic_c_test.cc: sums of samples that must not depend on losses.
 * The first argument chooses what happens besides:
 *
 *     quiet    nothing
 *     kill     rank 1 is killed in the middle of its first round, twice
 *     keep     the same, and the others do not free what they made from the group of the round
 *     leave    training goes on until the node leaves
 *     fatal    rank 0 gives up for good
 *     shard    rank 0 fails with a sentence of its own
 *
 * The second one is the file of the checkpoint.
 */
#include <regroup/c_api_elastic.h>
#include <regroup/c_api_training.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 24, STEPS = 120, WIDTH = 4, JOURNAL_MAX = 4096 };

static struct {
    const char *way;
    const char *path;
    float weights[WIDTH];
    float gradient[WIDTH];
    float seen;                /* Steps, counted before they are committed. */
    char journal[JOURNAL_MAX]; /* A letter for each committed step. */
    size_t journal_bytes;
    uint64_t step;
    regroup_ddp *ddp;
    regroup_sampler *sampler;
    uint64_t round;
} train;

static int is_way(const char *way) {
    return strcmp(train.way, way) == 0;
}

#define TRY(call)                     \
    do {                              \
        const regroup_errc try_ = (call); \
        if (try_ != REGROUP_OK) {     \
            return try_;              \
        }                             \
    } while (0)

static regroup_tensor floats(float *values) {
    const regroup_tensor tensor = {values, WIDTH, REGROUP_FLOAT32, REGROUP_CPU, 0};
    return tensor;
}

static regroup_errc save_journal(void *user, const void **data, size_t *bytes) {
    (void)user;
    *data = train.journal;
    *bytes = train.journal_bytes;
    return REGROUP_OK;
}

static regroup_errc load_journal(void *user, const void *data, size_t bytes) {
    (void)user;
    if (bytes > JOURNAL_MAX) {
        return regroup_fail(REGROUP_INVALID_ARGUMENT, "the journal is too long");
    }
    memcpy(train.journal, data, bytes);
    train.journal_bytes = bytes;
    return REGROUP_OK;
}

static regroup_errc on_round(void *user, const regroup_round_info *round) {
    (void)user;
    regroup_context_info info;
    TRY(regroup_context_get(round->context, &info));
    train.round = info.round;
    if (!is_way("keep")) {
        regroup_ddp_free(train.ddp);
    }
    regroup_sampler_free(train.sampler);
    train.ddp = NULL;
    train.sampler = NULL;
    const regroup_parameter parameter = {floats(train.weights), floats(train.gradient)};
    const regroup_ddp_options options = {.struct_bytes = sizeof options, .sum_gradients = 1};
    TRY(regroup_ddp_create(round->group, &parameter, 1, NULL, 0, &options, &train.ddp));
    TRY(regroup_sampler_create((uint64_t)BATCH * 100000, round->rank, round->world_size, 0, 0, 0,
                               &train.sampler));
    printf("round %llu of rank %u of %u from step %llu\n", (unsigned long long)info.round,
           round->rank, round->world_size, (unsigned long long)round->step);
    fflush(stdout);
    return REGROUP_OK;
}

static regroup_errc apply(void *user) {
    (void)user;
    for (int i = 0; i < WIDTH; ++i) {
        train.weights[i] = 0.75F * train.weights[i] + train.gradient[i];
    }
    if (train.journal_bytes < JOURNAL_MAX) {
        train.journal[train.journal_bytes++] = (char)('a' + train.step % 26);
    }
    return REGROUP_OK;
}

static regroup_errc save(uint64_t steps) {
    regroup_checkpoint *checkpoint = NULL;
    TRY(regroup_checkpoint_create(&checkpoint));
    regroup_errc code = regroup_checkpoint_set_integer(checkpoint, "step", (int64_t)steps);
    if (code == REGROUP_OK) {
        code = regroup_checkpoint_set_tensor(checkpoint, "weights", floats(train.weights));
    }
    if (code == REGROUP_OK) {
        code = regroup_checkpoint_save_fenced(checkpoint, train.path, 0, train.round);
    }
    regroup_checkpoint_free(checkpoint);
    return code;
}

static regroup_errc misbehave(const regroup_step_info *step) {
    if ((is_way("kill") || is_way("keep")) && step->rank == 1 && train.round <= 2 && step->number == 40 * train.round) {
        raise(SIGKILL);
    }
    if (is_way("fatal") && step->rank == 0 && step->number == 20) {
        return regroup_report_fatal(REGROUP_FATAL_USER_ERROR, "there is no such data set");
    }
    if (is_way("shard") && step->rank == 0 && step->number == 20) {
        return regroup_fail(REGROUP_INVALID_ARGUMENT, "no such shard");
    }
    return REGROUP_OK;
}

static regroup_errc on_step(void *user, regroup_step *step) {
    regroup_step_info now;
    uint64_t first = 0;
    uint64_t samples[BATCH];
    size_t count = 0;
    TRY(regroup_step_get(step, &now));
    train.step = now.number;
    if (now.number == STEPS && !is_way("leave")) {
        return regroup_step_finish(step);
    }
    TRY(misbehave(&now));
    TRY(regroup_step_take(step, BATCH, &first));
    TRY(regroup_step_section_begin(step, "samples"));
    TRY(regroup_sampler_shard(train.sampler, first, first + BATCH, samples, BATCH, &count));
    TRY(regroup_ddp_zero_gradients(train.ddp));
    for (int i = 0; i < WIDTH; ++i) {
        train.gradient[i] = 0;
    }
    for (size_t i = 0; i < count; ++i) {
        train.gradient[samples[i] % WIDTH] += (float)(samples[i] % 7);
    }
    train.seen += 1;
    TRY(regroup_step_section_end(step));
    TRY(regroup_ddp_reduce_gradients(train.ddp));
    TRY(regroup_step_commit(step, apply, user));
    if (now.rank == 0 && train.step % 50 == 49) {
        TRY(save(train.step + 1));
    }
    return REGROUP_OK;
}

static regroup_errc on_leave(void *user, const regroup_leave_info *leave) {
    (void)user;
    TRY(save(leave->step));
    printf("left at step %llu, with time: %d, %s\n", (unsigned long long)leave->step,
           leave->time_left_ms > 0, leave->reason);
    return REGROUP_OK;
}

static regroup_errc run(regroup_ending *ending) {
    regroup_elastic *loop = NULL;
    const regroup_elastic_options options = {.struct_bytes = sizeof options, .compare_every = 10};
    const regroup_elastic_callbacks callbacks = {.struct_bytes = sizeof callbacks,
                                                 .on_round = on_round,
                                                 .on_step = on_step,
                                                 .on_leave = on_leave};
    TRY(regroup_elastic_create(&options, &loop));
    TRY(regroup_elastic_register_tensor(loop, "weights", floats(train.weights)));
    const regroup_tensor seen = {&train.seen, 1, REGROUP_FLOAT32, REGROUP_CPU, 0};
    TRY(regroup_elastic_register_buffer(loop, "seen", seen));
    TRY(regroup_elastic_register_value(loop, "journal", save_journal, load_journal, NULL));
    TRY(regroup_elastic_run(loop, &callbacks, ending));
    regroup_elastic_free(loop); /* Before the objects of its group. */
    regroup_ddp_free(train.ddp);
    regroup_sampler_free(train.sampler);
    return REGROUP_OK;
}

int main(int argc, char **argv) {
    alarm(150);
    if (argc != 3) {
        return 2;
    }
    train.way = argv[1];
    train.path = argv[2];
    regroup_ending ending = -1;
    const regroup_errc code = run(&ending);
    if (code != REGROUP_OK) {
        fprintf(stderr, "elastic_c: %s: %s\n", regroup_errc_name(code), regroup_last_error());
        return 1;
    }
    if (ending == REGROUP_FINISHED) {
        printf("result %a %a %a %a after %zu, seen %.0f: %.*s\n", train.weights[0],
               train.weights[1], train.weights[2], train.weights[3], train.journal_bytes,
               train.seen, (int)train.journal_bytes, train.journal);
    }
    return 0;
}
