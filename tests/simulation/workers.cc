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

}  // namespace

Workers::Worker* Workers::find(std::uint32_t host, std::uint64_t tag) {
    std::vector<Worker>& workers = hosts_[host].workers;
    const std::uint64_t local_rank = tag & 0xffU;
    if (local_rank >= workers.size()) {
        return nullptr;
    }
    Worker& worker = workers[local_rank];
    return worker.alive && worker.life == tag >> 8U ? &worker : nullptr;
}

void Workers::reset_pages(std::uint32_t host) {
    hosts_[host].ended = hosts_[host].paused = RoundId::none;
    hosts_[host].leaving = worker_link::Leaving::no;
}

Workers::Worker& Workers::start(std::uint32_t host, std::uint64_t incarnation,
                                const rendezvous::NodeId& node, std::uint32_t local_rank,
                                RoundId round) {
    std::vector<Worker>& workers = hosts_[host].workers;
    if (workers.size() <= local_rank) {
        workers.resize(local_rank + 1);
    }
    Worker& worker = workers[local_rank];
    worker = Worker{};
    worker.alive = true;
    worker.life = next_life_++;
    worker.incarnation = incarnation;
    worker.node = node;
    worker.launched_in = round;
    worker.elastic = world_.job.elastic;
    return worker;
}

void Workers::launch(std::uint32_t host, std::uint64_t incarnation, const rendezvous::NodeId& node,
                     const agent::LaunchWorkers& launch) {
    const rendezvous::Assignment& assignment = launch.assignment;
    for (const std::uint32_t local_rank : launch.local_ranks) {
        Worker& worker = start(host, incarnation, node, local_rank, assignment.round);
        enter(host, local_rank, assignment);
        const Plan& plan = world_.plan;
        if (plan.start_error > 0 && world_.random.chance(plan.start_error)) {
            schedule_end(world_.now, host, local_rank, Cause::start_error);
        } else if (plan.crash_at_start > 0 && world_.random.chance(plan.crash_at_start)) {
            schedule_end(world_.now + between(world_.random, {}, std::chrono::seconds(1)), host,
                         local_rank, Cause::fault);
        }
        if (worker.elastic || plan.attaches) {
            world_.queue.push(world_.now + between(world_.random, kWordMax, plan.attach_max),
                              EventKind::worker_ready, host, tag_of(worker, local_rank));
        }
        if (worker.elastic) {
            schedule_own_faults(host, local_rank, Instant::max());
        } else {
            train_plainly(host, local_rank);
        }
    }
}

void Workers::train_plainly(std::uint32_t host, std::uint32_t local_rank) {
    Worker& worker = hosts_[host].workers[local_rank];
    worker.stage = Stage::training;
    const Instant success =
        std::max(groups_[worker.group].finish_at, world_.now + std::chrono::milliseconds(1)) +
        between(world_.random, {}, world_.plan.skew_max);
    schedule_end(success, host, local_rank, Cause::success);
    schedule_own_faults(host, local_rank, success);
    if (groups_[worker.group].broken) {
        schedule_consequence(host, local_rank);
    }
}

void Workers::prestart(std::uint32_t host, std::uint64_t incarnation,
                       const rendezvous::NodeId& node, const agent::PrestartWorkers& prestart) {
    for (const std::uint32_t local_rank : prestart.local_ranks) {
        Worker& worker = start(host, incarnation, node, local_rank, RoundId::none);
        schedule_own_faults(host, local_rank, Instant::max());
        world_.queue.push(world_.now + between(world_.random, kWordMax, world_.plan.attach_max),
                          EventKind::worker_ready, host, tag_of(worker, local_rank));
    }
}

void Workers::schedule_own_faults(std::uint32_t host, std::uint32_t local_rank, Instant success) {
    if (world_.plan.failure_interval > Duration::zero()) {
        const Instant failure =
            world_.now + exponential(world_.random, world_.plan.failure_interval);
        if (failure < success) {
            schedule_end(failure, host, local_rank, Cause::fault);
        }
    }
}

void Workers::schedule_end(Instant at, std::uint32_t host, std::uint32_t local_rank, Cause cause) {
    const std::uint64_t life = hosts_[host].workers[local_rank].life;
    world_.queue.push(
        at, EventKind::worker_end, host,
        life << 16U | std::uint64_t{local_rank} << 8U | static_cast<std::uint64_t>(cause));
}

