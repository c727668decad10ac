// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore handles a round that hangs: what the inquiry finds becomes evidence, and the
// round ends as after any failure.
#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

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
    failure.local_rank =
        culprit.rank - std::prev(job.round.by_rank.upper_bound(culprit.rank))->first;
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
    // The node may have left since.
    const auto owner = std::prev(round.by_rank.upper_bound(culprit.rank));
    const auto named = std::ranges::find(round.roster, owner->second, &Round::Named::first);
    culprit.node = named == round.roster.end() ? "" : named->second;
    return culprit;
}

void conclude_inquiry(Job& job, Instant now) {
    HangInquiry& inquiry = job.round.hang;
    const HangInquiry::Case& open = *inquiry.open();
    const std::set<NodeId>& working = job.places.in(Place::working);
    std::vector<RankPosition> positions;
    for (const NodeId& id : working) {
        const NodeReport& report = job.nodes.at(id).report;
        if (report.round == job.round.id && !open.unanswered.contains(id)) {
            positions.insert(positions.end(), report.positions.begin(), report.positions.end());
        }
    }
    const std::optional<HangCulprit> culprit = inquiry.suspect(
        positions, finished_culprit(job.round),
        [&](std::uint32_t rank) { return name_with(job, rank).value_or("a lost node"); });
    if (culprit && culprit->kind == HangCulprit::Kind::finished) {
        add_hang_on_finished(job, *culprit);
        return;
    }
    const std::optional<NodeId> owner = culprit ? node_with(job, culprit->rank) : std::nullopt;
    if (!owner || !working.contains(*owner)) {
        const bool all_wait = !culprit && !positions.empty();
        add_hang(job, ended_on(job, open.hang.rank, open.node), std::nullopt, all_wait);
        return;
    }
    inquiry.accuse(now, *culprit, *owner);
    job.outbox.concern(*owner);
}

}  // namespace

void observe_hang(Job& job, Instant now, const NodeId& id, const Node& node) {
    Round& round = job.round;
    switch (round.hang.heard(now, id, node.report, job.places.in(Place::working))) {
        case HangInquiry::News::none:
            break;
        case HangInquiry::News::opened:
            note(job, now, JobEvent::Kind::hanging, id, node).detail =
                Cause(Cause::Hung{round.id, node.report.hang->text, {}, false, round.finish.ranks});
            concern_members(job);
            break;
        case HangInquiry::News::answered:
            conclude_inquiry(job, now);
            break;
    }
}

void overdue_inquiry(Job& job, Instant now) {
    const HangInquiry::Case& open = *job.round.hang.open();
    if (!open.culprit) {
        conclude_inquiry(job, now);
        return;
    }
    add_hang(job, ended_on(job, open.culprit->rank, open.culprit_node), open.culprit);
}

}  // namespace regroup::rendezvous::core
