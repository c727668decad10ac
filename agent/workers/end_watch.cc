// SPDX-License-Identifier: Apache-2.0
#include "agent/workers/end_watch.h"

#include <algorithm>
#include <csignal>
#include <unistd.h>
#include <utility>

#include "agent/process/process_tree.h"
#include "agent/process/warden.h"

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

}  // namespace

EndWatch::EndWatch(boost::asio::io_context& io, const Clock& clock, LinuxLauncher& launcher,
                   Handlers handlers)
    : clock_(clock),
      launcher_(launcher),
      handlers_(std::move(handlers)),
      io_(io),
      orphans_(io, launcher),
      look_timer_(io) {}

Result<void> EndWatch::open() {
    Result<std::unique_ptr<DeathWatch>> deaths =
        DeathWatch::start(io_, [this](std::uint64_t key) { marked_dead(key); });
    if (!deaths) {
        return deaths.error();
    }
    deaths_ = *std::move(deaths);
    return {};
}

void EndWatch::begin_round() {
    if (oom_watch_) {
        oom_watch_->begin_again();
    } else {
        oom_watch_.emplace();
    }
}

void EndWatch::started(std::uint64_t key, ChildProcess child) {
    Process& process = processes_.at(key);
    process.stage = Stage::running;
    process.child.emplace(std::move(child));
    process.child->async_wait(
        [this, key](ExitStatus status) { own_process_ended(key, status, true); });
}

void EndWatch::watch_page(std::uint64_t key, std::shared_ptr<SharedPage> page) {
    deaths_->add(key, std::move(page));
}

bool EndWatch::is_running(std::uint64_t key) const {
    const auto found = processes_.find(key);
    return found != processes_.end() && found->second.stage == Stage::running;
}

// ---- Signals.

void EndWatch::ask_to_end(std::uint64_t key, int signal) {
    Process& process = processes_.at(key);
    process.asked_by = signal;
    this->signal(process, signal);
    look_soon();
}

void EndWatch::kill(std::uint64_t key) {
    signal(processes_.at(key), SIGKILL);
}

void EndWatch::signal(Process& process, int signal) {
    process.forced = process.forced || signal == SIGKILL;
    send(process, signal);
    // A stopped process cannot answer SIGTERM.
    process.child->signal_group(SIGCONT);
}

void EndWatch::send(Process& process, int signal) {
    if (signal == SIGKILL) {
        process.child->signal_group(signal);
    } else if (process.rest_lives()) {
        process.signalled.clear();
        signal_rest(process, signal);
    } else {
        signal_in_order(process.child->pid(), signal);
    }
}

void EndWatch::signal_rest(Process& process, int signal) {
    for (const ProcessEntry& entry : rest_of(process)) {
        if (entry.parent == ::getpid() && process.signalled.insert(entry.pid).second) {
            signal_in_order(entry.pid, signal);
        }
    }
}

std::vector<ProcessEntry> EndWatch::rest_of(const Process& process) const {
    std::set<pid_t> spared = launcher_.children();
    spared.erase(process.child->pid());
    return rest_of_group(process.child->pid(), spared);
}

// ---- Ends.

void EndWatch::own_process_ended(std::uint64_t key, ExitStatus status, bool told) {
    Process& process = processes_.at(key);
    if (process.stage != Stage::told && rest_has_time(key, status, told)) {
        return;
    }
    if (told) {
        bury(key, status);
    } else {
        // Else the rest of its process group would live until the worker is reaped.
        process.child->signal_group(SIGKILL);
        may_have_leftovers_ = true;
        tell(key, status);
    }
}

bool EndWatch::rest_has_time(std::uint64_t key, ExitStatus status, bool told) {
    Process& process = processes_.at(key);
    const int signal = process.asked_by != 0        ? process.asked_by
                       : asks_to_end(status.signal) ? status.signal
                                                    : 0;
    if (signal == 0 || process.forced || rest_of(process).empty()) {
        return false;
    }
    const bool first = !process.rest_lives();
    process.stage = told ? Stage::ended : Stage::ending;
    process.status = status;
    signal_rest(process, signal);
    if (first) {
        process.child->signal_group(SIGCONT);
        look_soon();
        handlers_.on_ending(key, end_of(process, status));
    }
    return true;
}

