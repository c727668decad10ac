// SPDX-License-Identifier: Apache-2.0
//
// Worker processes: start and end. Their training is in training.cc.
#include "tests/simulation/workers.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

namespace regroup::simulation {

using rendezvous::RoundId;

namespace {

constexpr Duration kWordMax = std::chrono::milliseconds(3);
constexpr Duration kOrphanMax = std::chrono::milliseconds(100);
// How long a worker that has lost its peers waits for the end of its round.
constexpr Duration kEndLimit = std::chrono::seconds(1);
constexpr Duration kKillMax = std::chrono::milliseconds(20);

Worker& start_worker(Workers& all, std::uint32_t host, std::uint64_t incarnation,
                     const rendezvous::NodeId& node, std::uint32_t local_rank, RoundId round) {
    std::vector<Worker>& workers = all.hosts[host].workers;
    if (workers.size() <= local_rank) {
        workers.resize(local_rank + 1);
    }
    Worker& worker = workers[local_rank];
    worker = Worker{};
    worker.alive = true;
    worker.host = host;
    worker.local_rank = local_rank;
    worker.life = all.next_life++;
    worker.incarnation = incarnation;
    worker.node = node;
    worker.launched_in = round;
    worker.elastic = all.world.job.elastic;
    return worker;
}

void schedule_ready(Workers& all, const Worker& worker) {
    all.world.queue.push(
        all.world.now + between(all.world.random, kWordMax, all.world.plan.attach_max),
        EventKind::worker_ready, worker.host, tag_of(worker));
}

void schedule_own_faults(Workers& all, const Worker& worker, Instant success) {
    if (all.world.plan.failure_interval > Duration::zero()) {
        const Instant failure =
            all.world.now + exponential(all.world.random, all.world.plan.failure_interval);
        if (failure < success) {
            schedule_end(all, failure, worker, WorkerEnd::fault);
        }
    }
}

agent::WorkerExited describe_end(Workers& all, const Worker& worker, WorkerEnd cause) {
    static constexpr std::array kCodes{1, 1, 1, 3, 64, 75, 76};
    agent::WorkerExited exited{
        worker.launched_in, worker.local_rank, std::nullopt, worker.finished, {}, worker.step};
    if (cause == WorkerEnd::success) {
        if (worker.elastic && !worker.finished) {
            exited.unfinished.emplace();  // It leaves early, which is no failure here.
        }
        return exited;
    }
    rendezvous::WorkerFailure failure;
    failure.rank = worker.rank;
    failure.local_rank = worker.local_rank;
    failure.node = worker.node;
    failure.pid = static_cast<std::int64_t>(worker.life);
    switch (cause) {
        case WorkerEnd::start_error:
            failure.start_error = "no such file";
            break;
        case WorkerEnd::fault:
            if (!all.world.job.policy.on_exit.empty() && all.world.random.chance(0.5)) {
                failure.exit_code = kCodes[all.world.random.below(kCodes.size())];
            } else {
                failure.signal = SIGSEGV;
            }
            break;
        case WorkerEnd::term:
            failure.signal = SIGTERM;
            break;
        case WorkerEnd::kill:
            failure.signal = SIGKILL;
            break;
        default:
            failure.exit_code = 1;
    }
    exited.failure = std::move(failure);
    return exited;
}

void end_worker(Workers& all, Worker& worker, WorkerEnd cause, bool tell_agent) {
    worker.alive = false;
    // Without a death, the worker should not have died either.
    const bool fragile = cause == WorkerEnd::consequence && worker.elastic &&
                         worker.group != kNoGroup && !all.groups[worker.group].bereaved;
    const bool own_fault = cause == WorkerEnd::fault || cause == WorkerEnd::start_error ||
                           fragile ||
                           (cause == WorkerEnd::kill && (worker.condemned || worker.hung));
    worker.own_fault = own_fault;
    all.world.tell([&](Checker& c) {
        c.on_worker_end(all.world.now, worker.host, worker.round, own_fault);
        c.on_process_end(all.world.now, worker.host, worker.life, cause == WorkerEnd::success);
    });
    all.world.note([&] {
        static constexpr const char* kCauses[] = {"finishes",           "fails by itself",
                                                  "fails by its peers", "cannot start",
                                                  "ends on SIGTERM",    "ends on SIGKILL"};
        return worker.node + ": worker " + std::to_string(worker.local_rank) + " of round " +
               std::to_string(number(worker.round)) + " " + kCauses[static_cast<int>(cause)];
    });
    all.world.trace.mix(static_cast<std::uint64_t>(cause) << 32U | worker.host << 8U |
                        worker.local_rank);
    if (tell_agent) {
        speak(all, worker, describe_end(all, worker, cause));
    }
    const std::size_t group = std::exchange(worker.group, kNoGroup);
    if (group != kNoGroup && cause != WorkerEnd::success) {
        break_group(all, group, true);
    }
}

}  // namespace

Worker* find_alive(Workers& all, std::uint32_t host, std::uint64_t local_rank) {
    std::vector<Worker>& workers = all.hosts[host].workers;
    return local_rank < workers.size() && workers[local_rank].alive ? &workers[local_rank]
                                                                    : nullptr;
}

Worker* find_worker(Workers& all, std::uint32_t host, std::uint64_t tag) {
    Worker* const worker = find_alive(all, host, tag & 0xffU);
    return worker != nullptr && worker->life == tag >> 8U ? worker : nullptr;
}

void reset_pages(Workers& all, std::uint32_t host) {
    all.hosts[host].ended = all.hosts[host].paused = RoundId::none;
    all.hosts[host].leaving = worker_link::Leaving::no;
}

void launch_workers(Workers& all, std::uint32_t host, std::uint64_t incarnation,
                    const rendezvous::NodeId& node, const agent::LaunchWorkers& launch) {
    const rendezvous::Assignment& assignment = launch.assignment;
    for (const std::uint32_t local_rank : launch.local_ranks) {
        Worker& worker = start_worker(all, host, incarnation, node, local_rank, assignment.round);
        enter_round(all, worker, assignment);
        const Plan& plan = all.world.plan;
        if (plan.start_error > 0 && all.world.random.chance(plan.start_error)) {
            schedule_end(all, all.world.now, worker, WorkerEnd::start_error);
        } else if (plan.crash_at_start > 0 && all.world.random.chance(plan.crash_at_start)) {
            schedule_end(all,
                         all.world.now + between(all.world.random, {}, std::chrono::seconds(1)),
                         worker, WorkerEnd::fault);
        }
        if (worker.elastic || plan.attaches) {
            schedule_ready(all, worker);
        }
        if (worker.elastic) {
            schedule_own_faults(all, worker, Instant::max());
        } else {
            train_plainly(all, worker);
        }
    }
}

void train_plainly(Workers& all, Worker& worker) {
    worker.stage = WorkerStage::training;
    const Instant success =
        std::max(all.groups[worker.group].finish_at, all.world.now + std::chrono::milliseconds(1)) +
        between(all.world.random, {}, all.world.plan.skew_max);
    schedule_end(all, success, worker, WorkerEnd::success);
    schedule_own_faults(all, worker, success);
    if (all.groups[worker.group].broken) {
        schedule_consequence(all, worker);
    }
}

void prestart_workers(Workers& all, std::uint32_t host, std::uint64_t incarnation,
                      const rendezvous::NodeId& node, const agent::PrestartWorkers& prestart) {
    for (const std::uint32_t local_rank : prestart.local_ranks) {
        Worker& worker = start_worker(all, host, incarnation, node, local_rank, RoundId::none);
        schedule_own_faults(all, worker, Instant::max());
        schedule_ready(all, worker);
    }
}

void schedule_end(Workers& all, Instant at, const Worker& worker, WorkerEnd cause) {
    all.world.queue.push(at, EventKind::worker_end, worker.host,
                         tag_of(worker) << 8U | static_cast<std::uint64_t>(cause));
}

void schedule_suspends(Workers& all, Worker& worker, Duration within, Duration least) {
    const Instant at = all.world.now + least + between(all.world.random, {}, within);
    worker.suspends_at = std::min(worker.suspends_at, at);
    all.world.queue.push(at, EventKind::worker_suspends, worker.host, tag_of(worker));
}

void schedule_consequence(Workers& all, Worker& worker) {
    if (worker.at_boundary) {
        schedule_suspends(all, worker, all.world.plan.consequence_max);
    } else if (worker.elastic && !all.world.random.chance(all.world.plan.dies_of_peers)) {
        // The worker notices by itself, or waits for the agent's message.
        if (all.groups[worker.group].severed) {
            schedule_suspends(all, worker, kWordMax, kEndLimit);
        } else if (all.world.random.chance(0.5)) {
            schedule_suspends(all, worker, all.world.plan.consequence_max);
        }
    } else if (worker.elastic || !all.world.random.chance(all.world.plan.hang)) {
        schedule_end(all,
                     all.world.now + between(all.world.random, {}, all.world.plan.consequence_max),
                     worker, WorkerEnd::consequence);
    }
}

void signal_workers(Workers& all, std::uint32_t host, std::span<const std::uint32_t> local_ranks,
                    bool force) {
    for (const std::uint32_t local_rank : local_ranks) {
        Worker* const worker = find_alive(all, host, local_rank);
        if (worker == nullptr) {
            continue;
        }
        if (force) {
            schedule_end(all, all.world.now + between(all.world.random, {}, kKillMax), *worker,
                         WorkerEnd::kill);
        } else if (!all.world.random.chance(all.world.plan.ignores_term)) {
            schedule_end(all,
                         all.world.now + between(all.world.random, {}, all.world.plan.drain_max),
                         *worker, WorkerEnd::term);
        }
    }
}

void condemn_worker(Workers& all, std::uint32_t host, std::uint32_t local_rank) {
    if (Worker* const worker = find_alive(all, host, local_rank)) {
        worker->condemned = true;
        signal_workers(all, host, std::span(&local_rank, 1), true);
    }
}

void orphan_workers(Workers& all, std::uint32_t host) {
    for (Worker& worker : all.hosts[host].workers) {
        if (worker.alive) {
            schedule_end(all, all.world.now + between(all.world.random, {}, kOrphanMax), worker,
                         WorkerEnd::kill);
        }
    }
}

void vanish_workers(Workers& all, std::uint32_t host) {
    for (Worker& worker : all.hosts[host].workers) {
        if (worker.alive) {
            end_worker(all, worker, WorkerEnd::kill, false);
        }
    }
}

void fail_worker(Workers& all, std::uint32_t host) {
    for (Worker& worker : all.hosts[host].workers) {
        if (worker.alive) {
            end_worker(all, worker, WorkerEnd::fault, true);
            return;
        }
    }
}

void hang_worker(Workers& all, std::uint32_t host) {
    for (Worker& worker : all.hosts[host].workers) {
        if (worker.alive && worker.elastic && worker.stage == WorkerStage::training &&
            !worker.hung) {
            worker.hung = true;
            all.world.tell([&](Checker& c) {
                c.on_hung(all.world.now,
                          {host, worker.local_rank, worker.life, worker.rank, worker.round});
            });
            all.world.note([&] {
                return worker.node + ": worker " + std::to_string(worker.local_rank) + " hangs";
            });
            return;
        }
    }
}

void on_worker_end(Workers& all, std::uint32_t host, std::uint64_t tag) {
    const auto cause = static_cast<WorkerEnd>(tag & 0xffU);
    Worker* const worker = find_worker(all, host, tag >> 8U);
    if (worker == nullptr) {
        return;
    }
    const bool own_fault = cause == WorkerEnd::fault || cause == WorkerEnd::start_error;
    if (own_fault && all.world.plan.failure_interval == Duration::zero() &&
        all.world.plan.crash_at_start <= 0 && all.world.plan.start_error <= 0) {
        return;  // Scheduled before the calm.
    }
    // The worker has noticed, or been told, and is about to leave its round in order.
    if (cause == WorkerEnd::consequence && worker->elastic &&
        (worker->group == kNoGroup || !all.groups[worker->group].broken)) {
        return;
    }
    // No worker of a collective job succeeds when another has failed.
    if (cause == WorkerEnd::success && !worker->elastic && all.groups[worker->group].broken) {
        return;
    }
    end_worker(all, *worker, cause, true);
}

// ---- Events for the agent.

void say(Workers& all, std::uint32_t host, std::uint64_t incarnation, Duration within,
         agent::AgentEvent event) {
    auto record = static_cast<std::uint32_t>(all.words.size());
    if (all.free_words.empty()) {
        all.words.emplace_back();
    } else {
        record = all.free_words.back();
        all.free_words.pop_back();
    }
    all.words[record] = {host, incarnation, std::move(event)};
    all.world.queue.push(all.world.now + within, EventKind::worker_word, record);
}

void speak(Workers& all, Worker& worker, agent::AgentEvent event) {
    speak(all, worker, between(all.world.random, {}, kWordMax), std::move(event));
}

void speak(Workers& all, Worker& worker, Duration within, agent::AgentEvent event) {
    const Instant at = std::max(worker.last_word_at, all.world.now + within);
    worker.last_word_at = at;
    say(all, worker.host, worker.incarnation, at - all.world.now, std::move(event));
}

WorkerWord take_word(Workers& all, std::uint32_t record) {
    all.free_words.push_back(record);
    return std::move(all.words[record]);
}

std::size_t alive_count(const Workers& all, std::uint32_t host) {
    return static_cast<std::size_t>(std::count_if(all.hosts[host].workers.begin(),
                                                  all.hosts[host].workers.end(),
                                                  [](const Worker& w) { return w.alive; }));
}

}  // namespace regroup::simulation