void Workers::schedule_suspends(std::uint32_t host, std::uint32_t local_rank, Duration within,
                                Duration least) {
    Worker& worker = hosts_[host].workers[local_rank];
    const Instant at = world_.now + least + between(world_.random, {}, within);
    worker.suspends_at = std::min(worker.suspends_at, at);
    world_.queue.push(at, EventKind::worker_suspends, host, tag_of(worker, local_rank));
}

void Workers::schedule_consequence(std::uint32_t host, std::uint32_t local_rank) {
    const bool elastic = hosts_[host].workers[local_rank].elastic;
    if (hosts_[host].workers[local_rank].at_boundary) {
        schedule_suspends(host, local_rank, world_.plan.consequence_max);
    } else if (elastic && !world_.random.chance(world_.plan.dies_of_peers)) {
        // The worker notices by itself, or waits for the agent's message.
        if (groups_[hosts_[host].workers[local_rank].group].severed) {
            schedule_suspends(host, local_rank, kWordMax, kEndLimit);
        } else if (world_.random.chance(0.5)) {
            schedule_suspends(host, local_rank, world_.plan.consequence_max);
        }
    } else if (elastic || !world_.random.chance(world_.plan.hang)) {
        schedule_end(world_.now + between(world_.random, {}, world_.plan.consequence_max), host,
                     local_rank, Cause::consequence);
    }
}

void Workers::signal(std::uint32_t host, std::span<const std::uint32_t> local_ranks, bool force) {
    for (const std::uint32_t local_rank : local_ranks) {
        if (local_rank >= hosts_[host].workers.size() || !hosts_[host].workers[local_rank].alive) {
            continue;
        }
        if (force) {
            schedule_end(world_.now + between(world_.random, {}, kKillMax), host, local_rank,
                         Cause::kill);
        } else if (!world_.random.chance(world_.plan.ignores_term)) {
            schedule_end(world_.now + between(world_.random, {}, world_.plan.drain_max), host,
                         local_rank, Cause::term);
        }
    }
}

void Workers::condemn(std::uint32_t host, std::uint32_t local_rank) {
    std::vector<Worker>& workers = hosts_[host].workers;
    if (local_rank < workers.size() && workers[local_rank].alive) {
        workers[local_rank].condemned = true;
        signal(host, std::span(&local_rank, 1), true);
    }
}

void Workers::orphan(std::uint32_t host) {
    for (std::uint32_t local_rank = 0; local_rank < hosts_[host].workers.size(); ++local_rank) {
        if (hosts_[host].workers[local_rank].alive) {
            schedule_end(world_.now + between(world_.random, {}, kOrphanMax), host, local_rank,
                         Cause::kill);
        }
    }
}

void Workers::vanish(std::uint32_t host) {
    for (std::uint32_t local_rank = 0; local_rank < hosts_[host].workers.size(); ++local_rank) {
        if (hosts_[host].workers[local_rank].alive) {
            end(host, local_rank, Cause::kill, false);
        }
    }
}

void Workers::hit(std::uint32_t host) {
    for (std::uint32_t local_rank = 0; local_rank < hosts_[host].workers.size(); ++local_rank) {
        if (hosts_[host].workers[local_rank].alive) {
            end(host, local_rank, Cause::fault, true);
            return;
        }
    }
}

void Workers::hang(std::uint32_t host) {
    for (std::uint32_t local_rank = 0; local_rank < hosts_[host].workers.size(); ++local_rank) {
        Worker& worker = hosts_[host].workers[local_rank];
        if (worker.alive && worker.elastic && worker.stage == Stage::training && !worker.hung) {
            worker.hung = true;
            world_.tell([&](Checker& c) {
                c.on_hung(world_.now, {host, local_rank, worker.life, worker.rank, worker.round});
            });
            world_.note(
                [&] { return worker.node + ": worker " + std::to_string(local_rank) + " hangs"; });
            return;
        }
    }
}

void Workers::on_end(std::uint32_t host, std::uint64_t tag) {
    const auto cause = static_cast<Cause>(tag & 0xffU);
    const auto local_rank = static_cast<std::uint32_t>(tag >> 8U & 0xffU);
    const Worker* const worker = find(host, tag >> 16U << 8U | local_rank);
    if (worker == nullptr) {
        return;
    }
    const bool own_fault = cause == Cause::fault || cause == Cause::start_error;
    if (own_fault && world_.plan.failure_interval == Duration::zero() &&
        world_.plan.crash_at_start <= 0 && world_.plan.start_error <= 0) {
        return;  // Scheduled before the calm.
    }
    // The worker has noticed, or been told, and is about to leave its round in order.
    if (cause == Cause::consequence && worker->elastic &&
        (worker->group == kNoGroup || !groups_[worker->group].broken)) {
        return;
    }
    // No worker of a collective job succeeds when another has failed.
    if (cause == Cause::success && !worker->elastic && groups_[worker->group].broken) {
        return;
    }
    end(host, local_rank, cause, true);
}

