// SPDX-License-Identifier: Apache-2.0
// The same as train.cc, in C.
#include <regroup/c_api.h>
#include <regroup/c_api_training.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLES = 64, EPOCHS = 40 };

static void check(regroup_errc code) {
    if (code != REGROUP_OK) {
        fprintf(stderr, "train_c: %s: %s\n", regroup_errc_name(code), regroup_last_error());
        exit(1);
    }
}

static regroup_tensor floats(float* values, size_t count) {
    const regroup_tensor tensor = {values, count, REGROUP_FLOAT32, REGROUP_CPU, 0};
    return tensor;
}

/// The mean gradient of the squared error over the samples given.
static void differentiate(const float* line, const uint64_t* samples, size_t count,
                          float* gradient) {
    gradient[0] = gradient[1] = 0;
    for (size_t i = 0; i < count; ++i) {
        const float x = (float)samples[i] / 32 - 1;
        const float error = line[0] * x + line[1] - (3 * x - 1);
        gradient[0] += error * x / (float)count;
        gradient[1] += error / (float)count;
    }
}

int main(void) {
    regroup_context* context = NULL;
    regroup_context_info info;
    regroup_group* group = NULL;
    check(regroup_context_from_environment(&context));
    check(regroup_context_get(context, &info));
    check(regroup_group_create(context, "cpu", NULL, 0, REGROUP_ANY_DEVICE, &group));

    float line[2] = {(float)info.rank, 0};
    float gradient[2] = {0, 0};
    const regroup_parameter parameter = {floats(line, 2), floats(gradient, 2)};
    regroup_ddp* ddp = NULL;
    regroup_sampler* sampler = NULL;
    check(regroup_ddp_create(group, &parameter, 1, NULL, 0, NULL, &ddp));
    check(regroup_sampler_create(SAMPLES, info.rank, info.world_size, 1, 0, 0, &sampler));
    for (uint64_t epoch = 0; epoch < EPOCHS; ++epoch) {
        uint64_t samples[SAMPLES];
        size_t count = 0;
        check(regroup_sampler_set_epoch(sampler, epoch));
        check(regroup_sampler_indices(sampler, 0, samples, SAMPLES, &count));
        differentiate(line, samples, count, gradient);
        check(regroup_ddp_gradient_ready(ddp, 0));
        check(regroup_ddp_finish_step(ddp));
        line[0] -= gradient[0];
        line[1] -= gradient[1];
    }
    printf("C with regroup %s: rank %u of %u: y = %.2f x + %.2f\n", regroup_version(), info.rank,
           info.world_size, line[0], line[1]);
    regroup_sampler_free(sampler);
    regroup_ddp_free(ddp);
    regroup_group_free(group);
    regroup_context_free(context);
    return fabsf(line[0] - 3) < 0.01F && fabsf(line[1] + 1) < 0.01F ? 0 : 1;
}
