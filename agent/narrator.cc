// SPDX-License-Identifier: Apache-2.0
#include "agent/narrator.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "agent/text/cause_text.h"
#include "agent/text/failure_text.h"
#include "agent/text/progress_text.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/text/describe.h"

namespace regroup::agent {
namespace {

// The first failed attempts to reach the daemon are silent: it often starts a moment later.
constexpr Duration kTroubleFirst = std::chrono::milliseconds(500);
constexpr Duration kTroubleLimit = std::chrono::seconds(30);
// Each answer of the daemon says why a node waits. The narrator prints it after one second (a
// little less, because of the daemon's own clock), then at intervals that double.
constexpr Duration kNoticeFirst = std::chrono::milliseconds(900);
constexpr Duration kNoticeLimit = std::chrono::seconds(27);

// Ranks have finished, and others go on: the pause between the first two lines, and the longest.
constexpr Duration kFinishFirst = std::chrono::seconds(30);
constexpr Duration kFinishLimit = std::chrono::minutes(10);
// Without a terminal, the pause between two lines about the same wait.
constexpr Duration kProgressInterval = std::chrono::seconds(10);

std::string round_name(RoundId round) {
    return "round " + std::to_string(number(round));
}

// "ended by SIGKILL", without a rank: a waiting worker has none.
std::string end_of(const WorkerFailure& failure) {
    return failure.signal != 0           ? "ended by " + rendezvous::signal_name(failure.signal)
           : failure.start_error.empty() ? "exited with code " + std::to_string(failure.exit_code)
                                         : "could not start: " + failure.start_error;
}

std::string rank_range(std::uint32_t first, std::uint32_t count) {
    return count == 1 ? "rank " + std::to_string(first)
                      : "ranks " + std::to_string(first) + "-" + std::to_string(first + count - 1);
}

}  // namespace

Narrator::Narrator(const Clock& clock, OutputRelay& output, const AgentOptions& options,
                   const AgentCore& core)
    : clock_(clock), output_(output), options_(options), core_(core) {
    finish_interval_ = kFinishFirst;
    waits();
}

void Narrator::connected() {
    trouble_count_ = 0;
    heard_ = false;
}

void Narrator::disconnected(const std::string& peer) {
    waiting_.reset();
    output_.show_progress("");
    // trouble() reports connections to other programs and to daemons that do not lead.
    if (core_.leaving() || !std::exchange(heard_, false)) {
        return;
    }
    output_.say("lost the connection to the rendezvous at " + peer + "; reconnecting" +
                (core_.has_workers() ? ", the workers go on meanwhile" : ""));
    lost_ = true;
}

void Narrator::received(const rendezvous::FromDaemon& message, const std::string& peer) {
    heard_ = true;
    if (std::exchange(lost_, false) && !core_.leaving()) {
        output_.say("the rendezvous is back at " + peer);
    }
    if (const auto* waiting = std::get_if<rendezvous::Waiting>(&message)) {
        tell_waiting(*waiting, peer);
    } else if (const auto* alive = std::get_if<rendezvous::Alive>(&message)) {
        tell_partial_finish(alive->partial_finish);
    } else if (const auto* stop = std::get_if<rendezvous::Stop>(&message)) {
        if (core_.report().state == rendezvous::NodeState::running) {
            output_.say_of_job("stopping " + round_name(stop->round) + ": " +
                               describe(stop->reason));
        }
    } else if (const auto* fenced = std::get_if<rendezvous::Fenced>(&message)) {
        output_.say("fenced by the rendezvous: " + describe(fenced->reason) + "; joining again");
    }
}

void Narrator::tell_waiting(const rendezvous::Waiting& waiting, const std::string& peer) {
    was_standby_ = was_standby_ || waiting.standby;
    if (waiting.standby && failure_) {
        // The job goes on without this node, so no verdict will report the failure soon.
        report_failure(describe(*failure_), true);
    }
    const Instant now = clock_.now();
    // A standby may wait for hours, so its first line comes at once.
    const bool is_first_of_standby = waiting.standby && notice_interval_ == kNoticeFirst;
    if (now < notice_at_ && !is_first_of_standby) {
        return;
    }
    waiting_ = waiting;
    waiting_at_ = peer;
    if (options_.announces &&
        output_.show_progress(waiting_text(waiting) + waiting_place(waiting, peer))) {
        return;
    }
    notice_interval_ = std::min(2 * notice_interval_, kNoticeLimit);
    notice_at_ = after(now, notice_interval_);
    if (waiting.standby) {
        output_.say(waiting_text(waiting));
    } else {
        output_.say_of_job(waiting_text(waiting), waiting_place(waiting, peer), "waiting");
    }
}

// Each answer of the daemon says it, for as long as it is so.
void Narrator::tell_partial_finish(const rendezvous::PartialFinish& finish) {
    const Instant now = clock_.now();
    if (!finish.is_known()) {
        finish_interval_ = kFinishFirst;
        finish_at_ = now;
    } else if (now >= finish_at_) {
        const std::string round = round_name(core_.assignment().round);
        output_.say_of_job(round + ": " + describe(finish), "", "finish of " + round);
        finish_at_ = after(now, finish_interval_);
        finish_interval_ = std::min(2 * finish_interval_, kFinishLimit);
    }
}

std::string Narrator::waiting_text(const rendezvous::Waiting& waiting) const {
    if (waiting.standby) {
        const bool has_run = core_.assignment().round != RoundId::none;
        return "waiting as a standby of job " + options_.core.job +
               (waiting.other_command
                    ? ", which runs another command than this node: this node may never run "
                      "(another job needs another --rdzv-id); "
                : has_run ? ": "
                          : ", and may never run: ") +
               describe(waiting.detail);
    }
    const std::string other =
        waiting.other_command ? "; its nodes run another command than this one (another job needs "
                                "another --rdzv-id)"
                              : "";
    return "waiting: " + describe(waiting.detail) + other;
}

std::string Narrator::waiting_place(const rendezvous::Waiting& waiting,
                                    const std::string& peer) const {
    if (waiting.standby) {
        return "";
    }
    std::string names;
    for (const std::string& name : waiting.joined) {
        names += (names.empty() ? "" : ", ") + name;
    }
    const Duration left = core_.give_up_at() == Instant::max() ? options_.core.join_timeout
                                                               : core_.give_up_at() - clock_.now();
    return " (here: " + names + "; at " + peer + "; for up to " +
           format_duration(std::max(Duration::zero(), left)) + ")";
}

void Narrator::progress(std::span<const WorkerLook> looks) {
    if (!options_.announces) {
        return;  // The output is that of torchrun.
    }
    const Instant now = clock_.now();
    const rendezvous::NodeReport& report = core_.report();
    std::string line = parting_text(core_.parting(), now);
    const bool waits = line.empty() && waiting_ && report.state == rendezvous::NodeState::stopped;
    if (waits) {
        line = waiting_text(*waiting_) + waiting_place(*waiting_, waiting_at_);
    } else if (line.empty() && report.elastic && report.state == rendezvous::NodeState::running) {
        line = joining_text(looks, report.round, options_.core.offer.workers);
    }
    // A transfer between two calls is too short to be shown.
    const std::string transfer = transfer_text(looks);
    if (std::exchange(transfers_, !transfer.empty()) && transfers_) {
        line += (line.empty() ? "" : "; ") + transfer;
    }
    // tell_waiting() has times of its own for lines.
    if (output_.show_progress(line) || line.empty() || waits) {
        progress_at_ = after(now, kProgressInterval);
    } else if (now >= progress_at_) {
        output_.say(line);
        progress_at_ = after(now, kProgressInterval);
    }
}

void Narrator::waits() {
    if (!std::exchange(waits_, true)) {
        notice_interval_ = kNoticeFirst;
        notice_at_ = after(clock_.now(), kNoticeFirst);
    }
}

void Narrator::silent(const std::string& peer) {
    output_.say("the rendezvous at " + peer + " has been silent for " +
                format_duration(options_.core.policy.heartbeat_timeout) + "; reconnecting");
}

void Narrator::trouble(const std::string& reason, bool answered) {
    const Instant now = clock_.now();
    if (trouble_count_++ == 0) {
        trouble_interval_ = kTroubleFirst;
        trouble_at_ = after(now, trouble_interval_);
    }
    // The answer of each endpoint that is no daemon is printed once, without delay.
    const bool is_news =
        answered && answers_.size() < kAnswersMax && answers_.insert(reason).second;
    if (is_news || now >= trouble_at_) {
        const bool trains =
            core_.report().elastic && core_.report().state == rendezvous::NodeState::running;
        const Duration left = core_.give_up_at() == Instant::max() ? options_.core.join_timeout
                                                                   : core_.give_up_at() - now;
        const bool finished = core_.report().state == rendezvous::NodeState::finished;
        const std::string limit =
            format_duration(std::max(Duration::zero(), left)) + " (--join-timeout)";
        output_.say(
            reason +
            (core_.draining() && !finished ? "; the workers save without it if it stays away"
             : trains                      ? "; the workers go on; trying again for " + limit +
                            ", and each committed step begins this time anew"
             : finished ? "; the workers here have succeeded; trying to report it for " + limit
                        : "; trying again for " + limit));
        trouble_interval_ = std::min(trouble_interval_ * 2, kTroubleLimit);
        trouble_at_ = after(now, trouble_interval_);
    }
}

void Narrator::round_begins(const Assignment& assignment) {
    output_.show_progress("");
    if (failure_) {
        // Only the next round began because of this failure.
        const bool is_next = number(assignment.round) == number(failure_round_) + 1;
        report_failure(describe(assignment.reason),
                       !is_next || assignment.failed_rank == failure_->rank);
    }
    waits_ = false;
    waiting_.reset();
    if (!options_.announces) {
        return;
    }
    const auto& offer = options_.core.offer;
    const std::string place =
        round_name(assignment.round) + ": " + rank_range(assignment.first_rank, offer.workers) +
        " of " + std::to_string(assignment.world_size) + " on node " + offer.name +
        " (group rank " + std::to_string(assignment.group_rank) + " of " +
        std::to_string(assignment.group_world_size) + "), master " +
        rendezvous::Endpoint{assignment.master_addr, assignment.master_port}.text();
    const std::string reason = ": " + describe(assignment.reason);
    if (!output_.prints_job_lines()) {
        output_.say_of_job(round_name(assignment.round) + " begins" + reason);
    }
    output_.say(place + (output_.prints_job_lines() ? reason : ""));
}

void Narrator::pauses(const PauseWorkers& effect) {
    const bool trains = core_.report().state == rendezvous::NodeState::running;
    std::string text = (effect.leave ? "leaving " : "changing ") + round_name(effect.round) +
                       (trains ? " at the next step boundary: " : ", saving what state it has: ") +
                       text_of(effect.cause);
    if (text != last_pause_) {  // The core repeats the effect for workers that suspend later.
        output_.say_of_job(text);
        last_pause_ = std::move(text);
    }
}

void Narrator::started_ahead(const PrestartWorkers& effect) {
    if (options_.announces) {
        output_.say(counted(effect.local_ranks.size(), "worker") +
                    " started ahead, to take a place at once");
    }
}

void Narrator::killed_late(const SignalWorkers& effect) {
    if (effect.force() && !effect.waiting) {
        output_.say("killing the workers of " + round_name(effect.round) +
                    (effect.hurried ? " at once" : " that have not ended in time"));
    }
}

void Narrator::waits_for_work(const TellAtWork& effect) {
    output_.say("workers of " + round_name(effect.round) +
                " are in user code and cannot hear that it is over; the agent waits for at most " +
                format_duration(effect.left) + ", so that their state is not lost");
}

void Narrator::hangs(const KillWorker& effect) {
    output_.say("killing rank " +
                std::to_string(core_.assignment().first_rank + effect.local_rank) +
                " because the round hangs: " + describe(effect.reason));
}

void Narrator::exited(const WorkerExited& exited) {
    const std::optional<WorkerFailure> counted_as = core_.failure_in(exited);
    if (!counted_as) {
        return;
    }
    const WorkerFailure& failure = *counted_as;
    if (core_.is_suspended(exited.local_rank) && !core_.leaving()) {
        output_.say("a waiting worker has ended: local rank " + std::to_string(exited.local_rank) +
                    ", pid " + std::to_string(failure.pid) + ", " + end_of(failure));
    } else if (!failure_ && (core_.report().state == rendezvous::NodeState::running ||
                             (failure.announced && !core_.leaving()))) {
        output_.say(describe(failure) +
                    (failure.pid != 0 ? ", pid " + std::to_string(failure.pid) : ""));
        failure_ = failure;
        failure_round_ = core_.report().round;
    }
}

void Narrator::quits(const std::optional<rendezvous::Verdict>& verdict) {
    if (failure_ && (!verdict || !verdict->failure)) {
        report_failure(describe(*failure_), true);
    }
}

/// Prints the full report if our failure is the cause, else one line. Only the SDK knows whether an
/// error came from another rank.
void Narrator::report_failure(const std::string& cause, bool is_ours) {
    if (is_ours) {
        std::vector<std::string> report = failure_lines(*failure_);
        report.insert(report.begin(),
                      "regroup: failure report of " + round_name(failure_round_) + ":");
        output_.say_lines(report);
    } else {
        const bool follows = failure_->peer_error != rendezvous::PeerError::none;
        output_.say(describe(*failure_) +
                    (follows ? " as a consequence of: " : "; the round ended because ") + cause);
    }
    failure_.reset();
}

}  // namespace regroup::agent
