// SPDX-License-Identifier: Apache-2.0
/// @file
/// The SDK for C, and for every language that can call C: the context of this process, the store,
/// and groups of ranks. C99 or C++. regroup/c_api_training.h and regroup/c_api_elastic.h have the
/// rest.
///
/// Link libregroup.so (CMake `regroup::c_api`, pkg-config `regroup-c`), or the static library of
/// C++. The C++ headers context.h, store.h and process_group.h describe the operations; this
/// interface adds the following rules.
///
/// **Errors.** Functions return REGROUP_OK or the code of the failure; regroup_last_error() returns
/// a sentence for people. Functions throw and print nothing. A required pointer that is NULL is
/// REGROUP_INVALID_ARGUMENT. If a call fails, it sets the handles and memory that it returns to
/// NULL.
///
/// **Handles** belong to the caller, who frees each one once, by the function with its name; NULL
/// may be freed. They may be freed in any order: a handle keeps the objects that it needs. Strings
/// are copied; buffers of operations are used in place, and must stay until the operation is
/// complete.
///
/// **Threads.** One thread at a time uses a handle, with these exceptions: any number of threads
/// may use a store, wait for or test a work, and abort a group at the same time.
#pragma once

#include <regroup/version.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The codes of failures. The values are stable.
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
/// "ok", "invalid_argument" and so on; "unknown" for a number that is no code.
const char* regroup_errc_name(regroup_errc code);
/// The text of the last failure on this thread; empty before the first. Valid until the next
/// failure on this thread; cut off after 2,047 bytes.
const char* regroup_last_error(void);
/// Records a failure of the program's own for regroup_last_error, and returns `code`, so that a
/// callback can end with it. `text` may be NULL. If `code` is none of the failures above, it
/// records and returns REGROUP_INVALID_ARGUMENT.
regroup_errc regroup_fail(regroup_errc code, const char* text);
/// Frees memory that a function returned "to be freed by regroup_free".
void regroup_free(void* memory);

/// The kind of a failure, which the launcher cannot see by itself. The values are stable.
typedef int32_t regroup_fatal_kind;
enum {
    REGROUP_FATAL_USER_ERROR = 0,  ///< A restart cannot help. Ends the job.
    REGROUP_FATAL_RETRY = 1,       ///< Not the program's fault. Costs no restart.
    REGROUP_FATAL_BAD_NODE = 2     ///< The node is faulty: another one replaces it.
};
/// Ends this process at once and tells the launcher the kind and the sentence `text`, which may be
/// NULL; regroup::report_fatal. Any thread. It returns only if it refuses `kind`, as
/// REGROUP_INVALID_ARGUMENT.
regroup_errc regroup_report_fatal(regroup_fatal_kind kind, const char* text);

/// For a child process of a rank: ignores the signal unless the parent sends it or has ended;
/// regroup::obey_only_parent.
regroup_errc regroup_obey_only_parent(int32_t signal);

// The context of this process.

/// The place of this process in its job; regroup::Context.
typedef struct regroup_context regroup_context;

