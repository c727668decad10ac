// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore handles a round that hangs: agents save the stacks of all workers, then the
// worker that the others wait for is ended, and the round ends as after any failure.
#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include "rendezvous/core/hang_culprit.h"
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

namespace {

// Agents take at most 5 s for the stacks, and then need time to report.
constexpr Duration kStacksLimit = std::chrono::seconds(6);
// How long the daemon waits for the report that the culprit was ended.
constexpr Duration kEndLimit = std::chrono::seconds(10);

}  // namespace

void RendezvousCore::observe_hang(Instant now, const NodeId& id, const Node& node) {
    const NodeReport& report = node.report;
    if (report.hang) {
        round_.hanging.insert(id);
    } else {
        round_.hanging.erase(id);
    }
    std::optional<Inquiry>& inquiry = round_.inquiry;
    if (!inquiry) {
        // A node without progress may only be waiting for another node. The round hangs when all
        // working nodes report a hang.
        const std::size_t working = places_.count(Place::working);
        if (report.hang && (!report.hang->shared || round_.hanging.size() == working)) {
            begin_inquiry(now, id, *report.hang);
        }
    } else if (inquiry->culprit) {
        return;
    } else if (round_.hanging.empty()) {
        inquiry.reset();  // All workers make progress again.
    } else {
        // An answer to an earlier alarm, which was withdrawn, does not answer this one.
        if (report.alarm == inquiry->alarm) {
            inquiry->unanswered.erase(id);
        }
        if (inquiry->unanswered.empty() || now >= inquiry->deadline) {
            conclude_inquiry(now);
        }
    }
}

void RendezvousCore::begin_inquiry(Instant now, const NodeId& id, const Hang& hang) {
    round_.inquiry = Inquiry{id,
                             hang,
                             now - hang.stood,
                             after(now, kStacksLimit),
                             ++round_.alarms,
                             places_.in(Place::working),
                             std::nullopt,
                             {}};
    note(now, JobEvent::Kind::hanging, id, nodes_.at(id)).detail =
        Cause(Cause::Hung{round_.id, hang.text, {}, false, round_.finished_ranks});
    concern_members();
}

void RendezvousCore::conclude_inquiry(Instant now) {
    Inquiry& inquiry = *round_.inquiry;
    const std::set<NodeId>& working = places_.in(Place::working);
    std::vector<RankPosition> positions;
    for (const NodeId& id : working) {
        const NodeReport& report = nodes_.at(id).report;
        if (report.round == round_.id && !inquiry.unanswered.contains(id)) {
            positions.insert(positions.end(), report.positions.begin(), report.positions.end());
        }
    }
    const Hang& hang = inquiry.hang;
    const auto node_of = [this](std::uint32_t rank) {
        const std::optional<NodeId> id = node_with(rank);
        return id ? name_of(*id) : std::string("a lost node");
    };
    const bool any_stopped = std::any_of(positions.begin(), positions.end(),
                                         [](const RankPosition& p) { return p.stopped; });
    HangCulprit reported;
    reported.rank = hang.rank;
    reported.text = hang.text;
    std::optional<HangCulprit> culprit;
    if (!tell_nothing(positions)) {
        culprit = find_culprit(positions, hang.rank);
    } else if (hang.shared || any_stopped) {
        // The node that reported last completed the alarm; it is the least likely culprit.
        culprit = find_silent(positions, hang.rank, node_of);
    } else {
        culprit = reported;  // The workers are in their first step.
    }
    if (!culprit && !hang.shared && inquiry.unanswered.contains(inquiry.node)) {
        // All nodes that answered wait. The node that reported the hang has not answered, so they
        // wait for the rank that it named.
        culprit = reported;
    }
    // A rank that has finished takes part in nothing any more. Only a process that is stopped, or
    // that works and does not wait, may be the reason instead.
    const bool stands_alone =
        culprit && (culprit->kind == HangCulprit::Kind::stopped ||
                    culprit->kind == HangCulprit::Kind::behind ||
                    (culprit->kind == HangCulprit::Kind::reported && !hang.shared));
    if (const auto finished = finished_culprit(); finished && !stands_alone) {
        add_hang_on_finished(*finished);
        return;
    }
    const std::optional<NodeId> owner = culprit ? node_with(culprit->rank) : std::nullopt;
    if (!owner || !working.contains(*owner)) {
        const bool all_wait = !culprit && !positions.empty();
        add_hang({round_.id, hang.text, {}, all_wait, {}}, hang.rank, inquiry.node, false);
        return;
    }
    inquiry.culprit = std::move(culprit);
    inquiry.culprit_node = *owner;
    inquiry.deadline = after(now, kEndLimit);
    concern(*owner);
}

void RendezvousCore::overdue_inquiry(Instant now) {
    const Inquiry& inquiry = *round_.inquiry;
    if (!inquiry.culprit) {
        conclude_inquiry(now);
        return;
    }
    add_hang({round_.id, inquiry.hang.text, inquiry.culprit, false, {}}, inquiry.culprit->rank,
             inquiry.culprit_node, inquiry.culprit->proven());
}

// No agent will report this failure, so the daemon records it itself.
void RendezvousCore::add_hang(const Cause::Hung& cause, std::uint32_t rank, const NodeId& id,
                              bool proven) {
    WorkerFailure failure;
    failure.kind = FailureKind::hang;
    failure.rank = rank;
    failure.node = name_of(id);
    failure.signal = SIGKILL;  // Its agent ends it, with the round.
    Cause::Hung told = cause;
    told.finished = round_.finished_ranks;
    round_.evidence.add({round_.inquiry->sign, Evidence::HangFound{failure, told, proven}});
}

std::optional<HangCulprit> RendezvousCore::finished_culprit() const {
    if (round_.finished_ranks.empty()) {
        return std::nullopt;
    }
    HangCulprit culprit;
    culprit.kind = HangCulprit::Kind::finished;
    culprit.rank = round_.finished_ranks.ranges().front().first;
    // The node may have left since.
    const auto owner = std::prev(round_.by_rank.upper_bound(culprit.rank));
    const auto named =
        std::find_if(round_.roster.begin(), round_.roster.end(),
                     [&](const auto& entry) { return entry.first == owner->second; });
    culprit.node = named == round_.roster.end() ? "" : named->second;
    return culprit;
}

// There is no process to end: the others are ended with the round. Nothing speaks against the node.
void RendezvousCore::add_hang_on_finished(const HangCulprit& culprit) {
    const Inquiry& inquiry = *round_.inquiry;
    WorkerFailure failure;
    failure.kind = FailureKind::hang;
    failure.rank = culprit.rank;
    failure.local_rank = culprit.rank - std::prev(round_.by_rank.upper_bound(culprit.rank))->first;
    failure.node = culprit.node;
    failure.exit_code = 1;
    failure.unfinished = true;
    failure.evidence = inquiry.hang.text;
    const Cause::Hung cause{round_.id, inquiry.hang.text, culprit, false, round_.finished_ranks};
    round_.evidence.add({inquiry.sign, Evidence::HangFound{failure, cause, false}});
}

}  // namespace regroup::rendezvous
