// SPDX-License-Identifier: Apache-2.0
/// @file
/// The state of a training, kept beside the workers, for C. regroup/snapshot.h describes it; the
/// rules of regroup/c_api.h apply.
#pragma once

#include <regroup/c_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/// regroup::Snapshot. One thread at a time.
typedef struct regroup_snapshot regroup_snapshot;

/// regroup::SnapshotOptions. Set `struct_bytes`, and everything else to zero for the default.
typedef struct regroup_snapshot_options {
    size_t struct_bytes;  ///< sizeof(regroup_snapshot_options).
    const char* name;     ///< NULL means "state".
    int32_t replicated;
    const char* folder;  ///< NULL means REGROUP_SNAPSHOT_DIR, or none.
    uint32_t threads;
} regroup_snapshot_options;

/// A tensor, or a piece of one: `rank` dimensions. `dtype` is a name of safetensors: "F32", "BF16",
/// "BOOL". `offset` and `global_shape` may be NULL for a whole tensor.
typedef struct regroup_snapshot_tensor {
    size_t struct_bytes;  ///< sizeof(regroup_snapshot_tensor).
    const char* name;
    const char* dtype;
    void* data;  ///< Contiguous.
    int32_t device_kind;
    int32_t device_index;
    size_t dimensions;
    const uint64_t* shape;
    const uint64_t* offset;
    const uint64_t* global_shape;
} regroup_snapshot_tensor;

regroup_errc regroup_snapshot_create(const regroup_context* context,
                                     const regroup_snapshot_options* options,
                                     regroup_snapshot** snapshot);
void regroup_snapshot_free(regroup_snapshot* snapshot);

regroup_errc regroup_snapshot_add(regroup_snapshot* snapshot,
                                  const regroup_snapshot_tensor* tensor);
/// A state that is no tensor: `data` is copied now, and saved with the next step.
regroup_errc regroup_snapshot_set_bytes(regroup_snapshot* snapshot, const char* name,
                                        const void* data, size_t bytes);
regroup_errc regroup_snapshot_clear(regroup_snapshot* snapshot);

/// `found`: 0 if there is no whole step.
regroup_errc regroup_snapshot_load(regroup_snapshot* snapshot, int32_t* found, uint64_t* step);
/// The bytes of a state that is no tensor, after regroup_snapshot_load or _open has found a step.
/// Valid until the next call of _load, _open, _save or _free. REGROUP_INVALID_ARGUMENT: there is
/// none.
regroup_errc regroup_snapshot_get_bytes(regroup_snapshot* snapshot, const char* name,
                                        const void** data, size_t* bytes);
/// `kept`: 0 if the step was not kept; see regroup::Snapshot::save.
regroup_errc regroup_snapshot_save(regroup_snapshot* snapshot, uint64_t step, int32_t* kept);
/// `known`: 0 if no step is known to be whole.
regroup_errc regroup_snapshot_whole_step(const regroup_snapshot* snapshot, int32_t* known,
                                         uint64_t* step);
/// The newest step of which each part is on two nodes, too. `known`: 0 if no such step is known.
regroup_errc regroup_snapshot_kept_step(const regroup_snapshot* snapshot, int32_t* known,
                                        uint64_t* step);
/// `timeout_ms`: 0 only looks. `whole`: 0 if it takes longer.
regroup_errc regroup_snapshot_wait_until_whole(const regroup_snapshot* snapshot, int64_t timeout_ms,
                                               int32_t* whole);

/// The same until it is kept, as regroup_snapshot_kept_step says. `kept`: 0 if that takes longer,
/// or no copy is made.
regroup_errc regroup_snapshot_wait_until_kept(const regroup_snapshot* snapshot, int64_t timeout_ms,
                                              int32_t* kept);

/// regroup_snapshot_load in two parts, for a program that learns from the snapshot what to read.
/// Chooses the newest whole step, for all ranks together.
regroup_errc regroup_snapshot_open(regroup_snapshot* snapshot, int32_t* found, uint64_t* step);
/// Reads the box that `tensor` describes out of the step that was opened, wherever its pieces are.
/// Only on this rank. REGROUP_INVALID_ARGUMENT: some of it was not saved.
regroup_errc regroup_snapshot_read(regroup_snapshot* snapshot,
                                   const regroup_snapshot_tensor* tensor);

#ifdef __cplusplus
}
#endif