typedef struct regroup_context_info {
    const char* job;          ///< Valid until the context is changed or freed.
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

/// Reads the environment that a launcher set; without it, a world of one.
regroup_errc regroup_context_from_environment(regroup_context** context);
/// Takes the values from the arguments. Rank 0 serves the store at this address, unless
/// regroup_context_use_store is called.
regroup_errc regroup_context_create(uint32_t rank, uint32_t world_size, const char* master_addr,
                                    uint16_t master_port, regroup_context** context);
/// The context of some of `parent`'s ranks, as if they were the world; the i-th of `ranks` becomes
/// rank i. This rank is among them. Only they form groups of it. Groups formed from it end with
/// the round of `parent`, as long as the handle lives.
regroup_errc regroup_context_of_ranks(const regroup_context* parent, const uint32_t* ranks,
                                      size_t count, regroup_context** context);
/// The GPU of this process, as CUDA numbers them in it; regroup::cuda::device_of.
regroup_errc regroup_context_cuda_device(const regroup_context* context, int32_t* device);
regroup_errc regroup_context_get(const regroup_context* context, regroup_context_info* info);
/// Waits at most `timeout_ms` until everything made from `context` has been ended, as it is when
/// the round is over. `*over` becomes 1 then, else 0. 0 waits for nothing. Any thread; `context`
/// may be freed meanwhile.
regroup_errc regroup_context_await_end(const regroup_context* context, int64_t timeout_ms,
                                       int32_t* over);
void regroup_context_free(regroup_context* context);

/// `*requested` becomes 1 if all ranks stop before `step`, which is the same step on all of them,
/// else 0; regroup::stop_requested. `context`: NULL for that of the environment; that of the first
/// call of the process counts.
regroup_errc regroup_stop_requested(const regroup_context* context, uint64_t step,
                                    int32_t* requested);

// The key-value store of a round. Keys are texts; values are bytes.

typedef struct regroup_store regroup_store;

/// The context's store, connected by the first call.
regroup_errc regroup_context_store(const regroup_context* context, regroup_store** store);
/// Sets the store through which groups of this context are formed.
regroup_errc regroup_context_use_store(regroup_context* context, const regroup_store* store);
/// Connects to the server at `host`. `timeout_ms` is for connecting and for later waits; 0 means 5
/// minutes.
regroup_errc regroup_store_connect(const char* host, uint16_t port, int64_t timeout_ms,
                                   regroup_store** store);
/// Creates a store inside this process, for ranks that are threads.
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
/// Waits until all keys exist; 0 means the store's own timeout.
regroup_errc regroup_store_wait(regroup_store* store, const char* const* keys, size_t count,
                                int64_t timeout_ms);
/// Stores `desired` if the value is `expected`, "" meaning absent. `*value` is the value
/// afterwards, as in regroup_store_get.
regroup_errc regroup_store_compare_set(regroup_store* store, const char* key, const char* expected,
                                       const char* desired, char** value, size_t* bytes);
/// `existed` may be NULL.
regroup_errc regroup_store_delete(regroup_store* store, const char* key, int32_t* existed);

// Buffers.

/// The type of an element. The values are stable.
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

/// A contiguous buffer that belongs to the caller: `count` elements, not bytes. Functions only read
/// their inputs. A device left out means the CPU.
typedef struct regroup_tensor {
    void* data;
    size_t count;
    regroup_dtype dtype;
    regroup_device_kind device_kind;
    int32_t device_index;  ///< CUDA's ordinal in this process; 0 for the CPU.
} regroup_tensor;

// Groups of ranks.

/// The values are stable. The last three are for integers, on "cpu" only.
typedef int32_t regroup_reduce_op;
enum {
    REGROUP_SUM = 0,
    REGROUP_PRODUCT = 1,
    REGROUP_MIN = 2,
    REGROUP_MAX = 3,
    REGROUP_AVG = 4,
    REGROUP_BIT_AND = 5,
    REGROUP_BIT_OR = 6,
    REGROUP_BIT_XOR = 7
};

/// The rank of a process that is not a member of the group.
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
    const char* backend;  ///< Valid until the group is freed.
    uint32_t rank;
    uint32_t world_size;
    regroup_device_kind device_kind;  ///< Where buffers must lie.
    int32_t device_index;
} regroup_group_info;

/// Forms the group of all ranks; blocks until every rank has called it. `backend` is "cpu" or
/// "nccl". Groups that are formed at the same time need different names; NULL means "default".
/// `timeout_ms` limits forming and each operation; 0 means 30 minutes. `device` is the GPU of
/// "nccl", or REGROUP_ANY_DEVICE.
regroup_errc regroup_group_create(const regroup_context* context, const char* backend,
                                  const char* name, int64_t timeout_ms, int32_t device,
                                  regroup_group** group);
/// Forms the group of some of `parent`'s ranks; called by all ranks of `parent`. A rank that is not
/// in the new group gets a group that refuses every operation. `name` may be NULL.
regroup_errc regroup_group_new_group(regroup_group* parent, const uint32_t* ranks, size_t count,
                                     const char* name, regroup_group** group);
