// SPDX-License-Identifier: Apache-2.0
/// @file
/// Data-parallel training for C: DistributedDataParallel, DistributedSampler and Checkpoint. The
/// rules of regroup/c_api.h apply.
#pragma once

#include <regroup/c_api.h>

#ifdef __cplusplus
extern "C" {
#endif

// DistributedDataParallel: replicas that start equal and get equal gradients.

typedef struct regroup_ddp regroup_ddp;

/// A trainable tensor and its gradient. If the gradient's `data` is NULL, the handle allocates the
/// gradient, which needs no copy (regroup_ddp_gradient). Its dtype is the value's if `count` is 0,
/// else the gradient's.
typedef struct regroup_parameter {
    regroup_tensor value;
    regroup_tensor gradient;
} regroup_parameter;

/// regroup::DataParallelOptions. Set `struct_bytes`, and everything else to zero for the default.
typedef struct regroup_ddp_options {
    size_t struct_bytes;                  ///< sizeof(regroup_ddp_options).
    size_t bucket_bytes;                  ///< The largest size of a bucket; 0 means 25 MiB.
    size_t first_bucket_bytes;            ///< Likewise, in the first bucket; 0 means 1 MiB.
    int32_t sum_gradients;                ///< 1: their sum over the ranks, not their mean.
    int32_t fixed_buckets;                ///< 1: the buckets keep their first plan.
    int32_t unused_parameters;            ///< 1: a step may have parameters without gradient.
    int32_t broadcast_buffers_each_step;  ///< 1: as by regroup_ddp_broadcast_buffers.
    /// REGROUP_FLOAT16 or REGROUP_BFLOAT16: gradients are sent and added in this dtype; 0:
    /// unchanged.
    regroup_dtype wire;
    void* stream;  ///< The cudaStream_t of the caller's kernels; on the CPU NULL.
} regroup_ddp_options;

/// Gives every rank the values and buffers of rank 0; blocks until all ranks have called it. The
/// arrays are copied. The tensors belong to the caller and must outlive the handle. `buffers` and
/// `options` may be NULL.
regroup_errc regroup_ddp_create(regroup_group* group, const regroup_parameter* parameters,
                                size_t parameter_count, const regroup_tensor* buffers,
                                size_t buffer_count, const regroup_ddp_options* options,
                                regroup_ddp** ddp);
/// The place of gradient `index`, and of its reduction. It stays there while the handle lives.
regroup_errc regroup_ddp_gradient(const regroup_ddp* ddp, size_t index, regroup_tensor* gradient);
/// Sets all gradients in the handle's memory to zero.
regroup_errc regroup_ddp_zero_gradients(regroup_ddp* ddp);
/// Reports that gradient `index` is final. Starts the reduction of its bucket if the bucket is
/// complete.
regroup_errc regroup_ddp_gradient_ready(regroup_ddp* ddp, size_t index);
/// Reports that parameter `index` gets no gradient in this step; only with `unused_parameters`.
regroup_errc regroup_ddp_gradient_unused(regroup_ddp* ddp, size_t index);
/// Waits for this step's buckets; then every gradient holds its reduction.
regroup_errc regroup_ddp_finish_step(regroup_ddp* ddp);
/// Reports every gradient, then does regroup_ddp_finish_step.
regroup_errc regroup_ddp_reduce_gradients(regroup_ddp* ddp);
/// `*used` becomes 1 if any rank had a gradient for `index` in the last step, else 0.
regroup_errc regroup_ddp_was_used(const regroup_ddp* ddp, size_t index, int32_t* used);
/// From begin to end, gradients accumulate on this rank alone. May be nested; every rank does the
/// same.
regroup_errc regroup_ddp_no_sync_begin(regroup_ddp* ddp);
regroup_errc regroup_ddp_no_sync_end(regroup_ddp* ddp);
/// Gives every rank the parameters and buffers of `root` again.
regroup_errc regroup_ddp_broadcast_parameters(regroup_ddp* ddp, uint32_t root);
/// Gives every rank the buffers of rank 0 again.
regroup_errc regroup_ddp_broadcast_buffers(regroup_ddp* ddp);
/// In the middle of a step it aborts the group.
void regroup_ddp_free(regroup_ddp* ddp);

// DistributedSampler: the samples of this rank in each epoch.

typedef struct regroup_sampler regroup_sampler;

/// `shuffle` and `drop_last` are 0 or 1.
regroup_errc regroup_sampler_create(uint64_t dataset_count, uint32_t rank, uint32_t world_size,
                                    int32_t shuffle, uint64_t seed, int32_t drop_last,
                                    regroup_sampler** sampler);
regroup_errc regroup_sampler_set_epoch(regroup_sampler* sampler, uint64_t epoch);
/// Samples per rank in a whole epoch.
regroup_errc regroup_sampler_count(const regroup_sampler* sampler, uint64_t* count);
/// Writes this rank's dataset indices from the position `global_start` of the epoch on, counted
/// over all ranks; 0 means the whole epoch. Writes at most `capacity` indices, and to `*count`
/// their number, which may be larger than `capacity`.
regroup_errc regroup_sampler_indices(const regroup_sampler* sampler, uint64_t global_start,
                                     uint64_t* indices, size_t capacity, size_t* count);
/// Writes this rank's dataset indices at the positions from `first` to before `last`, of one global
/// batch for instance; `capacity` and `*count` as above. Nothing is padded or dropped.
regroup_errc regroup_sampler_shard(const regroup_sampler* sampler, uint64_t first, uint64_t last,
                                   uint64_t* indices, size_t capacity, size_t* count);
void regroup_sampler_free(regroup_sampler* sampler);

// Checkpoint: named tensors, texts and numbers in a file that is written atomically.

typedef struct regroup_checkpoint regroup_checkpoint;

regroup_errc regroup_checkpoint_create(regroup_checkpoint** checkpoint);
/// Reads and verifies a file. `*checkpoint` is NULL, with REGROUP_OK, if there is none.
regroup_errc regroup_checkpoint_load(const char* path, regroup_checkpoint** checkpoint);
/// Replaces the file atomically, whenever this process is killed. Up to `previous_count` earlier
/// checkpoints stay beside it.
regroup_errc regroup_checkpoint_save(const regroup_checkpoint* checkpoint, const char* path,
                                     size_t previous_count);
/// The same for elastic training: a worker whose round is over cannot overwrite the checkpoint of a
/// later round. `round` is the one of regroup_context_info; 0, as without the launcher, disables
/// the check. It fails and changes nothing: REGROUP_FENCED if the round is over, or if a later
/// round of this training has saved `path`; REGROUP_DEADLINE_EXCEEDED if another process holds the
/// lock PATH.lock for 30 seconds. regroup::Checkpoint::save has the details.
regroup_errc regroup_checkpoint_save_fenced(const regroup_checkpoint* checkpoint, const char* path,
                                            size_t previous_count, uint64_t round);
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

/// `*present` becomes 1 if there is an entry with this name, else 0.
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