agent::WorkerExited Workers::describe_end(const Worker& worker, std::uint32_t local_rank,
                                          Cause cause) {
    static constexpr std::array kCodes{1, 1, 1, 3, 64, 75, 76};
    agent::WorkerExited exited{worker.launched_in, local_rank, std::nullopt,
                               worker.finished,    {},         worker.step};
    if (cause == Cause::success) {
        if (worker.elastic && !worker.finished) {
            exited.unfinished.emplace();  // It leaves early, which is no failure here.
        }
        return exited;
    }
    rendezvous::WorkerFailure failure;
    failure.rank = worker.rank;
    failure.local_rank = local_rank;
    failure.node = worker.node;
    failure.pid = static_cast<std::int64_t>(worker.life);
    switch (cause) {
        case Cause::start_error:
            failure.start_error = "no such file";
            break;
        case Cause::fault:
            if (!world_.job.policy.on_exit.empty() && world_.random.chance(0.5)) {
                failure.exit_code = kCodes[world_.random.below(kCodes.size())];
            } else {
                failure.signal = SIGSEGV;
            }
            break;
        case Cause::term:
            failure.signal = SIGTERM;
            break;
        case Cause::kill:
            failure.signal = SIGKILL;
            break;
        default:
            failure.exit_code = 1;
    }
    exited.failure = std::move(failure);
    return exited;
}

void Workers::end(std::uint32_t host, std::uint32_t local_rank, Cause cause, bool tell_agent) {
    Worker& worker = hosts_[host].workers[local_rank];
    worker.alive = false;
    // Without a death, the worker should not have died either.
    const bool fragile = cause == Cause::consequence && worker.elastic &&
                         worker.group != kNoGroup && !groups_[worker.group].bereaved;
    const bool own_fault = cause == Cause::fault || cause == Cause::start_error || fragile ||
                           (cause == Cause::kill && (worker.condemned || worker.hung));
    worker.own_fault = own_fault;
    world_.tell([&](Checker& c) {
        c.on_worker_end(world_.now, host, worker.round, own_fault);
        c.on_process_end(world_.now, host, worker.life, cause == Cause::success);
    });
    world_.note([&] {
        static constexpr const char* kCauses[] = {"finishes",           "fails by itself",
                                                  "fails by its peers", "cannot start",
                                                  "ends on SIGTERM",    "ends on SIGKILL"};
        return worker.node + ": worker " + std::to_string(local_rank) + " of round " +
               std::to_string(number(worker.round)) + " " + kCauses[static_cast<int>(cause)];
    });
    world_.trace.mix(static_cast<std::uint64_t>(cause) << 32U | host << 8U | local_rank);
    if (tell_agent) {
        speak(worker, host, describe_end(worker, local_rank, cause));
    }
    const std::size_t group = std::exchange(worker.group, kNoGroup);
    if (group != kNoGroup && cause != Cause::success) {
        break_group(group, true);
    }
}

// ---- Events for the agent.

void Workers::say(std::uint32_t host, std::uint64_t incarnation, Duration within,
                  agent::AgentEvent event) {
    auto record = static_cast<std::uint32_t>(words_.size());
    if (free_words_.empty()) {
        words_.emplace_back();
    } else {
        record = free_words_.back();
        free_words_.pop_back();
    }
    words_[record] = {host, incarnation, std::move(event)};
    world_.queue.push(world_.now + within, EventKind::worker_word, record);
}

void Workers::speak(Worker& worker, std::uint32_t host, agent::AgentEvent event) {
    speak(worker, host, between(world_.random, {}, kWordMax), std::move(event));
}

void Workers::speak(Worker& worker, std::uint32_t host, Duration within, agent::AgentEvent event) {
    const Instant at = std::max(worker.last_word_at, world_.now + within);
    worker.last_word_at = at;
    say(host, worker.incarnation, at - world_.now, std::move(event));
}

Workers::Word Workers::take(std::uint32_t record) {
    free_words_.push_back(record);
    return std::move(words_[record]);
}

std::size_t Workers::alive_count(std::uint32_t host) const {
    return static_cast<std::size_t>(std::count_if(hosts_[host].workers.begin(),
                                                  hosts_[host].workers.end(),
                                                  [](const Worker& w) { return w.alive; }));
}

}  // namespace regroup::simulation
