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

/// A trainable tensor and its gradient. A gradient whose `data` is NULL is memory of the handle's
/// own, without a copy (regroup_ddp_gradient), in the value's dtype if its `count` is 0, else in
/// the gradient's.
typedef struct regroup_parameter {
    regroup_tensor value;
    regroup_tensor gradient;
} regroup_parameter;

/// regroup::DataParallelOptions. Set `struct_bytes`, and everything else to zero for the default.
typedef struct regroup_ddp_options {
    size_t struct_bytes;                  ///< sizeof(regroup_ddp_options).
    size_t bucket_bytes;                  ///< At most so many travel together; 0 means 25 MiB.
    size_t first_bucket_bytes;            ///< Likewise, in the first bucket; 0 means 1 MiB.
    int32_t sum_gradients;                ///< 1: their sum over the ranks, not their mean.
    int32_t fixed_buckets;                ///< 1: gradients stay where they are at first.
    int32_t unused_parameters;            ///< 1: some may get no gradient in a step.
    int32_t broadcast_buffers_each_step;  ///< 1: as by regroup_ddp_broadcast_buffers.
    /// REGROUP_FLOAT16 or REGROUP_BFLOAT16: gradients travel and are added as such; 0: as they are.
    regroup_dtype wire;
    void* stream;  ///< The cudaStream_t of the caller's kernels; on the CPU NULL.
} regroup_ddp_options;

/// Gives every rank the values and buffers of rank 0; blocks until all have come. The arrays are
/// copied, the tensors stay the caller's and must outlive the handle. `buffers` and `options` may
/// be NULL.
regroup_errc regroup_ddp_create(regroup_group* group, const regroup_parameter* parameters,
                                size_t parameter_count, const regroup_tensor* buffers,
                                size_t buffer_count, const regroup_ddp_options* options,
                                regroup_ddp** ddp);
/// Where gradient `index` is to be written, and where its reduction is found. Without
/// `fixed_buckets` it moves once, in the first regroup_ddp_finish_step.
regroup_errc regroup_ddp_gradient(const regroup_ddp* ddp, size_t index, regroup_tensor* gradient);
/// Sets all gradients in the handle's memory to zero.
regroup_errc regroup_ddp_zero_gradients(regroup_ddp* ddp);
/// Gradient `index` is final: the reduction of its bucket starts once that is complete.
regroup_errc regroup_ddp_gradient_ready(regroup_ddp* ddp, size_t index);
/// Parameter `index` gets no gradient in this step; only with `unused_parameters`.
regroup_errc regroup_ddp_gradient_unused(regroup_ddp* ddp, size_t index);
/// Waits for this step's buckets, after which every gradient is its reduction.
regroup_errc regroup_ddp_finish_step(regroup_ddp* ddp);
/// Every gradient is ready, then regroup_ddp_finish_step.
regroup_errc regroup_ddp_reduce_gradients(regroup_ddp* ddp);
/// `*used` becomes 1 if some rank had a gradient for `index` in the last step, else 0.
regroup_errc regroup_ddp_was_used(const regroup_ddp* ddp, size_t index, int32_t* used);
/// From begin to end, gradients add up on this rank alone. May be nested; every rank does the same.
regroup_errc regroup_ddp_no_sync_begin(regroup_ddp* ddp);
regroup_errc regroup_ddp_no_sync_end(regroup_ddp* ddp);
/// Gives every rank the parameters and buffers of `root` again.
regroup_errc regroup_ddp_broadcast_parameters(regroup_ddp* ddp, uint32_t root);
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
