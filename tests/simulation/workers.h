// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <vector>

#include "rendezvous/worker_link/page.h"
#include "tests/simulation/world.h"

namespace regroup::simulation {

/// All worker processes of a run, on all hosts: how long they work, how they end, and the effect of
/// their end on their peers. The agent learns of each end and each message a moment later, as from
/// a pidfd and a local socket.
///
/// In an elastic job, this class does the work of the SDK's loop. The group of a round forms when
/// all its ranks are there, takes the most advanced state, and commits steps by vote. All ranks
/// vote at one instant. Each rank learns the result, and applies the step, a little later. See
/// training.cc.
class Workers {
   public:
    explicit Workers(World& world) : world_(world), hosts_(world.plan.hosts) {}

    // ---- Actions of an agent.

    /// A new agent on `host`: its pages are new.
    void reset_pages(std::uint32_t host);
    void launch(std::uint32_t host, std::uint64_t incarnation, const rendezvous::NodeId& node,
                const agent::LaunchWorkers& launch);
    void prestart(std::uint32_t host, std::uint64_t incarnation, const rendezvous::NodeId& node,
                  const agent::PrestartWorkers& prestart);
    void assign(std::uint32_t host, const rendezvous::Assignment& assignment,
                std::span<const std::uint32_t> local_ranks);
    void end_round(std::uint32_t host, rendezvous::RoundId round,
                   std::span<const std::uint32_t> local_ranks);
    void pause(std::uint32_t host, rendezvous::RoundId round, worker_link::Leaving leaving);
    /// Kills the worker that the round hangs on.
    void condemn(std::uint32_t host, std::uint32_t local_rank);
    void signal(std::uint32_t host, std::span<const std::uint32_t> local_ranks, bool force);
    /// The positions of the workers of `host`.
    [[nodiscard]] std::vector<rendezvous::RankPosition> positions(std::uint32_t host) const;
    /// The highest step that a worker of `host` has committed.
    [[nodiscard]] std::uint64_t highest_step(std::uint32_t host) const;

    // ---- Faults.

    /// The agent has ended: the parent-death signal ends its workers within a moment.
    void orphan(std::uint32_t host);
    /// The host has lost power: its workers end at once, and no agent is told.
    void vanish(std::uint32_t host);
    /// One worker of the host, if any, segfaults.
    void hit(std::uint32_t host);
    /// One worker of the host, if any trains, hangs.
    void hang(std::uint32_t host);
    /// One worker of the host, if any is in a round with others, loses its connection to another;
    /// both live. Usually the connection breaks once. Otherwise it breaks again in each round of
    /// the two hosts until `until`, or cannot be opened at all.
    void sever(std::uint32_t host, Instant until);
    /// All connections can be opened again.
    void heal();

    // ---- Events that this class has scheduled.

    /// A worker's life ends now, if it has not ended already.
    void on_end(std::uint32_t host, std::uint64_t tag);
    /// A worker is ready to send Hello.
    void on_ready(std::uint32_t host, std::uint64_t tag);
    /// A worker has left its round.
    void on_suspends(std::uint32_t host, std::uint64_t tag);
    /// A worker learns the result of a vote.
    void on_apply(std::uint32_t host, std::uint64_t tag);
    void on_formed(std::uint32_t group);
    void on_vote(std::uint32_t group);
    void on_standstill(std::uint32_t group);
    void on_severed(std::uint32_t group);
    void on_bereft(std::uint32_t host, std::uint64_t tag);

    /// An event for the agent: a worker's end, or its message.
    struct Word {
        std::uint32_t host = 0;
        std::uint64_t incarnation = 0;
        agent::AgentEvent event;
    };
    [[nodiscard]] const Word& peek(std::uint32_t record) const { return words_[record]; }
    [[nodiscard]] Word take(std::uint32_t record);
    /// Sends the agent of `host` an event that arrives a moment later.
    void say(std::uint32_t host, std::uint64_t incarnation, Duration within,
             agent::AgentEvent event);

    [[nodiscard]] std::size_t alive_count(std::uint32_t host) const;

