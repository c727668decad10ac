// SPDX-License-Identifier: Apache-2.0
//
// What a RendezvousCore does about a round that hangs: the stacks of all workers are saved, then
// the one that the others wait for is ended, and the round stops as for any failure.
#include <algorithm>
#include <utility>

#include "rendezvous/core/rendezvous_core.h"
#include "rendezvous/core/wording.h"

namespace regroup::rendezvous {

namespace {

// Agents give themselves 5 s for the stacks, and must say so.
constexpr Duration kStacksLimit = std::chrono::seconds(6);
// A worker that was to be ended by force, and of which nothing is heard so long.
constexpr Duration kEndLimit = std::chrono::seconds(10);

}  // namespace

void RendezvousCore::consider_hang(Instant now, const NodeId& id, const Node& node) {
    const NodeReport& report = node.report;
    const bool hangs = report.round == round_ && report.hang.has_value();
    if (hangs) {
        hanging_.insert(id);
    } else {
        hanging_.erase(id);
    }
    if (!inquiry_) {
        if (hangs && (!report.hang->shared || hanging_.size() == awaited_.size())) {
            begin_inquiry(now, id, *report.hang);
        }
    } else if (inquiry_->culprit) {
        if (id == inquiry_->culprit_node) {
            effects_.push_back(
                {id, EndWorker{round_, inquiry_->culprit->rank, inquiry_->culprit->reason,
                               !inquiry_->culprit->proven}});
        }
    } else if (hanging_.empty()) {
        inquiry_.reset();  // Everything moves again.
    } else {
        hear_answer(id, report);
        if (inquiry_->unanswered.empty() || now >= inquiry_->deadline) {
            conclude_inquiry(now);
        }
    }
}

void RendezvousCore::begin_inquiry(Instant now, const NodeId& id, const Hang& hang) {
    inquiry_ = Inquiry{id,        hang,     now - hang.stood, after(now, kStacksLimit),
                       ++alarms_, awaited_, std::nullopt,     {}};
    for (const NodeId& member : awaited_) {
        ask_for_stacks(member);
    }
}

void RendezvousCore::ask_for_stacks(const NodeId& id) {
    effects_.push_back({id, SaveStacks{round_, inquiry_->alarm, inquiry_->hang.text}});
}

// An answer to an earlier alarm, which was taken back, is none to this one.
void RendezvousCore::hear_answer(const NodeId& id, const NodeReport& report) {
    if (!inquiry_->unanswered.contains(id)) {
        return;
    }
    if (report.round == round_ && report.alarm == inquiry_->alarm) {
        inquiry_->unanswered.erase(id);
    } else {
        ask_for_stacks(id);
    }
}

void RendezvousCore::conclude_inquiry(Instant now) {
    std::vector<RankPosition> positions;
    for (const NodeId& id : awaited_) {
        const NodeReport& report = nodes_.at(id).report;
        if (report.round == round_ && !inquiry_->unanswered.contains(id)) {
            positions.insert(positions.end(), report.positions.begin(), report.positions.end());
        }
    }
    const Hang& hang = inquiry_->hang;
    const auto node_of = [this](std::uint32_t rank) {
        const std::optional<NodeId> id = node_with(rank);
        return id ? name_of(*id) : std::string("a lost node");
    };
    const bool any_stopped = std::any_of(positions.begin(), positions.end(),
                                         [](const RankPosition& p) { return p.stopped; });
    std::optional<HangCulprit> culprit;
    if (!tell_nothing(positions)) {
        culprit = find_culprit(positions, hang.rank);
    } else if (hang.shared || any_stopped) {
        // The node that fell silent last has made it a hang, and is the least suspect.
        culprit = find_silent(positions, hang.rank, node_of);
    } else {
        culprit = HangCulprit{hang.rank, hang.text};  // In its first step.
    }
    if (!culprit && !hang.shared && inquiry_->unanswered.contains(inquiry_->node)) {
        // All who have answered wait, and so for the one whose node named it, though not again.
        culprit = HangCulprit{hang.rank, hang.text};
    }
    if (!culprit) {
        blameless_ = true;
        stop_hung(now, hang.rank, inquiry_->node,
                  "round " + std::to_string(number(round_)) + " hangs: " + hang.text +
                      (positions.empty() ? "" : "; all ranks wait for each other"));
        return;
    }
    const auto owner = std::find_if(awaited_.begin(), awaited_.end(), [&](const NodeId& id) {
        const std::uint32_t first = members_.at(id).first_rank;
        return culprit->rank >= first && culprit->rank - first < nodes_.at(id).offer.workers;
    });
    if (owner == awaited_.end()) {
        blameless_ = true;
        stop_hung(now, hang.rank, inquiry_->node,
                  "round " + std::to_string(number(round_)) + " hangs: " + hang.text);
        return;
    }
    inquiry_->culprit = culprit;
    inquiry_->culprit_node = *owner;
    inquiry_->deadline = after(now, kEndLimit);
    effects_.push_back(
        {*owner, EndWorker{round_, culprit->rank, culprit->reason, !culprit->proven}});
}

void RendezvousCore::overdue_inquiry(Instant now) {
    if (!inquiry_->culprit) {
        conclude_inquiry(now);
        return;
    }
    const Inquiry inquiry = *inquiry_;
    blameless_ = !inquiry.culprit->proven;
    stop_hung(now, inquiry.culprit->rank, inquiry.culprit_node,
              "round " + std::to_string(number(round_)) + " hangs: " + inquiry.culprit->reason);
}

std::optional<Instant> RendezvousCore::sign_of(const WorkerFailure& failure) const {
    return inquiry_ && failure.kind == FailureKind::hang ? std::optional(inquiry_->sign)
                                                         : std::nullopt;
}

// Nobody will report the failure, so that it is put down here.
void RendezvousCore::stop_hung(Instant now, std::uint32_t rank, const NodeId& id,
                               const std::string& reason) {
    WorkerFailure failure;
    failure.kind = FailureKind::hang;
    failure.rank = rank;
    failure.node = name_of(id);
    failure.evidence = reason;
    failure_ = std::move(failure);
    begin_stopping(now, reason, false, inquiry_->sign);
}

}  // namespace regroup::rendezvous
