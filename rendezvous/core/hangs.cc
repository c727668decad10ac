// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore handles a round that hangs: what the inquiry finds becomes evidence, and the
// round ends as after any failure.
#include <algorithm>
#include <csignal>
#include <utility>

#include "rendezvous/core/collective_judge.h"
#include "rendezvous/core/observe.h"

namespace regroup::rendezvous::core {

namespace {

// No agent will report this failure, so the daemon records it itself.
void add_hang(Job& job, WorkerFailure failure, std::optional<HangCulprit> culprit,
              bool all_wait = false) {
    const HangInquiry::Case& open = *job.round.hang.open();
    failure.kind = FailureKind::hang;
    const bool proven = culprit && culprit->proven();
    Cause::Hung cause{job.round.id, open.hang.text, std::move(culprit), all_wait,
                      job.round.finish.ranks};
    job.round.evidence.add({open.sign, Evidence::HangFound{failure, std::move(cause), proven}});
}

// The agent of the node ends the worker, with the round.
WorkerFailure ended_on(const Job& job, std::uint32_t rank, const NodeId& node) {
    WorkerFailure failure;
    failure.rank = rank;
    failure.node = name_of(job, node);
    failure.signal = SIGKILL;
    return failure;
}

// There is no process to end: the others are ended with the round. Nothing speaks against the node.
void add_hang_on_finished(Job& job, const HangCulprit& culprit) {
    WorkerFailure failure;
    failure.rank = culprit.rank;
    failure.local_rank = culprit.rank - job.round.seat_with(culprit.rank)->assignment.first_rank;
    failure.node = culprit.node;
    failure.exit_code = 1;
    failure.unfinished = true;
    failure.evidence = job.round.hang.open()->hang.text;
    add_hang(job, std::move(failure), culprit);
}

// The first rank that has finished, if any has, as the reason of a hang.
std::optional<HangCulprit> finished_culprit(const Round& round) {
    if (round.finish.ranks.empty()) {
        return std::nullopt;
    }
    HangCulprit culprit;
    culprit.kind = HangCulprit::Kind::finished;
    culprit.rank = round.finish.ranks.ranges().front().first;
    culprit.node = round.seat_with(culprit.rank)->name;
    return culprit;
}

std::string node_of(const Job& job, std::uint32_t rank) {
    return name_with(job, rank).value_or("a lost node");
}

/// Whether it is a hang that a rank is in a collective for long.
void judge_positions(Job& job, Instant now) {
    HangInquiry& inquiry = job.round.hang;
    const HangInquiry::Case& open = *inquiry.open();
    const std::vector<RankPosition> positions = inquiry.take_positions();
    // Others may have entered the collective a little later.
    const CollectiveVerdict verdict =
        judge_collectives(positions, open.hang.stood / 2, job.round.finish.ranks,
                          [&](std::uint32_t rank) { return node_of(job, rank); });
    if (!verdict.hangs()) {
        inquiry.dismiss(now);
        return;
    }
    inquiry.confirm(now, verdict.culprit, verdict.culprit ? open.hang.text : verdict.all_entered,
                    working(job));
    // The node may have left since.
    const auto found = job.nodes.find(open.node);
    JobEvent& event = found == job.nodes.end()
                          ? note(job, now, JobEvent::Kind::hanging)
                          : note(job, now, JobEvent::Kind::hanging, found->second);
    event.detail = Cause(
        Cause::Hung{job.round.id, open.hang.text, open.culprit, false, job.round.finish.ranks});
}

void end_culprit(Job& job, Instant now, const std::optional<HangCulprit>& culprit, bool all_wait) {
    HangInquiry& inquiry = job.round.hang;
    const HangInquiry::Case& open = *inquiry.open();
    if (culprit && culprit->kind == HangCulprit::Kind::finished) {
        add_hang_on_finished(job, *culprit);
        return;
    }
    const std::optional<NodeId> owner = culprit ? node_with(job, culprit->rank) : std::nullopt;
    if (!owner || job.nodes.at(*owner).place != Place::working) {
        add_hang(job, ended_on(job, open.hang.rank, open.node), std::nullopt, !culprit && all_wait);
        return;
    }
    inquiry.accuse(now, *culprit, *owner);
    job.outbox.concern(job.nodes.at(*owner));
}

/// The members have told what they will.
void conclude_stage(Job& job, Instant now) {
    HangInquiry& inquiry = job.round.hang;
    const HangInquiry::Case& open = *inquiry.open();
    if (open.stage == HangInquiry::Stage::asking) {
        judge_positions(job, now);
    } else if (open.hang.in_collective && open.hang.only_told) {
        inquiry.leave_alone();
    } else if (open.hang.in_collective) {
        end_culprit(job, now, open.culprit, true);
    } else {
        const std::vector<RankPosition> positions = inquiry.take_positions();
        const std::optional<HangCulprit> culprit =
            inquiry.suspect(positions, finished_culprit(job.round),
                            [&](std::uint32_t rank) { return node_of(job, rank); });
        end_culprit(job, now, culprit, !positions.empty());
    }
}

}  // namespace

void observe_hang(Job& job, Instant now, const NodeId& id, const Node& node) {
    Round& round = job.round;
    const std::uint32_t alarm = round.hang.open() ? round.hang.open()->alarm : 0;
    switch (round.hang.heard(now, id, node.report, working(job))) {
        case HangInquiry::News::none:
            break;
        case HangInquiry::News::opened:
            note(job, now, JobEvent::Kind::hanging, node).detail =
                Cause(Cause::Hung{round.id, node.report.hang->text, {}, false, round.finish.ranks});
            break;
        case HangInquiry::News::answered:
            conclude_stage(job, now);
            break;
    }
    // The orders of all members may have changed.
    if (round.hang.open() && round.hang.open()->alarm != alarm) {
        concern_members(job);
    }
}

void overdue_inquiry(Job& job, Instant now) {
    HangInquiry& inquiry = job.round.hang;
    const HangInquiry::Case& open = *inquiry.open();
    switch (open.stage) {
        case HangInquiry::Stage::ending:
            add_hang(job, ended_on(job, open.culprit->rank, open.culprit_node), open.culprit);
            return;
        case HangInquiry::Stage::moving:
            inquiry.ask(now, working(job));
            break;
        case HangInquiry::Stage::asking:
        case HangInquiry::Stage::saving:
            conclude_stage(job, now);
            break;
        case HangInquiry::Stage::told:
            return;
    }
    concern_members(job);
}

}  // namespace regroup::rendezvous::core