   private:
    enum class Cause : std::uint8_t {
        success,
        fault,
        consequence,
        start_error,
        term,
        kill,
    };
    static constexpr std::size_t kNoGroup = static_cast<std::size_t>(-1);
    enum class Stage : std::uint8_t {
        starting,  ///< Has not sent Hello yet.
        idle,      ///< Suspended.
        forming,
        training,
        aborting,  ///< Leaves its round.
        leaving,   ///< Is about to end with success.
    };
    struct Worker {
        bool alive = false;
        std::uint64_t life = 0;  ///< Distinguishes this process from earlier ones in its place.
        std::uint64_t incarnation = 0;
        rendezvous::NodeId node;
        rendezvous::RoundId launched_in = rendezvous::RoundId::none;
        rendezvous::RoundId round = rendezvous::RoundId::none;  ///< None while it is suspended.
        std::uint32_t rank = 0;
        std::size_t group = kNoGroup;
        bool elastic = false;
        Stage stage = Stage::starting;
        std::uint64_t step = 0;  ///< Committed.
        bool hung = false;
        bool awaits_outcome = false;  ///< Of a vote in its present round.
        bool resumed = false;         ///< Has sent Resumed in this round.
        bool finished = false;        ///< Its training is finished.
        bool at_boundary = false;     ///< It suspends or leaves at the agreed step boundary.
        Duration boundary_pause{};  ///< From the time when all ranks are known to have reached it.
        bool own_fault = false;     ///< It failed by itself.
        bool condemned = false;     ///< It is ended because the round hangs on it.
        Instant suspends_at = Instant::max();  ///< Leaves its round at the latest.
        std::uint32_t lost_peer = 0;           ///< The rank that it has lost its connection to.
        std::optional<rendezvous::Assignment> place;  ///< Its assignment, until it has sent Hello.
        Instant assigned_at{};
        Instant last_word_at{};  ///< Messages of a worker keep their order.
    };
    struct Host {
        std::vector<Worker> workers;  ///< By local rank.
        rendezvous::RoundId ended = rendezvous::RoundId::none;
        rendezvous::RoundId paused = rendezvous::RoundId::none;
        worker_link::Leaving leaving = worker_link::Leaving::no;
    };
    /// The workers of one round.
    struct Group {
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

    [[nodiscard]] Worker* find(std::uint32_t host, std::uint64_t tag);
    [[nodiscard]] static std::uint64_t tag_of(const Worker& worker, std::uint32_t local_rank) {
        return worker.life << 8U | local_rank;
    }
    Worker& start(std::uint32_t host, std::uint64_t incarnation, const rendezvous::NodeId& node,
                  std::uint32_t local_rank, rendezvous::RoundId round);
    /// Trains in a job that is not elastic.
    void train_plainly(std::uint32_t host, std::uint32_t local_rank);
    void schedule_own_faults(std::uint32_t host, std::uint32_t local_rank, Instant success);
    void schedule_end(Instant at, std::uint32_t host, std::uint32_t local_rank, Cause cause);
    void schedule_consequence(std::uint32_t host, std::uint32_t local_rank);
    void schedule_suspends(std::uint32_t host, std::uint32_t local_rank, Duration within,
                           Duration least = {});
    void end(std::uint32_t host, std::uint32_t local_rank, Cause cause, bool tell_agent);
    [[nodiscard]] agent::WorkerExited describe_end(const Worker& worker, std::uint32_t local_rank,
                                                   Cause cause);
    void speak(Worker& worker, std::uint32_t host, agent::AgentEvent event);
    /// Sends the agent an event, which takes `within` at most.
    void speak(Worker& worker, std::uint32_t host, Duration within, agent::AgentEvent event);

    std::size_t group_of(const rendezvous::Assignment& assignment);
    /// True if all members have left it or have ended.
    [[nodiscard]] bool is_gone(std::size_t index) const;
    void enter(std::uint32_t host, std::uint32_t local_rank,
               const rendezvous::Assignment& assignment);
    void ready_to_form(std::size_t group);
    /// True if two of its hosts cannot reach each other, so that it cannot form.
    [[nodiscard]] bool is_apart(const Group& group) const;
    void lose_one_at_boundary(const Group& group);
    [[nodiscard]] bool leaves_at_boundary(std::uint32_t host, const Group& group) const;
    void form_later(std::uint32_t group);
    /// All ranks have committed the step after which they suspend or leave, and know it of each
    /// other.
    void pass_boundary(std::size_t group);
    void end_standstill(Group& group, std::size_t index);
    void abort(std::uint32_t host, std::uint32_t local_rank);
    /// Lets a suspended worker of a leaving node save its state and end.
    void leave_if_told(std::uint32_t host, std::uint32_t local_rank);
    void leave_group(Worker& worker);
    void break_group(std::size_t group, bool by_death);
    /// Breaks a connection between a worker of each of these hosts, which may be the same.
    void sever_group(std::size_t group, std::uint32_t one_host, std::uint32_t other_host);
    [[nodiscard]] std::vector<Worker*> present(const Group& group, std::size_t index);

    World& world_;
    std::vector<Host> hosts_;
    std::vector<Group> groups_;
    std::map<std::pair<rendezvous::RoundId, std::uint16_t>, std::size_t> group_by_master_;
    std::vector<Word> words_;
    std::vector<std::uint32_t> free_words_;
    /// All connections of workers between two hosts break.
    struct Severed {
        std::uint32_t one_host = 0;
        std::uint32_t other_host = 0;
        Instant until{};
        bool silent = false;  ///< Packets vanish: no group forms.
    };
    std::optional<Severed> severed_;
    std::uint64_t next_life_ = 1;
};

}  // namespace regroup::simulation
