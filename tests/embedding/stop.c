/* SPDX-License-Identifier: Apache-2.0
 *
 * A plain loop in C that asks in each step whether to stop, for stop_c_test.cc. With the argument
 * "own" it makes its context itself.
 */
#include <regroup/c_api.h>

#include <stdio.h>
#include <string.h>

static int fail(const char *call) {
    fprintf(stderr, "stop_c: %s: %s\n", call, regroup_last_error());
    return 1;
}

int main(int count, char **arguments) {
    regroup_context *context = NULL;
    regroup_context_info info;
    regroup_group *group = NULL;
    const int own = count > 1 && strcmp(arguments[1], "own") == 0;
    if (regroup_context_from_environment(&context) != REGROUP_OK ||
        regroup_context_get(context, &info) != REGROUP_OK ||
        regroup_group_create(context, "cpu", NULL, 0, REGROUP_ANY_DEVICE, &group) != REGROUP_OK) {
        return fail("begin");
    }
    for (uint64_t step = 0;; ++step) {
        int32_t requested = 0;
        float value = 1;
        const regroup_tensor tensor = {&value, 1, REGROUP_FLOAT32, REGROUP_CPU, 0};
        if (regroup_stop_requested(own ? context : NULL, step, &requested) != REGROUP_OK) {
            return fail("stop_requested");
        }
        if (requested) {
            printf("rank %u stops at step %llu\n", info.rank, (unsigned long long)step);
            break;
        }
        if (regroup_all_reduce(group, tensor, REGROUP_SUM, NULL) != REGROUP_OK) {
            return fail("all_reduce");
        }
        if (step == 2) {
            printf("rank %u trains\n", info.rank);
            fflush(stdout);
        }
    }
    regroup_group_free(group);
    regroup_context_free(context);
    return 0;
}
