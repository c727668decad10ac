// SPDX-License-Identifier: Apache-2.0
/// @file
/// The SDK for C, and for every language that can call C: who this process is, the store, and
/// groups of ranks. C99 or C++. regroup/c_api_training.h has the rest.
///
/// Link libregroup.so (CMake `regroup::c_api`, pkg-config `regroup-c`), or the static library of
/// C++. What an operation does is said in the C++ headers, in context.h, store.h and
/// process_group.h; this interface adds nothing but the following rules.
///
/// **Errors.** Functions return REGROUP_OK or what a caller can do about the failure;
/// regroup_last_error() has the sentence for a person. Nothing is thrown or printed. A required
/// pointer that is NULL is REGROUP_INVALID_ARGUMENT. Where a call fails, handles and memory that it
/// would have given are NULL.
///
/// **Handles** are the caller's, each to be freed once, by the function of its own name; NULL may
/// be freed. They may be freed in any order: what needs another one keeps it. Strings given are
/// copied; buffers of operations are used in place, and must stay until the operation is complete.
///
/// **Threads.** One thread at a time uses a handle, with these exceptions: any thread may use a
/// store, wait for or test a work, and abort a group, while others do too.
#pragma once

#include <regroup/version.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// What a caller can sensibly do about a failure. The values are stable.
typedef int32_t regroup_errc;
enum {
    REGROUP_OK = 0,
    REGROUP_INVALID_ARGUMENT = 1,   ///< The request is wrong; repeating it can never succeed.
    REGROUP_DEADLINE_EXCEEDED = 2,  ///< No answer in time. It may or may not have happened.
    REGROUP_DISCONNECTED = 3,       ///< The peer or the connection is gone. Leave the round.
    REGROUP_OVERLOADED = 4,         ///< The peer cannot serve now. Retry after a back-off.
    REGROUP_FENCED = 5,             ///< The round is over. Join the next one.
    REGROUP_CLOSED = 6,             ///< The job has ended. There is no next round.
    REGROUP_SYSTEM = 7              ///< The operating system refused, or memory ran out.
};

/// The release of the library that is running, as REGROUP_VERSION.
const char* regroup_version(void);
/// "ok", "invalid_argument", ...; "unknown" for a number that is none.
const char* regroup_errc_name(regroup_errc code);
/// What the last failure on this thread was; empty before the first. It stays until the next
/// failure on this thread, and is cut off after 2,047 bytes.
const char* regroup_last_error(void);
/// Frees memory that a function handed out with the words "to be freed by regroup_free".
void regroup_free(void* memory);

// Who this process is.

/// The place of this process in its job; regroup::Context.
typedef struct regroup_context regroup_context;

typedef struct regroup_context_info {
    const char* job;          ///< As long as the context is used for nothing but reading.
    const char* master_addr;  ///< Likewise; empty in a world of one.
    uint32_t rank;
    uint32_t world_size;
    uint32_t local_rank;
    uint32_t local_world_size;
    uint32_t group_rank;
    uint32_t group_world_size;
    uint32_t restart_count;
    uint32_t max_restarts;
    uint64_t round;
    uint16_t master_port;
} regroup_context_info;

/// From what a launcher left in the environment; without it, a world of one.
regroup_errc regroup_context_from_environment(regroup_context** context);
/// From values. Rank 0 serves the store at this address, unless regroup_context_use_store follows.
regroup_errc regroup_context_create(uint32_t rank, uint32_t world_size, const char* master_addr,
                                    uint16_t master_port, regroup_context** context);
/// The GPU of this process, as CUDA numbers them in it; regroup::cuda::device_of.
regroup_errc regroup_context_cuda_device(const regroup_context* context, int32_t* device);
regroup_errc regroup_context_get(const regroup_context* context, regroup_context_info* info);
void regroup_context_free(regroup_context* context);

// The key-value store of a round. Keys are texts; values are bytes.

typedef struct regroup_store regroup_store;

