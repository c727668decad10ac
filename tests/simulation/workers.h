// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <vector>

#include "rendezvous/worker_link/page.h"
#include "tests/simulation/world.h"

// All worker processes of a run, on all hosts: how long they work, how they end, and the effect of
// their end on their peers. The agent learns of each end and each message a moment later, as from
// a pidfd and a local socket.
//
// In an elastic job, they do the work of the SDK's loop. The group of a round forms when all its
// ranks are there, takes the most advanced state, and commits steps by vote. All ranks vote at one
// instant. Each rank learns the result, and applies the step, a little later. See training.cc.

namespace regroup::simulation {

/// How a worker ends.
enum class WorkerEnd : std::uint8_t {
    success,
    fault,
    consequence,
    start_error,
    term,
    kill,
};
inline constexpr std::size_t kNoGroup = static_cast<std::size_t>(-1);
enum class WorkerStage : std::uint8_t {
    starting,  ///< Has not sent Hello yet.
    idle,      ///< Suspended.
    forming,
    training,
    aborting,  ///< Leaves its round.
    leaving,   ///< Is about to end with success.
};
struct Worker {
    bool alive = false;
    std::uint32_t host = 0;
    std::uint32_t local_rank = 0;
    std::uint64_t life = 0;  ///< Distinguishes this process from earlier ones in its place.
    std::uint64_t incarnation = 0;
    rendezvous::NodeId node;
    rendezvous::RoundId launched_in = rendezvous::RoundId::none;
    rendezvous::RoundId round = rendezvous::RoundId::none;  ///< None while it is suspended.
    std::uint32_t rank = 0;
    std::size_t group = kNoGroup;
    bool elastic = false;
    WorkerStage stage = WorkerStage::starting;
    std::uint64_t step = 0;  ///< Committed.
    bool hung = false;
    bool awaits_outcome = false;  ///< Of a vote in its present round.
    bool resumed = false;         ///< Has sent Resumed in this round.
    bool finished = false;        ///< Its training is finished.
    bool at_boundary = false;     ///< It suspends or leaves at the agreed step boundary.
    Duration boundary_pause{};    ///< From the time when all ranks are known to have reached it.
    bool own_fault = false;       ///< It failed by itself.
    bool condemned = false;       ///< It is ended because the round hangs on it.
    Instant suspends_at = Instant::max();         ///< Leaves its round at the latest.
    std::uint32_t lost_peer = 0;                  ///< The rank that it has lost its connection to.
    std::optional<rendezvous::Assignment> place;  ///< Its assignment, until it has sent Hello.
    Instant assigned_at{};
    Instant last_word_at{};  ///< Messages of a worker keep their order.
};

struct WorkerHost {
    std::vector<Worker> workers;  ///< By local rank.
    rendezvous::RoundId ended = rendezvous::RoundId::none;
    rendezvous::RoundId paused = rendezvous::RoundId::none;
    worker_link::Leaving leaving = worker_link::Leaving::no;
};

/// The workers of one round.
struct WorkerGroup {
    enum class Outcome : std::uint8_t { go_on, suspend, finish };
    rendezvous::RoundId round = rendezvous::RoundId::none;
    std::uint32_t world_size = 0;
    bool broken = false;    ///< A member is gone: the others fail, hang or suspend.
    bool bereaved = false;  ///< A member has died; if false, a member left early.
    bool severed = false;   ///< Two members cannot reach each other: no further vote.
    bool formed = false;
    /// All wait, for a hanging member or for each other.
    Instant still_since = Instant::max();
    Instant formed_at{};
    Instant finish_at{};
    std::uint32_t to_apply = 0;
    Outcome outcome = Outcome::go_on;                              ///< Result of the last vote.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> members;  ///< Host and local rank.
};

/// An event for the agent: a worker's end, or its message.
struct WorkerWord {
    std::uint32_t host = 0;
    std::uint64_t incarnation = 0;
    agent::AgentEvent event;
};

/// All connections of workers between two hosts break.
struct SeveredHosts {
    std::uint32_t one_host = 0;
    std::uint32_t other_host = 0;
    Instant until{};
    bool silent = false;  ///< Packets vanish: no group forms.
};

struct Workers {
    explicit Workers(World& the_world) : world(the_world), hosts(the_world.plan.hosts) {}