regroup_errc regroup_group_get(const regroup_group* group, regroup_group_info* info);
/// Aborts the group: blocked and future operations end as REGROUP_FENCED. `reason` may be NULL.
regroup_errc regroup_group_abort(regroup_group* group, const char* reason);
/// "nccl": puts later operations into this cudaStream_t.
regroup_errc regroup_group_use_stream(regroup_group* group, void* stream);
/// Leaves the group, in order if no operation is in flight.
void regroup_group_free(regroup_group* group);

/// Allocates zeroed memory that operations of the group access fastest; called by every rank. It
/// may outlive the group.
regroup_errc regroup_group_allocate(regroup_group* group, size_t bytes, regroup_memory** memory,
                                    void** data);
void regroup_memory_free(regroup_memory* memory);

// Operations. With `work`, the function only starts the operation; the caller waits for `*work` and
// frees it. With NULL, the operation is complete when the function returns.

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
/// `output` = [world_size, input.count] on `root`; ignored on other ranks.
regroup_errc regroup_gather(regroup_group* group, regroup_tensor input, regroup_tensor output,
                            uint32_t root, regroup_work** work);
/// `input` = [world_size, output.count] on `root`; ignored on other ranks.
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

// The same operations in their general form: with options, with rows of different lengths, and with
// separate outputs. `options` may be NULL, and counts may be NULL where the rows are equally long.
// The counts are copied; a group of n ranks needs n of them.

/// Options of one operation in place of its group's; regroup::OperationOptions. Set `struct_bytes`,
/// and everything else to zero for the default.
typedef struct regroup_operation_options {
    size_t struct_bytes;  ///< sizeof(regroup_operation_options).
    int64_t timeout_ms;   ///< The limit of this operation on this rank; 0: the group's.
    int32_t has_stream;   ///< 1: the operation goes into `stream` ("nccl").
    void* stream;         ///< A cudaStream_t; NULL is CUDA's default stream.
} regroup_operation_options;

/// `output` is `input`, or does not overlap it.
regroup_errc regroup_all_reduce_with(regroup_group* group, regroup_tensor input,
                                     regroup_tensor output, regroup_reduce_op op,
                                     const regroup_operation_options* options, regroup_work** work);
/// The same; the `output` of other ranks than `root` is ignored.
regroup_errc regroup_reduce_with(regroup_group* group, regroup_tensor input, regroup_tensor output,
                                 regroup_reduce_op op, uint32_t root,
                                 const regroup_operation_options* options, regroup_work** work);
/// Row i of `input` has `counts[i]` elements. All ranks give the same counts.
regroup_errc regroup_reduce_scatter_with(regroup_group* group, regroup_tensor input,
                                         regroup_tensor output, regroup_reduce_op op,
                                         const size_t* counts,
                                         const regroup_operation_options* options,
                                         regroup_work** work);
regroup_errc regroup_broadcast_with(regroup_group* group, regroup_tensor buffer, uint32_t root,
                                    const regroup_operation_options* options, regroup_work** work);
/// Row i of `output` has `counts[i]` elements. All ranks give the same counts.
regroup_errc regroup_all_gather_with(regroup_group* group, regroup_tensor input,
                                     regroup_tensor output, const size_t* counts,
                                     const regroup_operation_options* options, regroup_work** work);
regroup_errc regroup_gather_with(regroup_group* group, regroup_tensor input, regroup_tensor output,
                                 uint32_t root, const regroup_operation_options* options,
                                 regroup_work** work);
regroup_errc regroup_scatter_with(regroup_group* group, regroup_tensor input, regroup_tensor output,
                                  uint32_t root, const regroup_operation_options* options,
                                  regroup_work** work);
/// Row i of `input` has `input_counts[i]` elements, row i of `output` `output_counts[i]`: what rank
/// i gives as its input count for this rank. Both are NULL, or neither.
regroup_errc regroup_all_to_all_with(regroup_group* group, regroup_tensor input,
                                     regroup_tensor output, const size_t* input_counts,
                                     const size_t* output_counts,
                                     const regroup_operation_options* options, regroup_work** work);
regroup_errc regroup_barrier_with(regroup_group* group, const regroup_operation_options* options,
                                  regroup_work** work);
