// SPDX-License-Identifier: Apache-2.0
//
// The starts, the signals and the ends of the workers. worker_messages.cc has the messages to and
// from workers.
#include "agent/workers/worker_group.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/link/round_key.h"
#include "agent/process/proc_files.h"
#include "agent/workers/error_file.h"
#include "rendezvous/base/time_text.h"

namespace regroup::agent {

namespace {

// The page is the worker's: it may hold anything.
rendezvous::PeerError peer_error_in(const worker_link::WorkerPage& page) {
    switch (worker_link::PeerError{page.peer_error.load()}) {
        case worker_link::PeerError::awaited:
            return rendezvous::PeerError::awaited;
        case worker_link::PeerError::lost:
            return rendezvous::PeerError::lost;
        case worker_link::PeerError::none:
            break;
    }
    return rendezvous::PeerError::none;
}

}  // namespace

WorkerGroup::WorkerGroup(boost::asio::io_context& io, const Clock& clock, LinuxLauncher& launcher,
                         OutputRelay& output, const AgentConfig& config, WorkerGroupOptions options,
                         std::function<void(const AgentEvent&)> on_event)
    : io_(io),
      output_(output),
      config_(config),
      options_(std::move(options)),
      on_event_(std::move(on_event)),
      gpus_(io, clock, launcher, options_.gpus, output.sayer()),
      starter_(io, clock, launcher, output, config_, options_,
               [this](std::uint64_t key, Result<ChildProcess> child) {
                   started(key, std::move(child));
               }),
      ends_(io, clock, launcher,
            {.on_ending =
                 [this](std::uint64_t key, const WorkerEnd& end) {
                     const WorkerProcess& worker = workers_.at(key);
                     WorkerEnding event{worker.launched_in, worker.local_rank};
                     if (!end.status.success()) {
                         event.failure = failure_of(worker, end);
                     }
                     on_event_(event);
                 },
             .on_end = [this](std::uint64_t key, const WorkerEnd& end) { ended(key, end); },
             .on_killed = [this](const std::set<pid_t>& pids) { gpus_.add(pids); },
             .say = output.sayer()}) {}

// ---- Starts.

void WorkerGroup::launch(const LaunchWorkers& launch, const std::string& own_address) {
    ends_.clear_places();
    starter_.choose_interface(launch.assignment, own_address);
    for (const std::uint32_t local_rank : launch.local_ranks) {
        start(launch.assignment, local_rank, false);
    }
    ends_.begin_round();
    starter_.open_files_soon();
}

void WorkerGroup::prestart(const PrestartWorkers& prestart, const std::string& own_address) {
    Assignment unknown;
    unknown.group_world_size = 2;  // A standby joins other nodes.
    starter_.choose_interface(unknown, own_address);
    for (const std::uint32_t local_rank : prestart.local_ranks) {
        start(unknown, local_rank, true);
    }
    starter_.open_files_soon();
}

void WorkerGroup::start(const Assignment& assignment, std::uint32_t local_rank, bool ahead) {
    const std::uint64_t key = ++last_key_;
    WorkerIdentity identity = starter_.identity_of(assignment, local_rank);
    identity.ahead = ahead;
    const WorkerOutput plan = starter_.output_of(identity);
    identity.error_file = plan.error_file;
    WorkerProcess& worker = workers_[key];
    worker.local_rank = local_rank;
    worker.launched_in = assignment.round;
    worker.assignment = assignment;
    worker.error_file = plan.error_file;
    if (link_) {
        if (Result<std::shared_ptr<SharedPage>> page = SharedPage::create()) {
            worker.page = *page;
            (**page)->draining.store(draining_ ? 1 : 0);
            identity.agent_socket = link_->address();
            identity.worker_id =
                link_->expect(key, *std::move(page),
                              {.round = number(assignment.round), .key = round_key(assignment)});
        }
    }
    if (auto collectives = SharedCollectives::create()) {
        identity.collectives = (*collectives)->path();
        worker.collectives = *std::move(collectives);
    }
    ends_.expect(key);
    worker.needs_memory = ahead;
    const auto give = [this, key, identity, plan] { starter_.start(key, identity, plan); };
    ahead ? give() : gpus_.when_free(key, give);
}

void WorkerGroup::started(std::uint64_t key, Result<ChildProcess> child) {
    WorkerProcess& worker = workers_.at(key);
    if (child) {
        worker.pid = child->pid();
        ends_.started(key, *std::move(child));
        record(WorkerEvent::State::started, worker, 0);
        return;
    }
    WorkerExited exited{worker.launched_in, worker.local_rank, known_of(worker)};
    exited.failure->start_error = child.error().detail;
    exited.failure->may_start_later = child.error().code == Errc::overloaded;
    if (link_) {
        link_->forget(key);
    }
    ends_.drop(key);
    workers_.erase(key);
    on_event_(exited);
}

// ---- Signals.

void WorkerGroup::end_by(int signal, const std::vector<std::uint32_t>& local_ranks) {
    for (const std::uint32_t local_rank : local_ranks) {
        const auto found = at(local_rank);
        if (found == workers_.end()) {
            continue;
        }
        found->second.asked_to_end = true;
        if (found->second.pid != 0) {
            ends_.ask_to_end(found->first, signal);
        } else {
            cancel(found->first, signal);
        }
    }
}

void WorkerGroup::kill(std::uint32_t local_rank, const std::string& reason, bool by_silence) {
    if (const auto found = at(local_rank); found != workers_.end()) {
        found->second.hang = HangKill{reason, by_silence};
        if (found->second.pid != 0) {
            ends_.kill(found->first);
        } else {
            cancel(found->first, SIGKILL);
        }
    }
}

void WorkerGroup::cancel(std::uint64_t key, int signal) {
    starter_.cancel(key);
    ended(key, {ExitStatus::signalled(signal, false)});
    ends_.drop(key);
}

void WorkerGroup::forward(int signal) {
    for (const auto& [key, worker] : workers_) {
        if (worker.pid != 0 && !worker.would_only_end(signal)) {
            ends_.forward(key, signal);
        }
    }
}

bool WorkerGroup::would_only_end(int signal) const {
    return !workers_.empty() &&
           std::all_of(workers_.begin(), workers_.end(),
                       [signal](const auto& w) { return w.second.would_only_end(signal); });
}

// A worker that was started ahead counts as elastic: it is started ahead only if the others are.
bool WorkerGroup::WorkerProcess::would_only_end(int signal) const {
    const bool waits = assignment.round == RoundId::none;
    return (elastic || stops || waits) && pid != 0 && has_default(pid, signal);
}

// ---- Ends.

void WorkerGroup::ended(std::uint64_t key, const WorkerEnd& end) {
    if (link_) {
        link_->hear_out(key);  // Its last message may have the reason.
        link_->forget(key);
    }
    const WorkerProcess worker = std::move(workers_.extract(key).mapped());
    gpus_.forget(key);
    starter_.open_files_now();
    output_.drain(worker.local_rank);
    starter_.starts().look();
    const ExitStatus& status = end.status;
    WorkerExited exited{worker.launched_in, worker.local_rank, {}};
    const bool has_stopped = worker.page && (*worker.page)->stopped.load() != 0;
    exited.finished = worker.page && ((*worker.page)->finished.load() != 0 ||
                                      (worker.stops && status.success() && !has_stopped));
    exited.step = worker.page ? (*worker.page)->step.load() : 0;
    if (!status.success()) {
        exited.failure = failure_of(worker, end);
    } else if ((worker.elastic || worker.stops) && !exited.finished) {
        exited.unfinished = failure_of(worker, {ExitStatus::exited(1)});
        exited.unfinished->unfinished = true;
        if (!worker.elastic) {
            exited.unfinished->kind = rendezvous::FailureKind::retry;
        }
    }
    record(status.success()      ? WorkerEvent::State::succeeded
           : worker.asked_to_end ? WorkerEvent::State::terminated
                                 : WorkerEvent::State::failed,
           worker, status.signal != 0 ? -status.signal : status.exit_code);
    if (worker.pid != 0) {
        gpus_.add({worker.pid});
    }
    on_event_(exited);
    if (!status.success()) {
        gpus_.begin();  // No effect if the agent quits for this end.
    }
}

void WorkerGroup::kill_leftovers() {
    gpus_.stop();
    starter_.stop_fork_server();
    ends_.kill_leftovers();
}

WorkerFailure WorkerGroup::failure_of(const WorkerProcess& worker, const WorkerEnd& end) const {
    FailureFacts facts{end.status, worker.own_report, worker.hang};
    facts.oom_evidence = end.oom_evidence;
    if (worker.page) {
        facts.peer_error = peer_error_in(**worker.page);
    }
    return agent::failure_of(known_of(worker), facts);
}

WorkerFailure WorkerGroup::known_of(const WorkerProcess& worker) const {
    WorkerFailure known;
    known.rank = worker.assignment.first_rank + worker.local_rank;
    known.local_rank = worker.local_rank;
    known.pid = worker.pid;
    known.node = config_.offer.name;
    known.host = options_.full_host;
    known.time = local_time_text(std::time(nullptr));
    known.last_output = output_.last_output(worker.local_rank);
    known.log_file = output_.last_output_file(worker.local_rank);
    read_error_file(worker.error_file, known);
    return known;
}

void WorkerGroup::record(WorkerEvent::State state, const WorkerProcess& worker,
                         int exit_code) const {
    if (options_.on_event && worker.pid != 0) {
        options_.on_event(
            WorkerEvent{state, worker.assignment, worker.local_rank, worker.pid, exit_code});
    }
}

// ---- Views of the workers.

std::map<std::uint64_t, WorkerGroup::WorkerProcess>::iterator WorkerGroup::at(
    std::uint32_t local_rank) {
    return std::find_if(workers_.begin(), workers_.end(), [local_rank](const auto& worker) {
        return worker.second.local_rank == local_rank;
    });
}

std::vector<LiveWorker> WorkerGroup::live() const {
    std::vector<LiveWorker> result;
    for (const auto& [key, worker] : workers_) {
        if (ends_.is_running(key)) {
            result.push_back({worker.local_rank, worker.assignment.first_rank + worker.local_rank,
                              worker.pid, worker.assignment.round, link_ && link_->is_attached(key),
                              worker.page, worker.collectives});
        }
    }
    std::sort(result.begin(), result.end(),
              [](const LiveWorker& a, const LiveWorker& b) { return a.local_rank < b.local_rank; });
    return result;
}

std::uint64_t WorkerGroup::highest_step() const {
    std::uint64_t step = 0;
    for (const auto& [key, worker] : workers_) {
        if (worker.page) {
            step = std::max(step, (*worker.page)->step.load());
        }
    }
    return step;
}

}  // namespace regroup::agent
