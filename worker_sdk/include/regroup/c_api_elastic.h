// SPDX-License-Identifier: Apache-2.0
/// @file
/// A training loop for C that survives the loss of workers: the processes stay, and the rounds
/// change. regroup/elastic_loop.h describes the loop, and docs/embedding.md has an example; the
/// rules of regroup/c_api.h apply.
///
/// **Callbacks** get the `user` pointer that was given with them. They are called on the thread of
/// regroup_elastic_run. A callback returns REGROUP_OK, or the code of the failure:
///
/// - the code that a function of this interface returned, unchanged, as soon as it is no
///   REGROUP_OK. So the loop knows the loss of a peer from a failure of the program;
/// - `return regroup_fail(code, sentence);` for a failure of the program's own.
///
/// A failure that the loop cannot repair ends regroup_elastic_run with the code and the sentence.
/// A callback must not end by longjmp.
#pragma once

#include <regroup/c_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/// regroup::ElasticLoop. At most one in a process at a time. One thread uses it.
typedef struct regroup_elastic regroup_elastic;
/// The step that is being carried out. Valid until on_step returns.
typedef struct regroup_step regroup_step;

/// regroup::ElasticOptions. Set `struct_bytes`, and everything else to zero for the default.
typedef struct regroup_elastic_options {
    size_t struct_bytes;  ///< sizeof(regroup_elastic_options).
    const char* backend;  ///< Of the group that steps use; NULL means "cpu".
    int64_t timeout_ms;   ///< For each operation; 0 means 30 minutes.
    /// Replicas are compared every so many steps; 0: only where the loop always does, when ranks
    /// change and before they finish or leave. See regroup::ElasticOptions::compare_every.
    uint64_t compare_every;
    uint64_t snapshot_every;  ///< In steps; 0: no snapshots. See regroup::ElasticOptions.
} regroup_elastic_options;

/// A round: a period in which membership and ranks are fixed.
typedef struct regroup_round_info {
    /// Both belong to the loop: do not free them. They are valid until on_round of the next round
    /// has returned, or the loop is freed.
    const regroup_context* context;
    regroup_group* group;  ///< Of all ranks; aborted at the end of the round.
    uint64_t step;         ///< Steps committed before this round.
    uint32_t rank;
    uint32_t world_size;
    int32_t first;  ///< 1: the first round of this process.
} regroup_round_info;

typedef struct regroup_step_info {
    const regroup_context* context;  ///< As in regroup_round_info.
    regroup_group* group;            ///< Likewise.
    uint64_t number;                 ///< Steps committed before this one, from 0.
    uint64_t samples_begin;  ///< Samples consumed by all committed steps, of all ranks together.
    uint32_t rank;
    uint32_t world_size;
} regroup_step_info;

/// Why and until when this rank leaves, while its state can still be saved.
typedef struct regroup_leave_info {
    uint64_t step;       ///< Committed steps; see regroup::ElasticLeave::step.
    const char* reason;  ///< Valid until on_leave returns.
    int64_t time_left_ms;
} regroup_leave_info;

/// regroup::ElasticCallbacks. Set `struct_bytes`, and what is not needed to NULL.
typedef struct regroup_elastic_callbacks {
    size_t struct_bytes;  ///< sizeof(regroup_elastic_callbacks).
    void* user;           ///< For all of them.
    /// Called at the start of each round, when the state is complete. Free here what was made from
    /// the group of the earlier round (a regroup_ddp, a sub-group), and make it again; the loop
    /// refuses to go on if such an object is left.
    regroup_errc (*on_round)(void* user, const regroup_round_info* round);
    /// Called for each step; must do regroup_step_commit or regroup_step_finish, or fail. Required.
    regroup_errc (*on_step)(void* user, regroup_step* step);
    /// Called on each rank of a node that leaves; see regroup::ElasticCallbacks::on_leave.
    regroup_errc (*on_leave)(void* user, const regroup_leave_info* leave);
} regroup_elastic_callbacks;

/// How training ended. The values are stable.
typedef int32_t regroup_ending;
enum {
    REGROUP_FINISHED = 0,  ///< Every rank did regroup_step_finish.
    REGROUP_LEFT = 1       ///< This node leaves; the others go on.
};

/// Reads the environment, as regroup_context_from_environment does. `options` may be NULL.
regroup_errc regroup_elastic_create(const regroup_elastic_options* options, regroup_elastic** loop);
/// Objects that were made from a round's group may be freed later.
void regroup_elastic_free(regroup_elastic* loop);

/// Registers state that must be equal on all ranks after every step: the same names, in the same
/// order, on every rank, before regroup_elastic_run. The memory belongs to the caller, and must
/// stay in place while the loop lives. Change it only in the `apply` of regroup_step_commit.
regroup_errc regroup_elastic_register_tensor(regroup_elastic* loop, const char* name,
                                             regroup_tensor tensor);
/// The same for a tensor that on_step changes before regroup_step_commit, such as running means.
/// Its value counts, and must be equal on all ranks, when regroup_step_commit has called `apply`.
/// After a step that is not committed, the loop writes the last such value back;
/// regroup::ElasticLoop::register_buffer.
regroup_errc regroup_elastic_register_buffer(regroup_elastic* loop, const char* name,
                                             regroup_tensor tensor);
