// SPDX-License-Identifier: Apache-2.0
//
// How a WorkerGroup signals processes and sees them end.
#include <algorithm>
#include <csignal>
#include <ctime>
#include <unistd.h>
#include <utility>

#include "agent/process/proc_files.h"
#include "agent/process/process_tree.h"
#include "agent/process/warden.h"
#include "agent/workers/error_file.h"
#include "agent/workers/worker_group.h"

namespace regroup::agent {

namespace {

// Time limit for killing the descendants of a worker.
constexpr Duration kTreeLimit = std::chrono::seconds(5);
// Interval of checks on workers that are about to end. A check takes some ten microseconds.
constexpr Duration kLookFirst = std::chrono::milliseconds(1);
constexpr Duration kLookLongest = std::chrono::milliseconds(50);
// After so many checks only the pidfd counts: the process has executed another program, or ends
// with success.
constexpr int kLooksMax = 8;

// A process that ends by one of these was asked to, by a person or a scheduler. Others are crashes.
bool asks_to_end(int signal) {
    return std::find(kAgentSignals.begin(), kAgentSignals.end(), signal) != kAgentSignals.end();
}

std::string wall_clock_time() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    ::localtime_r(&now, &local);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
    return text;
}

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

void WorkerGroup::end_by(int signal, const std::vector<std::uint32_t>& local_ranks) {
    for (const std::uint32_t local_rank : local_ranks) {
        if (const std::uint64_t key = living(local_rank); key != 0) {
            Process& process = processes_.at(key);
            process.asked_by = signal;
            process.forced = process.forced || signal == SIGKILL;
            this->signal(key, signal);
        }
    }
    look_soon();
}

void WorkerGroup::signal(std::uint64_t key, int signal) {
    Process& process = processes_.at(key);
    if (process.child) {
        send(process, signal);
        // A stopped process cannot answer SIGTERM.
        process.child->signal_group(SIGCONT);
    } else {
        fork_server_->cancel(*process.launch);
        tell_end(key, ExitStatus::signalled(signal, false));
        processes_.erase(key);
    }
}

void WorkerGroup::send(Process& process, int signal) {
    if (signal == SIGKILL) {
        process.child->signal_group(signal);
    } else if (process.ended) {
        process.signalled.clear();
        signal_rest(process, signal);
    } else {
        signal_in_order(process.child->pid(), signal);
    }
}

void WorkerGroup::signal_rest(Process& process, int signal) {
    for (const ProcessEntry& entry : rest_of(process)) {
        if (entry.parent == ::getpid() && process.signalled.insert(entry.pid).second) {
            signal_in_order(entry.pid, signal);
        }
    }
}

void WorkerGroup::kill(std::uint32_t local_rank, const std::string& reason, bool by_silence) {
    if (const std::uint64_t key = living(local_rank); key != 0) {
        processes_.at(key).hung = reason;
        processes_.at(key).hung_by_silence = by_silence;
        signal(key, SIGKILL);
    }
}

void WorkerGroup::reaped(std::uint64_t key, ExitStatus status) {
    processes_.at(key).waitable = true;
    own_process_ended(key, status);
}

void WorkerGroup::own_process_ended(std::uint64_t key, ExitStatus status) {
    Process& process = processes_.at(key);
    if (!process.told && rest_has_time(key, status)) {
        return;
    }
    if (process.waitable) {
        bury(key, status);
    } else {
        // Else the rest of its process group would live until the worker is reaped.
        process.child->signal_group(SIGKILL);
        tell_end(key, status);
    }
}

bool WorkerGroup::rest_has_time(std::uint64_t key, ExitStatus status) {
    Process& process = processes_.at(key);
    const int signal = process.asked_by != 0        ? process.asked_by
                       : asks_to_end(status.signal) ? status.signal
                                                    : 0;
    if (signal == 0 || process.forced || !process.hung.empty() || rest_of(process).empty()) {
        return false;
    }
    const bool first = !process.ended;
    process.ended = status;
    signal_rest(process, signal);
    if (first) {
        process.child->signal_group(SIGCONT);
        WorkerEnding ending{process.launched_in, process.local_rank};
        if (!status.success()) {
            ending.failure = failure_of(process, status);
        }
        look_soon();
        on_event_(ending);
    }
    return true;
}

std::vector<ProcessEntry> WorkerGroup::rest_of(const Process& process) const {
    std::set<pid_t> spared = launcher_.children();
    spared.erase(process.child->pid());
    return rest_of_group(process.child->pid(), spared);
}

void WorkerGroup::bury(std::uint64_t key, ExitStatus status) {
    Process& process = processes_.at(key);
    const bool told_before = process.told;
    const bool others_stay = process.elastic || told_before;
    std::set<pid_t> spared = launcher_.children();  // Its peers, and tools that inspect them.
    spared.erase(process.child->pid());
    for (const auto& [other, peer] : processes_) {
        if (other != key && peer.ended && !peer.told) {
            for (const ProcessEntry& entry : rest_of(peer)) {
                spared.insert(entry.pid);
            }
        }
    }
    const bool any_living =
        std::any_of(processes_.begin(), processes_.end(),
                    [&](const auto& other) { return other.first != key && !other.second.told; });
    // Processes that a worker left behind must be gone before the next round. If its peers end too,
    // they may still need them until the last one has ended.
    if (others_stay || !any_living) {
        if (others_stay) {
            process.child->signal_group(SIGKILL);
        }
        sweep(spared);
    }
    if (!told_before) {
        tell_end(key, status);
    }
    processes_.erase(key);
}

void WorkerGroup::marked_dead(std::uint64_t key) {
    const auto found = processes_.find(key);
    if (found == processes_.end() || found->second.told) {
        return;
    }
    found->second.looks = kLooksMax;
    look_at(key);
    look_soon();
}

bool WorkerGroup::wants_look(const Process& process) {
    return !process.told && (process.asked_by != 0 || process.ended || process.looks > 0);
}

void WorkerGroup::look_soon() {
    look_interval_ = kLookFirst;
    look_again();
}

void WorkerGroup::look_again() {
    const bool wanted = std::any_of(processes_.begin(), processes_.end(),
                                    [](const auto& p) { return wants_look(p.second); });
    if (!wanted) {
        look_timer_.cancel();
        return;
    }
    look_timer_.expires_after(look_interval_);
    look_timer_.async_wait([this](const boost::system::error_code& error) {
        if (error) {
            return;
        }
        std::vector<std::uint64_t> keys;
        for (auto& [key, process] : processes_) {
            if (wants_look(process)) {
                process.looks = std::max(0, process.looks - 1);
                keys.push_back(key);
            }
        }
        for (const std::uint64_t key : keys) {
            look_at(key);
        }
        look_interval_ = std::min(look_interval_ * 2, kLookLongest);
        look_again();
    });
}

void WorkerGroup::look_at(std::uint64_t key) {
    const auto found = processes_.find(key);
    if (found == processes_.end() || found->second.told || !found->second.child) {
        return;
    }
    if (found->second.ended) {
        own_process_ended(key, *found->second.ended);
        return;
    }
    const pid_t pid = found->second.child->pid();
    const std::optional<ExitStatus> status = read_exit(pid);
    // A worker without a link is not fenced: all its threads must have stopped.
    if (status && (found->second.looks > 0 || runs_no_more(pid))) {
        own_process_ended(key, *status);
    }
}

void WorkerGroup::tell_end(std::uint64_t key, ExitStatus status) {
    if (link_) {
        link_->hear_out(key);  // Its last message may have the reason.
    }
    Process& process = processes_.at(key);
    process.told = true;
    open_files_now();
    output_.drain(process.local_rank);
    const bool finished = process.page && (*process.page)->finished.load() != 0;
    WorkerExited exited{process.launched_in, process.local_rank, {}, finished};
    exited.step = process.page ? (*process.page)->step.load() : 0;
    if (!status.success()) {
        exited.failure = failure_of(process, status);
    } else if (process.elastic && !finished) {
        exited.unfinished = failure_of(process, ExitStatus::exited(1));
        exited.unfinished->unfinished = true;
    }
    record(status.success()        ? WorkerEvent::State::succeeded
           : process.asked_by != 0 ? WorkerEvent::State::terminated
                                   : WorkerEvent::State::failed,
           process, status.signal != 0 ? -status.signal : status.exit_code);
    if (deaths_) {
        deaths_->remove(key);
    }
    if (link_) {
        link_->forget(key);
    }
    on_event_(exited);
}

void WorkerGroup::kill_leftovers() {
    if (fork_server_) {
        fork_server_->stop();  // It may be our caller.
    }
    sweep({});
}

void WorkerGroup::sweep(const std::set<pid_t>& spared) {
    const TreeKill result =
        kill_descendants(clock_, after(clock_.now(), kTreeLimit), launcher_.children(), spared);
    if (!result.survivors.empty()) {
        output_.say("cannot end " + describe(result.survivors) + ", left behind by a worker");
    }
}

WorkerFailure WorkerGroup::failure_of(const Process& process, ExitStatus status) {
    WorkerFailure failure = failure_of(process);
    failure.exit_code = status.exit_code;
    failure.signal = status.signal;
    failure.core_dumped = status.core_dumped;
    if (process.page && process.hung.empty()) {
        failure.peer_error = peer_error_in(**process.page);
    }
    if (!process.hung.empty()) {
        failure.kind = rendezvous::FailureKind::hang;
        failure.evidence = process.hung;
        failure.by_silence = process.hung_by_silence;
    } else if (process.fatal) {
        add_own_words(process, failure);
    }
    if (status.signal == SIGXFSZ) {
        failure.evidence =
            "a file, or memory that it shares with other ranks, was to become larger than ulimit "
            "-f allows";
    } else if (status.signal == SIGXCPU) {
        failure.evidence = "it has used the CPU time that ulimit -t allows";
    }
    if (status.signal == SIGKILL && !process.forced && process.hung.empty() && oom_watch_ &&
        process.child) {
        failure.evidence = oom_watch_->evidence(process.child->pid());
    }
    return failure;
}

WorkerFailure WorkerGroup::failure_of(const Process& process) {
    WorkerFailure result;
    result.rank = process.assignment.first_rank + process.local_rank;
    result.local_rank = process.local_rank;
    result.node = config_.offer.name;
    result.host = options_.full_host;
    result.time = wall_clock_time();
    result.last_output = output_.last_output(process.local_rank);
    result.log_file = output_.last_output_file(process.local_rank);
    read_error_file(process.error_file, result);
    if (process.child) {
        result.pid = process.child->pid();
    }
    return result;
}

void WorkerGroup::record(WorkerEvent::State state, const Process& process, int exit_code) const {
    if (options_.on_event && process.child) {
        options_.on_event(WorkerEvent{state, process.assignment, process.local_rank,
                                      process.child->pid(), exit_code});
    }
}

}  // namespace regroup::agent
