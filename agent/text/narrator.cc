// SPDX-License-Identifier: Apache-2.0
#include "agent/text/narrator.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "agent/text/cause_text.h"
#include "agent/text/failure_text.h"
#include "agent/text/names.h"
#include "agent/text/progress_text.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/base/text.h"
#include "rendezvous/client/endpoint.h"
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

}  // namespace

Narrator::Narrator(Console& console, const AgentConfig& config, bool announces, Instant now)
    : console_(console), config_(config), announces_(announces), finish_{{}, kFinishFirst} {
    waits(now);
}

void Narrator::disconnected(const AgentView& node, const std::string& peer, bool was_heard) {
    waiting_.reset();
    console_.show_progress("");
    // trouble() reports connections to other programs and to daemons that do not lead.
    if (node.leaving || !was_heard) {
        return;
    }
    console_.say("lost the connection to the daemon at " + peer + "; reconnecting" +
                 (node.has_workers ? ", the workers go on meanwhile" : ""));
    lost_ = true;
}

void Narrator::received(Instant now, const AgentView& node, const rendezvous::FromDaemon& message,
                        const std::string& peer) {
    if (std::exchange(lost_, false) && !node.leaving) {
        console_.say("the daemon is back at " + peer);
    }
    if (const auto* waiting = std::get_if<rendezvous::Waiting>(&message)) {
        tell_waiting(now, node, *waiting, peer);
    } else if (const auto* alive = std::get_if<rendezvous::Alive>(&message)) {
        tell_partial_finish(now, node, alive->partial_finish);
    } else if (const auto* found = std::get_if<rendezvous::RankIsSlow>(&message)) {
        console_.say_of_job(describe(found->slow, found->node), "", "");
    } else if (const auto* stop = std::get_if<rendezvous::Stop>(&message)) {
        if (node.runs()) {
            console_.say_of_job(
                "stopping " + round_name(stop->round) + ": " + describe(stop->reason), "", "");
        }
    } else if (std::holds_alternative<rendezvous::Fenced>(message)) {
        console_.say("the daemon declared this node lost and removed it; rejoining");
    }
}

void Narrator::tell_waiting(Instant now, const AgentView& node, const rendezvous::Waiting& waiting,
                            const std::string& peer) {
    if (waiting.standby && failure_) {
        // The job goes on without this node, so no verdict will report the failure soon.
        report_failure(describe(*failure_), true);
    }
    // A standby may wait for hours, so its first line comes at once.
    const bool is_first_of_standby = waiting.standby && notice_.pause == kNoticeFirst;
    if (now < notice_.next && !is_first_of_standby) {
        return;
    }
    waiting_ = waiting;
    waiting_at_ = peer;
    const std::string text = waiting_text(node, waiting);
    const std::string place = waiting_place(now, node, waiting, peer);
    if (announces_ && console_.show_progress(text + place)) {
        return;
    }
    notice_.pause = std::min(2 * notice_.pause, kNoticeLimit);
    notice_.next = after(now, notice_.pause);
    if (waiting.standby) {
        console_.say(text);
    } else {
        console_.say_of_job(text, place, "waiting");
    }
}

// Each answer of the daemon says it, for as long as it is so.
void Narrator::tell_partial_finish(Instant now, const AgentView& node,
                                   const rendezvous::PartialFinish& finish) {
    if (!finish.is_known()) {
        finish_ = {now, kFinishFirst};
    } else if (now >= finish_.next) {
        const std::string round = round_name(node.assignment.round);
        console_.say_of_job(round + ": " + describe(finish), "", "finish of " + round);
        finish_.next = after(now, finish_.pause);
        finish_.pause = std::min(2 * finish_.pause, kFinishLimit);
    }
}

