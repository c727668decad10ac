// SPDX-License-Identifier: Apache-2.0
//
// What a RendezvousCore tells people: notices to those who wait, and its state in one sentence.
#include <algorithm>

#include "rendezvous/core/node_state.h"
#include "rendezvous/core/rendezvous_core.h"
#include "rendezvous/core/wording.h"

namespace regroup::rendezvous {

namespace {

// Waiting nodes are told what they wait for after the first interval, then at doubling ones.
constexpr Duration kNoticeFirst = std::chrono::seconds(1);
constexpr Duration kNoticeLimit = std::chrono::seconds(30);
// A notice names this many nodes at most.
constexpr std::size_t kNoticeNames = 32;
constexpr std::size_t kAsidesInSentence = 3;

}  // namespace

void RendezvousCore::send_notices(Instant now) {
    tell_waiting(now, explain(now));
    notice_interval_ = std::min(notice_interval_ * 2, kNoticeLimit);
    const bool nobody = ready_.empty() && strikes_.aside().empty();
    notice_at_ = nobody ? Instant::max() : after(now, notice_interval_);
}

Waiting RendezvousCore::notice(const std::string& detail) const {
    Waiting notice;
    notice.nodes_min = policy_.nodes_min;
    notice.nodes_max = policy_.nodes_max;
    notice.detail = detail;
    for (const auto& [id, node] : nodes_) {
        if (notice.joined.size() == kNoticeNames) {
            break;
        }
        if (members_.contains(id) || !strikes_.is_aside(node.offer.name)) {
            notice.joined.push_back(node.offer.name);
        }
    }
    notice.spare = phase_ == Phase::running && !may_grow();
    return notice;
}

void RendezvousCore::tell_waiting(Instant now, const std::string& detail) {
    Waiting word = notice(detail);
    for (const NodeId& id : ready_) {
        word.prestart = prestarted_.contains(id);
        effects_.push_back({id, word});
    }
    if (strikes_.aside().empty()) {
        return;
    }
    word.prestart = false;
    word.spare = true;
    for (const auto& [id, node] : nodes_) {
        if (std::optional<std::string> why = why_aside(now, id, node)) {
            word.detail = *std::move(why);
            effects_.push_back({id, word});
        }
    }
}

std::optional<std::string> RendezvousCore::why_aside(Instant now, const NodeId& id,
                                                     const Node& node) const {
    const auto aside = strikes_.aside().find(node.offer.name);
    if (aside == strikes_.aside().end() || !has_no_workers(node.report) || members_.contains(id)) {
        return std::nullopt;
    }
    return "node " + node.offer.name + " is set aside for " +
           format_duration(std::max(Duration::zero(), aside->second.until - now)) + ": " +
           aside->second.reason;
}

// Before a round there is the first interval in which others may come.
void RendezvousCore::tell_newcomers(Instant now) {
    const std::set<NodeId> newcomers = std::exchange(newcomers_, {});
    if (phase_ != Phase::running && phase_ != Phase::preparing) {
        return;
    }
    for (const NodeId& id : newcomers) {
        const auto found = nodes_.find(id);
        if (found == nodes_.end()) {
            continue;
        }
        if (std::optional<std::string> why = why_aside(now, id, found->second)) {
            Waiting word = notice(*why);
            word.spare = true;
            effects_.push_back({id, std::move(word)});
        } else if (ready_.contains(id)) {
            Waiting word = notice(explain(now));
            word.prestart = prestarted_.contains(id);
            effects_.push_back({id, std::move(word)});
        }
    }
}

void RendezvousCore::tell_recovered(const std::vector<Incident>& incidents) {
    for (const Incident& incident : incidents) {
        for (const auto& [id, assignment] : members_) {
            effects_.push_back({id, Recovered{incident}});
        }
    }
}

void RendezvousCore::on(Instant now, const NodeResumed& event) {
    if (!nodes_.contains(event.node)) {
        return;
    }
    if (!detector_.suspects(event.node)) {
        detector_.heard(event.node, now);
    }
    if (members_.contains(event.node) && event.resumed.round == round_) {
        budget_.reach(event.resumed.step);
        trains_since_.reset();
        if (ledger_.awaits_training() && begins_behind(now, event.resumed)) {
            return;
        }
        if (ledger_.awaits_training()) {
            const std::uint64_t first = event.resumed.step;
            tell_recovered(
                ledger_.resumed(now, event.resumed, reached_.before(first), reached_.is_stale()));
            reached_.begun(first);
            begin_planned_incident(now);
        } else {
            // It says so until it is answered.
            for (Incident& incident : ledger_.again(round_)) {
                effects_.push_back({event.node, Recovered{std::move(incident)}});
            }
        }
    }
}

// After a fall back the job may be far from where it had come to.
bool RendezvousCore::trains(const NodeReport& before, const NodeReport& report) const {
    const bool goes_on = before.round == round_ && report.round == round_ && before.held_step > 0;
    return report.step > step_at_form_ || (goes_on && report.held_step > before.held_step);
}

void RendezvousCore::confirm(Instant now, const NodeId& id, const NodeReport& before,
                             const NodeReport& report) {
    if (report.round != round_ || !members_.contains(id)) {
        return;
    }
    unconfirmed_.erase(id);
    if (!ledger_.awaits_training()) {
        return;
    }
    if (!expects_resumed_) {
        if (unconfirmed_.empty()) {
            tell_recovered(ledger_.running(now, budget_.step()));
        }
    } else if (!trains_since_ && trains(before, report)) {
        // Its word that it trains may come yet, and says more.
        trains_since_ = now;
    }
}

void RendezvousCore::begin_notices(Instant now) {
    notice_interval_ = kNoticeFirst;
    notice_at_ = after(now, notice_interval_);
}

std::string RendezvousCore::name_of(const NodeId& id) const {
    const auto found = nodes_.find(id);
    return found == nodes_.end() ? id : found->second.offer.name;
}

std::string RendezvousCore::names_of(const std::set<NodeId>& ids) const {
    std::string result;
    std::size_t count = 0;
    for (const NodeId& id : ids) {
        if (++count > kNoticeNames) {
            result += ", ...";
            break;
        }
        result += (result.empty() ? "" : ", ") + name_of(id);
    }
    return result;
}

std::string RendezvousCore::asides(Instant now) const {
    std::string text;
    std::size_t count = 0;
    for (const auto& [id, node] : nodes_) {
        const std::optional<std::string> why = why_aside(now, id, node);
        if (why && ++count <= kAsidesInSentence) {
            text += "; " + *why;
        }
    }
    if (count > kAsidesInSentence) {
        text += "; and " + std::to_string(count - kAsidesInSentence) + " more";
    }
    return text;
}

std::string RendezvousCore::explain(Instant now) const {
    const auto left = [&] { return format_duration(std::max(Duration::zero(), deadline_ - now)); };
    switch (phase_) {
        case Phase::gathering:
            if (is_resting() && ready_.size() >= policy_.nodes_min) {
                return counted(ready_.size(), "node") + " ready, the next round begins in " +
                       format_duration(std::max(Duration::zero(), rest_until_ - now)) +
                       ": rounds end too soon, the last one because " + cause_;
            }
            if (hold_until_ != Instant::max()) {
                std::set<NodeId> holders;
                for (const auto& [id, node] : nodes_) {
                    if (node.report.held_step > held_by_ready()) {
                        holders.insert(id);
                    }
                }
                return counted(ready_.size(), "node") + " ready, waiting for " + names_of(holders) +
                       ", whose workers alone have the last state, for " +
                       format_duration(std::max(Duration::zero(), hold_until_ - now));
            }
            return std::to_string(ready_.size()) + " of " + counted(policy_.nodes_min, "node") +
                   " ready, waiting for " +
                   std::to_string(policy_.nodes_min -
                                  std::min<std::size_t>(policy_.nodes_min, ready_.size())) +
                   " more" + asides(now);
        case Phase::last_call:
            return counted(ready_.size(), "node") + " ready (minimum " +
                   std::to_string(policy_.nodes_min) + ", maximum " +
                   std::to_string(policy_.nodes_max) + "), last call for " + left();
        case Phase::running:
            if (inquiry_) {
                return "round " + std::to_string(number(round_)) + " hangs: " +
                       (inquiry_->culprit ? inquiry_->culprit->reason + "; it is being ended"
                                          : inquiry_->hang.text + "; stacks are being saved");
            }
            return "round " + std::to_string(number(round_)) + " is running on " +
                   counted(members_.size(), "node");
        case Phase::preparing:
            return "round " + std::to_string(number(round_)) +
                   " runs on to a step boundary because " + cause_ + "; waiting for " +
                   names_of(awaited_) + " for " + left();
        case Phase::stopping:
            return "round " + std::to_string(number(round_)) + " is stopping because " + cause_ +
                   "; waiting for " + names_of(awaited_) + " for " +
                   format_duration(std::max(Duration::zero(), stopped_by() - now)) +
                   (stopped_by() > deadline_ ? " (workers there are at work of their own)" : "");
        case Phase::closed:
            return "closed by " + verdict_->author + ": " + verdict_->reason;
    }
    return {};
}

}  // namespace regroup::rendezvous
