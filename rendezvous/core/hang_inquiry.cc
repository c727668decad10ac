// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/hang_inquiry.h"

#include <algorithm>
#include <utility>

#include "rendezvous/core/collective_judge.h"
#include "rendezvous/core/hang_culprit.h"

namespace regroup::rendezvous {

namespace {

// Agents take at most 5 s for the stacks, and then need time to report.
constexpr Duration kStacksLimit = std::chrono::seconds(6);
// How long the daemon waits for the report that the culprit was ended.
constexpr Duration kEndLimit = std::chrono::seconds(10);
// Positions are read at once.
constexpr Duration kPositionsLimit = std::chrono::seconds(2);
// Between questions for positions, while they show no hang.
constexpr Duration kAskAgain = std::chrono::seconds(5);

}  // namespace

HangInquiry::News HangInquiry::heard(Instant now, const NodeId& node, const NodeReport& report,
                                     const Working& working) {
    if (report.hang) {
        hanging_.insert(node);
    } else {
        hanging_.erase(node);
    }
    // A node without progress may only be waiting for another node. The round hangs when all
    // working nodes report a hang.
    const bool is_sign = report.hang && (!report.hang->shared || hanging_.size() == working.count);
    const bool is_worse =
        open_ && open_->hang.in_collective && is_sign &&
        (!report.hang->in_collective || (open_->hang.only_told && !report.hang->only_told));
    if (!open_ || is_worse) {
        if (!is_sign) {
            return News::none;
        }
        open_ = Case{.node = node, .hang = *report.hang, .sign = now - report.hang->stood};
        if (report.hang->in_collective) {
            ask(now, working);
            return News::none;
        }
        begin(now, Stage::saving, kStacksLimit, working);
        return News::opened;
    }
    if (hanging_.empty() && open_->stage != Stage::ending) {
        close();  // All workers make progress again.
        return News::none;
    }
    if (open_->stage != Stage::asking && open_->stage != Stage::saving) {
        return News::none;
    }
    // An answer to an earlier alarm, which was withdrawn, does not answer this one.
    if (report.alarm == open_->alarm && open_->unanswered.erase(node) > 0) {
        open_->positions.insert(open_->positions.end(), report.positions.begin(),
                                report.positions.end());
    }
    return open_->unanswered.empty() || now >= open_->deadline ? News::answered : News::none;
}

void HangInquiry::begin(Instant now, Stage stage, Duration limit, const Working& working) {
    open_->stage = stage;
    open_->deadline = after(now, limit);
    open_->alarm = ++alarms_;
    open_->unanswered = working.ids();
    open_->positions.clear();
}

void HangInquiry::ask(Instant now, const Working& working) {
    begin(now, Stage::asking, kPositionsLimit, working);
}

void HangInquiry::confirm(Instant now, std::optional<HangCulprit> culprit, std::string text,
                          const Working& working) {
    open_->culprit = std::move(culprit);
    open_->hang.text = std::move(text);
    begin(now, Stage::saving, kStacksLimit, working);
}

void HangInquiry::dismiss(Instant now) {
    open_->stage = Stage::moving;
    open_->deadline = after(now, kAskAgain);
}

void HangInquiry::leave_alone() {
    open_->stage = Stage::told;
    open_->deadline = Instant::max();
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
    const std::optional<HangCulprit> awaited =
        judge_collectives(positions, hang.stood / 2, {}, node_of).culprit;
    std::optional<HangCulprit> culprit;
    if (!tell_nothing(positions)) {
        culprit = find_culprit(positions, hang.rank);
        // By its steps alone, a rank that waits in a group of another library seems to work.
        if (awaited && (!culprit || culprit->rank != awaited->rank)) {
            culprit = awaited;
        }
    } else if (awaited) {
        culprit = awaited;
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
        culprit &&
        (culprit->kind == Kind::stopped || culprit->kind == Kind::behind ||
         culprit->kind == Kind::awaited || (culprit->kind == Kind::reported && !hang.shared));
    return finished && !stands_alone ? finished : culprit;
}

void HangInquiry::accuse(Instant now, HangCulprit culprit, const NodeId& node) {
    open_->stage = Stage::ending;
    open_->culprit = std::move(culprit);
    open_->culprit_node = node;
    open_->deadline = after(now, kEndLimit);
}

std::optional<FromDaemon> HangInquiry::order_for(const NodeId& node, RoundId round) const {
    if (!open_) {
        return std::nullopt;
    }
    switch (open_->stage) {
        case Stage::asking:
        case Stage::saving:
            return open_->unanswered.contains(node)
                       ? std::optional<FromDaemon>(SaveStacks{
                             round, open_->alarm,
                             open_->culprit ? *open_->culprit : HangCulprit(open_->hang.text),
                             open_->stage == Stage::asking})
                       : std::nullopt;
        case Stage::ending:
            return open_->culprit_node == node ? std::optional<FromDaemon>(EndWorker{
                                                     round, open_->culprit->rank, *open_->culprit,
                                                     !open_->culprit->proven()})
                                               : std::nullopt;
        case Stage::moving:
        case Stage::told:
            break;
    }
    return std::nullopt;
}

}  // namespace regroup::rendezvous
