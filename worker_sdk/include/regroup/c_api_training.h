// SPDX-License-Identifier: Apache-2.0
/// @file
/// Data-parallel training for C: DistributedDataParallel, DistributedSampler and Checkpoint, under
/// the rules of regroup/c_api.h.
#pragma once

#include <regroup/c_api.h>

#ifdef __cplusplus
extern "C" {
#endif

// DistributedDataParallel: replicas that start equal and get equal gradients.

typedef struct regroup_ddp regroup_ddp;

/// A trainable tensor and its gradient: same count and dtype.
typedef struct regroup_parameter {
    regroup_tensor value;
    regroup_tensor gradient;
} regroup_parameter;

/// Gives every rank the values and buffers of rank 0; blocks until all have come. The arrays are
/// copied, the tensors stay the caller's and must outlive the handle. `buffers` may be NULL.
/// `bucket_bytes` 0 means 25 MiB. `op` is REGROUP_AVG or REGROUP_SUM.
regroup_errc regroup_ddp_create(regroup_group* group, const regroup_parameter* parameters,
                                size_t parameter_count, const regroup_tensor* buffers,
                                size_t buffer_count, size_t bucket_bytes, regroup_reduce_op op,
                                regroup_ddp** ddp);
/// Gradient `index` is final: the reduction of its bucket starts once that is complete.
regroup_errc regroup_ddp_gradient_ready(regroup_ddp* ddp, size_t index);
/// Waits for this step's buckets, then replaces every gradient by its reduction.
regroup_errc regroup_ddp_finish_step(regroup_ddp* ddp);
/// Every gradient is ready, then regroup_ddp_finish_step.
regroup_errc regroup_ddp_reduce_gradients(regroup_ddp* ddp);
/// Gives every rank the buffers of rank 0 again.
regroup_errc regroup_ddp_broadcast_buffers(regroup_ddp* ddp);
/// In the middle of a step it gives the group up.
void regroup_ddp_free(regroup_ddp* ddp);

// DistributedSampler: which samples of each epoch are this rank's.

typedef struct regroup_sampler regroup_sampler;

/// `shuffle` and `drop_last` are 0 or 1.
regroup_errc regroup_sampler_create(uint64_t dataset_count, uint32_t rank, uint32_t world_size,
                                    int32_t shuffle, uint64_t seed, int32_t drop_last,
                                    regroup_sampler** sampler);
regroup_errc regroup_sampler_set_epoch(regroup_sampler* sampler, uint64_t epoch);
/// Samples per rank in a whole epoch.
regroup_errc regroup_sampler_count(const regroup_sampler* sampler, uint64_t* count);
/// This rank's dataset indices from the position `global_start` of the epoch on, counted over all
/// ranks; from 0, the whole epoch. Writes at most `capacity` of them, and to `*count` how many
/// there are, which may be more.
regroup_errc regroup_sampler_indices(const regroup_sampler* sampler, uint64_t global_start,
                                     uint64_t* indices, size_t capacity, size_t* count);
void regroup_sampler_free(regroup_sampler* sampler);

// Checkpoint: named tensors, texts and numbers in a file that is whole or not there.

typedef struct regroup_checkpoint regroup_checkpoint;

regroup_errc regroup_checkpoint_create(regroup_checkpoint** checkpoint);
/// Reads and verifies a file. `*checkpoint` is NULL, with REGROUP_OK, if there is none.
regroup_errc regroup_checkpoint_load(const char* path, regroup_checkpoint** checkpoint);
/// Replaces the file at once, whenever this process is killed. As many as `previous_count` earlier
/// ones stay beside it.
regroup_errc regroup_checkpoint_save(const regroup_checkpoint* checkpoint, const char* path,
                                     size_t previous_count);
void regroup_checkpoint_free(regroup_checkpoint* checkpoint);

regroup_errc regroup_checkpoint_set_text(regroup_checkpoint* checkpoint, const char* name,
                                         const void* text, size_t bytes);
regroup_errc regroup_checkpoint_set_integer(regroup_checkpoint* checkpoint, const char* name,
                                            int64_t value);
regroup_errc regroup_checkpoint_set_number(regroup_checkpoint* checkpoint, const char* name,
                                           double value);
/// Copies the tensor.
regroup_errc regroup_checkpoint_set_tensor(regroup_checkpoint* checkpoint, const char* name,
                                           regroup_tensor tensor);

/// `*present` becomes 1 if there is something of this name, else 0.
regroup_errc regroup_checkpoint_contains(const regroup_checkpoint* checkpoint, const char* name,
                                         int32_t* present);
/// `*text` is followed by a NUL that `*bytes` does not count, and is to be freed by regroup_free.
/// `bytes` may be NULL.
regroup_errc regroup_checkpoint_get_text(const regroup_checkpoint* checkpoint, const char* name,
                                         char** text, size_t* bytes);
regroup_errc regroup_checkpoint_get_integer(const regroup_checkpoint* checkpoint, const char* name,
                                            int64_t* value);
regroup_errc regroup_checkpoint_get_number(const regroup_checkpoint* checkpoint, const char* name,
                                           double* value);
/// Copies into `destination`, which must have the tensor's count and dtype.
regroup_errc regroup_checkpoint_get_tensor(const regroup_checkpoint* checkpoint, const char* name,
                                           regroup_tensor destination);

#ifdef __cplusplus
}
#endif