    World& world;
    std::vector<WorkerHost> hosts;
    std::vector<WorkerGroup> groups;
    std::map<std::pair<rendezvous::RoundId, std::uint16_t>, std::size_t> group_by_master{};
    std::vector<WorkerWord> words{};
    std::vector<std::uint32_t> free_words{};
    std::optional<SeveredHosts> severed{};
    std::uint64_t next_life = 1;
};

// ---- Actions of an agent.

/// A new agent on `host`: its pages are new.
void reset_pages(Workers& all, std::uint32_t host);
void launch_workers(Workers& all, std::uint32_t host, std::uint64_t incarnation,
                    const rendezvous::NodeId& node, const agent::LaunchWorkers& launch);
void prestart_workers(Workers& all, std::uint32_t host, std::uint64_t incarnation,
                      const rendezvous::NodeId& node, const agent::PrestartWorkers& prestart);
void assign_workers(Workers& all, std::uint32_t host, const rendezvous::Assignment& assignment,
                    std::span<const std::uint32_t> local_ranks);
void end_round(Workers& all, std::uint32_t host, rendezvous::RoundId round,
               std::span<const std::uint32_t> local_ranks);
void pause_workers(Workers& all, std::uint32_t host, rendezvous::RoundId round,
                   worker_link::Leaving leaving);
/// Kills the worker that the round hangs on.
void condemn_worker(Workers& all, std::uint32_t host, std::uint32_t local_rank);
void signal_workers(Workers& all, std::uint32_t host, std::span<const std::uint32_t> local_ranks,
                    bool force);
/// The positions of the workers of `host`.
[[nodiscard]] std::vector<rendezvous::RankPosition> positions_of(const Workers& all,
                                                                 std::uint32_t host);
/// The highest step that a worker of `host` has committed.
[[nodiscard]] std::uint64_t highest_step(const Workers& all, std::uint32_t host);
/// Sends the agent of `host` an event that arrives a moment later.
void say(Workers& all, std::uint32_t host, std::uint64_t incarnation, Duration within,
         agent::AgentEvent event);

// ---- Faults.

/// The agent has ended: the parent-death signal ends its workers within a moment.
void orphan_workers(Workers& all, std::uint32_t host);
/// The host has lost power: its workers end at once, and no agent is told.
void vanish_workers(Workers& all, std::uint32_t host);
/// One worker of the host, if any, segfaults.
void fail_worker(Workers& all, std::uint32_t host);
/// One worker of the host, if any trains, hangs.
void hang_worker(Workers& all, std::uint32_t host);
/// One worker of the host, if any is in a round with others, loses its connection to another; both
/// live. Usually the connection breaks once. Otherwise it breaks again in each round of the two
/// hosts until `until`, or cannot be opened at all.
void sever_workers(Workers& all, std::uint32_t host, Instant until);

// ---- Events that the workers have scheduled; `tag` names a worker of `host`, see tag_of().

/// A worker's life ends now, if it has not ended already.
void on_worker_end(Workers& all, std::uint32_t host, std::uint64_t tag);
/// A worker is ready to send Hello.
void on_worker_ready(Workers& all, std::uint32_t host, std::uint64_t tag);
/// A worker has left its round.
void on_worker_suspends(Workers& all, std::uint32_t host, std::uint64_t tag);
/// A worker learns the result of a vote.
void on_worker_apply(Workers& all, std::uint32_t host, std::uint64_t tag);
void on_group_formed(Workers& all, std::uint32_t index);
void on_group_vote(Workers& all, std::uint32_t index);
void on_group_standstill(Workers& all, std::uint32_t index);
void on_group_severed(Workers& all, std::uint32_t index);
void on_worker_bereft(Workers& all, std::uint32_t host, std::uint64_t tag);
[[nodiscard]] WorkerWord take_word(Workers& all, std::uint32_t record);

[[nodiscard]] std::size_t alive_count(const Workers& all, std::uint32_t host);

// ---- Between the files of the workers.

[[nodiscard]] inline std::uint64_t tag_of(const Worker& worker) {
    return worker.life << 8U | worker.local_rank;
}
/// Null if it is not alive.
[[nodiscard]] Worker* find_alive(Workers& all, std::uint32_t host, std::uint64_t local_rank);
/// Null if this process has ended.
[[nodiscard]] Worker* find_worker(Workers& all, std::uint32_t host, std::uint64_t tag);
/// Trains in a job that is not elastic.
void train_plainly(Workers& all, Worker& worker);
void schedule_end(Workers& all, Instant at, const Worker& worker, WorkerEnd cause);
void schedule_consequence(Workers& all, Worker& worker);
void schedule_suspends(Workers& all, Worker& worker, Duration within, Duration least = {});
void speak(Workers& all, Worker& worker, agent::AgentEvent event);
/// Sends the agent an event, which takes `within` at most.
void speak(Workers& all, Worker& worker, Duration within, agent::AgentEvent event);

void enter_round(Workers& all, Worker& worker, const rendezvous::Assignment& assignment);
/// The members that live and have not left it.
[[nodiscard]] std::vector<Worker*> present(Workers& all, std::size_t index);
void ready_to_form(Workers& all, std::size_t index);
/// True if two of its hosts cannot reach each other, so that it cannot form.
[[nodiscard]] bool is_apart(const Workers& all, const WorkerGroup& group);
void form_later(Workers& all, std::uint32_t index);
void lose_one_at_boundary(Workers& all, const WorkerGroup& group);
[[nodiscard]] bool leaves_at_boundary(const Workers& all, std::uint32_t host,
                                      const WorkerGroup& group);
/// All ranks have committed the step after which they suspend or leave, and know it of each other.
void pass_boundary(Workers& all, std::size_t index);
void leave_group(Workers& all, Worker& worker);
void break_group(Workers& all, std::size_t index, bool by_death);

}  // namespace regroup::simulation