/// The context's store, connected by the first call.
regroup_errc regroup_context_store(const regroup_context* context, regroup_store** store);
/// Makes `store` the one through which groups of this context find each other.
regroup_errc regroup_context_use_store(regroup_context* context, const regroup_store* store);
/// A server's, at `host`. `timeout_ms` is for connecting and for later waits; 0 means 5 minutes.
regroup_errc regroup_store_connect(const char* host, uint16_t port, int64_t timeout_ms,
                                   regroup_store** store);
/// One inside this process, for ranks that are threads.
regroup_errc regroup_store_local(int64_t timeout_ms, regroup_store** store);
void regroup_store_free(regroup_store* store);

regroup_errc regroup_store_set(regroup_store* store, const char* key, const void* value,
                               size_t bytes);
/// Waits for the key. `*value` is followed by a NUL that `*bytes` does not count, and is to be
/// freed by regroup_free. `bytes` may be NULL.
regroup_errc regroup_store_get(regroup_store* store, const char* key, char** value, size_t* bytes);
/// Adds to a decimal number, absent meaning 0. `sum` may be NULL.
regroup_errc regroup_store_add(regroup_store* store, const char* key, int64_t amount, int64_t* sum);
/// `*present` becomes 1 if all keys exist now, else 0.
regroup_errc regroup_store_check(regroup_store* store, const char* const* keys, size_t count,
                                 int32_t* present);
/// Waits until all keys exist; 0 means as long as the store's own timeout.
regroup_errc regroup_store_wait(regroup_store* store, const char* const* keys, size_t count,
                                int64_t timeout_ms);
/// Stores `desired` if the value is `expected`, "" meaning absent. `*value` is the value
/// afterwards, as in regroup_store_get.
regroup_errc regroup_store_compare_set(regroup_store* store, const char* key, const char* expected,
                                       const char* desired, char** value, size_t* bytes);
/// `existed` may be NULL.
regroup_errc regroup_store_delete(regroup_store* store, const char* key, int32_t* existed);

// Buffers.

/// What an element is. The values are stable.
typedef int32_t regroup_dtype;
enum {
    REGROUP_FLOAT32 = 0,
    REGROUP_FLOAT64 = 1,
    REGROUP_INT32 = 2,
    REGROUP_INT64 = 3,
    REGROUP_UINT8 = 4,
    REGROUP_INT8 = 5,
    REGROUP_UINT32 = 6,
    REGROUP_UINT64 = 7,
    REGROUP_FLOAT16 = 8,
    REGROUP_BFLOAT16 = 9,
    REGROUP_FLOAT8_E4M3FN = 10,
    REGROUP_FLOAT8_E5M2 = 11
};

/// Where memory lies. The values are stable.
typedef int32_t regroup_device_kind;
enum { REGROUP_CPU = 0, REGROUP_CUDA = 1 };

/// A contiguous buffer of the caller's: `count` elements, not bytes. Where a function takes one for
/// input, it is only read. A device left out means the CPU.
typedef struct regroup_tensor {
    void* data;
    size_t count;
    regroup_dtype dtype;
    regroup_device_kind device_kind;
    int32_t device_index;  ///< CUDA's ordinal in this process; 0 for the CPU.
} regroup_tensor;

// Groups of ranks.

/// The values are stable.
typedef int32_t regroup_reduce_op;
enum { REGROUP_SUM = 0, REGROUP_PRODUCT = 1, REGROUP_MIN = 2, REGROUP_MAX = 3, REGROUP_AVG = 4 };

/// The rank in a group that this process is not in.
#define REGROUP_NOT_A_MEMBER UINT32_MAX
/// Lets the group choose the GPU.
#define REGROUP_ANY_DEVICE (-1)

typedef struct regroup_group regroup_group;
/// One operation in flight; freeing it cancels nothing.
typedef struct regroup_work regroup_work;
/// Memory that a group made.
typedef struct regroup_memory regroup_memory;
/// Operations that are started together.
typedef struct regroup_batch regroup_batch;

typedef struct regroup_group_info {
    const char* backend;  ///< As long as the group.
    uint32_t rank;
    uint32_t world_size;
    regroup_device_kind device_kind;  ///< Where buffers must lie.
    int32_t device_index;
} regroup_group_info;

