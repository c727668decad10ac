// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/hang_inquiry.h"

#include <algorithm>
#include <utility>

#include "rendezvous/core/hang_culprit.h"

namespace regroup::rendezvous {

namespace {

// Agents take at most 5 s for the stacks, and then need time to report.
constexpr Duration kStacksLimit = std::chrono::seconds(6);
// How long the daemon waits for the report that the culprit was ended.
constexpr Duration kEndLimit = std::chrono::seconds(10);

}  // namespace

HangInquiry::News HangInquiry::heard(Instant now, const NodeId& node, const NodeReport& report,
                                     const std::set<NodeId>& working) {
    if (report.hang) {
        hanging_.insert(node);
    } else {
        hanging_.erase(node);
    }
    if (!open_) {
        // A node without progress may only be waiting for another node. The round hangs when all
        // working nodes report a hang.
        if (!report.hang || (report.hang->shared && hanging_.size() != working.size())) {
            return News::none;
        }
        open_ = Case{node,
                     *report.hang,
                     now - report.hang->stood,
                     after(now, kStacksLimit),
                     ++alarms_,
                     working,
                     std::nullopt,
                     {}};
        return News::opened;
    }
    if (open_->culprit) {
        return News::none;
    }
    if (hanging_.empty()) {
        close();  // All workers make progress again.
        return News::none;
    }
    // An answer to an earlier alarm, which was withdrawn, does not answer this one.
    if (report.alarm == open_->alarm) {
        open_->unanswered.erase(node);
    }
    return open_->unanswered.empty() || now >= open_->deadline ? News::answered : News::none;
}

void HangInquiry::forget(const NodeId& node) {
    hanging_.erase(node);
    if (open_) {
        open_->unanswered.erase(node);
    }
}

void HangInquiry::prolong(Instant until) {
    if (open_) {
        open_->deadline = std::max(open_->deadline, until);
    }
}

std::optional<HangCulprit> HangInquiry::suspect(
    std::span<const RankPosition> positions, const std::optional<HangCulprit>& finished,
    const std::function<std::string(std::uint32_t rank)>& node_of) const {
    const Hang& hang = open_->hang;
    HangCulprit reported;
    reported.rank = hang.rank;
    reported.text = hang.text;
    std::optional<HangCulprit> culprit;
    if (!tell_nothing(positions)) {
        culprit = find_culprit(positions, hang.rank);
    } else if (hang.shared || std::ranges::any_of(positions, &RankPosition::stopped)) {
        // The node that reported last completed the alarm; it is the least likely culprit.
        culprit = find_silent(positions, hang.rank, node_of);
    } else {
        culprit = reported;  // The workers are in their first step.
    }
    if (!culprit && !hang.shared && open_->unanswered.contains(open_->node)) {
        // All nodes that answered wait. The node that reported the hang has not answered, so they
        // wait for the rank that it named.
        culprit = reported;
    }
    // Only a process that is stopped, or that works and does not wait, may be the reason instead of
    // a rank that has finished.
    using Kind = HangCulprit::Kind;
    const bool stands_alone =
        culprit && (culprit->kind == Kind::stopped || culprit->kind == Kind::behind ||
                    (culprit->kind == Kind::reported && !hang.shared));
    return finished && !stands_alone ? finished : culprit;
}

void HangInquiry::accuse(Instant now, HangCulprit culprit, const NodeId& node) {
    open_->culprit = std::move(culprit);
    open_->culprit_node = node;
    open_->deadline = after(now, kEndLimit);
}

std::optional<FromDaemon> HangInquiry::order_for(const NodeId& node, RoundId round) const {
    if (open_ && open_->culprit && open_->culprit_node == node) {
        return EndWorker{round, open_->culprit->rank, *open_->culprit, !open_->culprit->proven()};
    }
    if (open_ && !open_->culprit && open_->unanswered.contains(node)) {
        return SaveStacks{round, open_->alarm, open_->hang.text};
    }
    return std::nullopt;
}

}  // namespace regroup::rendezvous