regroup_errc regroup_send_with(regroup_group* group, regroup_tensor buffer, uint32_t peer,
                               uint32_t tag, const regroup_operation_options* options,
                               regroup_work** work);
regroup_errc regroup_recv_with(regroup_group* group, regroup_tensor buffer, uint32_t peer,
                               uint32_t tag, const regroup_operation_options* options,
                               regroup_work** work);

/// Blocks until the operation is complete, and returns its result. Any number of times.
regroup_errc regroup_work_wait(const regroup_work* work);
/// `*done` becomes 1 once regroup_work_wait would return at once, else 0.
regroup_errc regroup_work_test(const regroup_work* work, int32_t* done);
void regroup_work_free(regroup_work* work);

/// Collects operations of `group` until regroup_batch_start. Do not wait for them before that, so
/// issue them with `work`.
regroup_errc regroup_batch_begin(regroup_group* group, regroup_batch** batch);
regroup_errc regroup_batch_start(regroup_batch* batch);
/// Aborts the group if the batch was not started.
void regroup_batch_free(regroup_batch* batch);

/// The last operations of this process's groups, as JSON; regroup::flight_record. `*json` is
/// followed by a NUL that `*bytes` does not count, and is to be freed by regroup_free. `bytes` may
/// be NULL. Any thread; does not wait for any operation.
regroup_errc regroup_flight_record(char** json, size_t* bytes);
/// Writes the same to the file `path`, which is never incomplete.
regroup_errc regroup_save_flight_record(const char* path);

// Groups of other libraries.

/// Tells the agent of this process which collectives a group is in that this library did not make;
/// regroup::WatchedGroup.
typedef struct regroup_watched_group regroup_watched_group;

/// The values are stable.
typedef int32_t regroup_watched_operation;
enum {
    REGROUP_WATCHED_ALL_REDUCE = 0,
    REGROUP_WATCHED_REDUCE = 1,
    REGROUP_WATCHED_BROADCAST = 2,
    REGROUP_WATCHED_ALL_GATHER = 3,
    REGROUP_WATCHED_REDUCE_SCATTER = 4,
    REGROUP_WATCHED_ALL_TO_ALL = 5,
    REGROUP_WATCHED_GATHER = 6,
    REGROUP_WATCHED_SCATTER = 7,
    REGROUP_WATCHED_BARRIER = 8,
    REGROUP_WATCHED_SEND = 9,
    REGROUP_WATCHED_RECEIVE = 10,
    REGROUP_WATCHED_OTHER = 11
};

/// How the program learns of ends; regroup::WatchedGroup::Ends. The values are stable.
typedef int32_t regroup_watched_ends;
enum {
    REGROUP_ENDS_UNKNOWN = 0,    ///< It does not.
    REGROUP_ENDS_TOLD = 1,       ///< It calls regroup_watched_group_completed at once.
    REGROUP_ENDS_LOOKED_FOR = 2  ///< It looks, and calls regroup_watched_group_looked each time.
};

/// `backend`: "gloo", "nccl", "cpu" or another one. `id`: the same on all ranks, and no other
/// group's. Without an agent, the functions below do nothing.
regroup_errc regroup_watched_group_create(const char* backend, const char* name, uint64_t id,
                                          uint32_t size, uint32_t rank, regroup_watched_ends ends,
                                          regroup_watched_group** group);
void regroup_watched_group_free(regroup_watched_group* group);
/// The number of the collective, from 1; 0 if nobody watches. `dtype`: -1 if there is none. NULL is
/// allowed as `group` here and below, and nothing fails. Two threads may use a group at once, one
/// that enters and one that completes.
uint64_t regroup_watched_group_entered(regroup_watched_group* group,
                                       regroup_watched_operation operation, regroup_dtype dtype,
                                       uint64_t elements);
void regroup_watched_group_completed(regroup_watched_group* group, uint64_t number);
void regroup_watched_group_looked(regroup_watched_group* group);
void regroup_watched_group_message_entered(regroup_watched_group* group,
                                           regroup_watched_operation operation, uint32_t peer,
                                           regroup_dtype dtype, uint64_t elements);
void regroup_watched_group_message_completed(regroup_watched_group* group);

#ifdef __cplusplus
}
#endif