/// Blocks until every rank has come. `backend` is "cpu" or "nccl". `name`, which may be NULL for
/// "default", keeps apart groups that are formed at the same time. `timeout_ms` limits forming and
/// each operation; 0 means 30 minutes. `device` is the GPU of "nccl", or REGROUP_ANY_DEVICE.
regroup_errc regroup_group_create(const regroup_context* context, const char* backend,
                                  const char* name, int64_t timeout_ms, int32_t device,
                                  regroup_group** group);
/// The group of some of `parent`'s ranks, called by all of them. Ranks that are not in it get one
/// that refuses every operation. `name` may be NULL.
regroup_errc regroup_group_new_group(regroup_group* parent, const uint32_t* ranks, size_t count,
                                     const char* name, regroup_group** group);
regroup_errc regroup_group_get(const regroup_group* group, regroup_group_info* info);
/// Gives the group up: blocked and future operations end as REGROUP_FENCED. `reason` may be NULL.
regroup_errc regroup_group_abort(regroup_group* group, const char* reason);
/// "nccl": later operations go into this cudaStream_t.
regroup_errc regroup_group_use_stream(regroup_group* group, void* stream);
/// Leaves the group: in order, if nothing is in flight.
void regroup_group_free(regroup_group* group);

/// Memory that operations of the group reach fastest, zeroed; called by every rank. It may outlive
/// the group.
regroup_errc regroup_group_allocate(regroup_group* group, size_t bytes, regroup_memory** memory,
                                    void** data);
void regroup_memory_free(regroup_memory* memory);

// Operations. With `work` they are only started, and `*work` is to be waited for and freed; with
// NULL they are complete when the function returns.

regroup_errc regroup_all_reduce(regroup_group* group, regroup_tensor buffer, regroup_reduce_op op,
                                regroup_work** work);
regroup_errc regroup_reduce(regroup_group* group, regroup_tensor buffer, regroup_reduce_op op,
                            uint32_t root, regroup_work** work);
/// `input` = [world_size, output.count].
regroup_errc regroup_reduce_scatter(regroup_group* group, regroup_tensor input,
                                    regroup_tensor output, regroup_reduce_op op,
                                    regroup_work** work);
regroup_errc regroup_broadcast(regroup_group* group, regroup_tensor buffer, uint32_t root,
                               regroup_work** work);
/// `output` = [world_size, input.count].
regroup_errc regroup_all_gather(regroup_group* group, regroup_tensor input, regroup_tensor output,
                                regroup_work** work);
/// `output` = [world_size, input.count] on `root`; elsewhere it is not looked at.
regroup_errc regroup_gather(regroup_group* group, regroup_tensor input, regroup_tensor output,
                            uint32_t root, regroup_work** work);
/// `input` = [world_size, output.count] on `root`; elsewhere it is not looked at.
regroup_errc regroup_scatter(regroup_group* group, regroup_tensor input, regroup_tensor output,
                             uint32_t root, regroup_work** work);
/// Both [world_size, n].
regroup_errc regroup_all_to_all(regroup_group* group, regroup_tensor input, regroup_tensor output,
                                regroup_work** work);
regroup_errc regroup_barrier(regroup_group* group, regroup_work** work);
regroup_errc regroup_send(regroup_group* group, regroup_tensor buffer, uint32_t peer, uint32_t tag,
                          regroup_work** work);
regroup_errc regroup_recv(regroup_group* group, regroup_tensor buffer, uint32_t peer, uint32_t tag,
                          regroup_work** work);

/// Blocks until the operation is complete, and returns how it ended. Any number of times.
regroup_errc regroup_work_wait(const regroup_work* work);
/// `*done` becomes 1 once regroup_work_wait would return at once, else 0.
regroup_errc regroup_work_test(const regroup_work* work, int32_t* done);
void regroup_work_free(regroup_work* work);

/// Until regroup_batch_start, operations of `group` are collected; none may be waited for before,
/// so they are issued with `work`.
regroup_errc regroup_batch_begin(regroup_group* group, regroup_batch** batch);
regroup_errc regroup_batch_start(regroup_batch* batch);
/// Gives the group up if the batch was never started.
void regroup_batch_free(regroup_batch* batch);

#ifdef __cplusplus
}
#endif