void EndWatch::bury(std::uint64_t key, ExitStatus status) {
    Process& process = processes_.at(key);
    if (process.stage == Stage::told) {
        clear_places();
        processes_.erase(key);
        return;
    }
    process.stage = Stage::told;
    may_have_leftovers_ = true;
    const bool any_living = std::any_of(processes_.begin(), processes_.end(), [](const auto& peer) {
        return peer.second.stage != Stage::told;
    });
    // If its peers end too, they may still need the processes that it left behind until the last
    // one has ended.
    if (process.elastic) {
        process.child->signal_group(SIGKILL);
    }
    if (process.elastic || !any_living) {
        sweep_leftovers();
    }
    tell(key, status);
    processes_.erase(key);
}

void EndWatch::tell(std::uint64_t key, ExitStatus status) {
    Process& process = processes_.at(key);
    process.stage = Stage::told;
    handlers_.on_end(key, end_of(process, status));
    if (deaths_) {
        deaths_->remove(key);
    }
}

WorkerEnd EndWatch::end_of(const Process& process, ExitStatus status) {
    const bool killed_by_others = status.signal == SIGKILL && !process.forced;
    return {status,
            killed_by_others && oom_watch_ ? oom_watch_->evidence(process.child->pid()) : ""};
}

void EndWatch::clear_places() {
    if (may_have_leftovers_) {
        sweep_leftovers();
    }
}

void EndWatch::sweep_leftovers() {
    may_have_leftovers_ = false;
    std::set<pid_t> spared = launcher_.children();  // The workers, and tools that inspect them.
    std::set<pid_t> ending;
    for (const auto& [key, process] : processes_) {
        if (process.stage == Stage::told) {
            ending.insert(process.child->pid());
            spared.erase(process.child->pid());
        } else if (process.rest_lives()) {
            for (const ProcessEntry& entry : rest_of(process)) {
                spared.insert(entry.pid);
            }
        }
    }
    sweep(spared, ending);
}

void EndWatch::sweep(const std::set<pid_t>& spared, const std::set<pid_t>& ending) {
    const TreeKill result = kill_descendants(clock_, after(clock_.now(), kTreeLimit),
                                             launcher_.children(), spared, ending);
    handlers_.on_killed(result.killed);
    if (!result.survivors.empty()) {
        handlers_.say("cannot end " + describe(result.survivors) + ", left behind by a worker");
    }
}

// ---- Looks at workers that may have ended.

void EndWatch::marked_dead(std::uint64_t key) {
    const auto found = processes_.find(key);
    if (found == processes_.end() || found->second.stage == Stage::told) {
        return;
    }
    found->second.looks = kLooksMax;
    look_at(key);
    look_soon();
}

void EndWatch::look_soon() {
    look_interval_ = kLookFirst;
    look_again();
}

void EndWatch::look_again() {
    const bool wanted = std::any_of(processes_.begin(), processes_.end(),
                                    [](const auto& p) { return p.second.wants_look(); });
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
            if (process.wants_look()) {
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

void EndWatch::look_at(std::uint64_t key) {
    const auto found = processes_.find(key);
    if (found == processes_.end()) {
        return;
    }
    const Process& process = found->second;
    if (process.rest_lives()) {
        own_process_ended(key, process.status, process.stage == Stage::ended);
    } else if (process.stage == Stage::running) {
        const pid_t pid = process.child->pid();
        const std::optional<ExitStatus> status = read_exit(pid);
        // A worker without a link is not fenced: all its threads must have stopped.
        if (status && (process.looks > 0 || runs_no_more(pid))) {
            own_process_ended(key, *status, false);
        }
    }
}

}  // namespace regroup::agent