std::string Narrator::waiting_text(const AgentView& node,
                                   const rendezvous::Waiting& waiting) const {
    if (waiting.standby) {
        const bool has_run = node.assignment.round != RoundId::none;
        return "waiting as a standby of job " + config_.job +
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

std::string Narrator::waiting_place(Instant now, const AgentView& node,
                                    const rendezvous::Waiting& waiting,
                                    const std::string& peer) const {
    if (waiting.standby) {
        return "";
    }
    return " (here: " + joined(waiting.joined, ", ") + "; at " + peer + "; for up to " +
           patience_text(now, node) + ")";
}

std::string Narrator::patience_text(Instant now, const AgentView& node) const {
    const Duration left =
        node.give_up_at == Instant::max() ? config_.join_timeout : node.give_up_at - now;
    return format_duration(std::max(Duration::zero(), left));
}

void Narrator::progress(Instant now, const AgentView& node, std::span<const WorkerLook> looks) {
    if (!announces_) {
        return;  // The output is that of torchrun.
    }
    const rendezvous::NodeReport& report = node.report;
    std::string line = parting_text(node.parting, now);
    const bool waits = line.empty() && waiting_ && report.state == rendezvous::NodeState::stopped;
    if (waits) {
        line = waiting_text(node, *waiting_) + waiting_place(now, node, *waiting_, waiting_at_);
    } else if (line.empty() && report.elastic && node.runs()) {
        line = joining_text(looks, report.round, config_.offer.workers);
    }
    // A transfer between two calls is too short to be shown.
    const std::string transfer = transfer_text(looks);
    if (std::exchange(transfers_, !transfer.empty()) && transfers_) {
        line += (line.empty() ? "" : "; ") + transfer;
    }
    // tell_waiting() has times of its own for lines.
    if (console_.show_progress(line) || line.empty() || waits) {
        progress_at_ = after(now, kProgressInterval);
    } else if (now >= progress_at_) {
        console_.say(line);
        progress_at_ = after(now, kProgressInterval);
    }
}

void Narrator::waits(Instant now) {
    if (!std::exchange(waits_, true)) {
        notice_ = {after(now, kNoticeFirst), kNoticeFirst};
    }
}

void Narrator::silent(const std::string& peer) {
    console_.say("the daemon at " + peer + " has been silent for " +
                 format_duration(config_.policy.heartbeat_timeout) + "; reconnecting");
}

void Narrator::trouble(Instant now, const AgentView& node, const std::string& reason,
                       bool answered) {
    if (trouble_count_++ == 0) {
        trouble_ = {after(now, kTroubleFirst), kTroubleFirst};
    }
    // The answer of each endpoint that is no daemon is printed once, without delay.
    const bool is_news =
        answered && answers_.size() < kAnswersMax && answers_.insert(reason).second;
    if (is_news || now >= trouble_.next) {
        const bool trains = node.report.elastic && node.runs();
        const bool finished = node.report.state == rendezvous::NodeState::finished;
        const std::string limit = patience_text(now, node) + " (--join-timeout)";
        console_.say(reason +
                     (node.draining && !finished ? "; the workers save without it if it stays away"
                      : trains ? "; the workers go on; trying again for " + limit +
                                     ", and each committed step begins this time anew"
                      : finished
                          ? "; the workers here have succeeded; trying to report it for " + limit
                          : "; trying again for " + limit));
        trouble_.pause = std::min(trouble_.pause * 2, kTroubleLimit);
        trouble_.next = after(now, trouble_.pause);
    }
}

void Narrator::round_begins(const Assignment& assignment) {
    console_.show_progress("");
    if (failure_) {
        // Only the next round began because of this failure.
        const bool is_next = number(assignment.round) == number(failure_round_) + 1;
        report_failure(describe(assignment.reason),
                       !is_next || assignment.failed_rank == failure_->rank);
    }
    waits_ = false;
    waiting_.reset();
    if (!announces_) {
        return;
    }
    const auto& offer = config_.offer;
    const std::string place =
        round_name(assignment.round) + ": " +
        rank_range(assignment.first_rank, assignment.first_rank + offer.workers - 1) + " of " +
        std::to_string(assignment.world_size) + " on node " + offer.name + " (group rank " +
        std::to_string(assignment.group_rank) + " of " +
        std::to_string(assignment.group_world_size) + "), master " +
        rendezvous::Endpoint{assignment.master_addr, assignment.master_port}.text();
    const std::string reason = ": " + describe(assignment.reason);
    if (!console_.prints_job_lines()) {
        console_.say_of_job(round_name(assignment.round) + " begins" + reason, "", "");
    }
    console_.say(place + (console_.prints_job_lines() ? reason : ""));
}

void Narrator::pauses(const AgentView& node, const PauseWorkers& effect) {
    std::string text = (effect.leave ? "leaving " : "changing ") + round_name(effect.round) +
                       (node.runs() || !effect.leave ? " at the next step boundary: "
                                                     : ", saving what state it has: ") +
                       text_of(effect.cause);
    if (text != last_pause_) {  // The core repeats the effect for workers that suspend later.
        console_.say_of_job(text, "", "");
        last_pause_ = std::move(text);
    }
}

void Narrator::started_ahead(const PrestartWorkers& effect) {
    if (announces_) {
        console_.say("started " + counted(effect.local_ranks.size(), "spare worker") +
                     ", ready to replace a lost one");
    }
}

void Narrator::killed_late(const SignalWorkers& effect) {
    if (effect.force() && !effect.waiting) {
        console_.say("killing the workers of " + round_name(effect.round) +
                     (effect.hurried ? " at once" : " that have not ended in time"));
    }
}

void Narrator::waits_for_work(const TellAtWork& effect) {
    console_.say("workers of " + round_name(effect.round) +
                 " are in user code and cannot hear that it is over; the agent waits for at most " +
                 format_duration(effect.left) + ", so that their state is not lost");
}

void Narrator::hangs(const AgentView& node, const KillWorker& effect) {
    console_.say("killing rank " + std::to_string(node.assignment.first_rank + effect.local_rank) +
                 " because the round hangs: " + describe(effect.reason));
}

void Narrator::failed(const AgentView& node, const WorkerFailure& failure, bool was_suspended) {
    if (was_suspended && !node.leaving) {
        console_.say("a waiting worker has ended: local rank " +
                     std::to_string(failure.local_rank) + ", pid " + std::to_string(failure.pid) +
                     ", " + end_text(failure));
    } else if (!failure_ && (node.runs() || (failure.announced && !node.leaving))) {
        console_.say(describe(failure) +
                     (failure.pid != 0 ? ", pid " + std::to_string(failure.pid) : ""));
        if (!failure.has_stopped()) {  // Nothing is wrong with it.
            failure_ = failure;
            failure_round_ = node.report.round;
        }
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
        console_.say_lines(report);
    } else {
        const bool follows = failure_->peer_error != rendezvous::PeerError::none;
        console_.say(describe(*failure_) +
                     (follows ? " as a consequence of: " : "; the round ended because ") + cause);
    }
    failure_.reset();
}

}  // namespace regroup::agent