/// Points `*data` to the bytes of a value, `*bytes` of them, in memory of the caller. The loop
/// copies them before it calls anything else. NULL is allowed if there are none.
///
/// The loop compares the bytes. They must be the same on all ranks that have the same state, and
/// again after `load`. Write no addresses, no structs with padding, and no hash table in its own
/// order.
typedef regroup_errc (*regroup_save_value)(void* user, const void** data, size_t* bytes);
/// Takes the bytes of a value, which are valid until the function returns.
typedef regroup_errc (*regroup_load_value)(void* user, const void* data, size_t bytes);
/// The same as regroup_elastic_register_tensor, for state that is not a tensor.
regroup_errc regroup_elastic_register_value(regroup_elastic* loop, const char* name,
                                            regroup_save_value save, regroup_load_value load,
                                            void* user);
/// For interpreters; see regroup::ElasticLoop::will_import.
regroup_errc regroup_elastic_will_import(regroup_elastic* loop, const char* modules);
/// Continues from a checkpoint: so many steps and samples count as done. Before
/// regroup_elastic_run, or in on_round, or after REGROUP_EVENT_ROUND, on all ranks alike; see
/// regroup::ElasticLoop::resume_at.
regroup_errc regroup_elastic_resume_at(regroup_elastic* loop, uint64_t step, uint64_t samples);

/// Trains until all ranks finish or this node leaves, then sets `*ending`, which may be NULL. Once.
/// Under the launcher, the loss of a peer is repaired and does not end it; without, it ends with
/// REGROUP_DISCONNECTED. Otherwise it fails as regroup::ElasticLoop::run, or as a callback.
regroup_errc regroup_elastic_run(regroup_elastic* loop, const regroup_elastic_callbacks* callbacks,
                                 regroup_ending* ending);

/// The next task of the program. The values are stable.
typedef int32_t regroup_elastic_event;
enum {
    REGROUP_EVENT_ROUND = 0,     ///< A round begins: what on_round does.
    REGROUP_EVENT_STEP = 1,      ///< Carry out a step: what on_step does.
    REGROUP_EVENT_LEAVE = 2,     ///< Save the state: what on_leave does.
    REGROUP_EVENT_FINISHED = 3,  ///< Training is over, as with REGROUP_FINISHED.
    REGROUP_EVENT_LEFT = 4       ///< Training is over, as with REGROUP_LEFT.
};

/// regroup_elastic_run in parts, for a program that the loop cannot call back, such as an iterator
/// of another language. Sets `*event` to what the program does next; the program has done that when
/// it calls this function again. Fails as regroup_elastic_run; then training is over. One thread
/// calls this function and those below, and frees the loop.
regroup_errc regroup_elastic_next(regroup_elastic* loop, regroup_elastic_event* event);
/// The program could not do what regroup_elastic_next asked for: a failure of `code` with the
/// sentence `text`. REGROUP_OK if that is the loss of a peer: then call regroup_elastic_next.
/// Otherwise it fails with that failure, and training is over.
regroup_errc regroup_elastic_failed(regroup_elastic* loop, regroup_errc code, const char* text);
/// After REGROUP_EVENT_ROUND: as the argument of on_round. Objects that were made from the group of
/// the earlier round must be freed before the next regroup_elastic_next.
regroup_errc regroup_elastic_round(const regroup_elastic* loop, regroup_round_info* round);
/// After REGROUP_EVENT_STEP: the step, which belongs to the loop and is valid until the next event.
regroup_errc regroup_elastic_step(regroup_elastic* loop, regroup_step** step);
/// After REGROUP_EVENT_LEAVE: as the argument of on_leave.
regroup_errc regroup_elastic_leave(const regroup_elastic* loop, regroup_leave_info* leave);

regroup_errc regroup_step_get(const regroup_step* step, regroup_step_info* info);
/// Takes the next `count` positions of the global order for this step, for all ranks together:
/// from `*first` on. regroup_sampler_shard gives each rank its part. Once per step.
regroup_errc regroup_step_take(regroup_step* step, uint64_t count, uint64_t* first);
/// Ends the step: blocks until every rank of the round has called it, calls `apply`, which may be
/// NULL, and commits. If a rank is lost before that, it fails and applies nothing; return its code.
/// If `apply` fails, the state is half changed, and training ends. Once per step.
regroup_errc regroup_step_commit(regroup_step* step, regroup_errc (*apply)(void* user), void* user);
/// regroup_step_commit in two parts, for code that is no function: the program applies the step
/// between them. If it fails there, the state is half changed, and training ends.
regroup_errc regroup_step_commit_begin(regroup_step* step);
regroup_errc regroup_step_commit_end(regroup_step* step);
/// After the commit. `*pauses` is 1 if the round ends at this step boundary, because a node leaves
/// or joins; the same on all ranks. See regroup::ElasticStep::pauses.
regroup_errc regroup_step_pauses(const regroup_step* step, int32_t* pauses);
/// Ends the training, without committing this step. All ranks must call it in the same step.
regroup_errc regroup_step_finish(regroup_step* step);
/// Shows a number of this step, such as the loss, to those who watch the job; only that of rank 0
/// is shown. `name` has 1 to 32 of the characters a to z, 0 to 9 and _, and no digit first; 8 names
/// at most. See regroup::ElasticStep::report.
regroup_errc regroup_step_report(regroup_step* step, const char* name, double value);
/// From begin to end the rank is in the named section, whose hangs the agent detects; see
/// regroup::ElasticStep::Section. Sections cannot be nested. The end of the step ends one, too. The
/// time in sections called "data" is shown as the step's time for data.
regroup_errc regroup_step_section_begin(regroup_step* step, const char* name);
regroup_errc regroup_step_section_end(regroup_step* step);

#ifdef __cplusplus
}
#endif
