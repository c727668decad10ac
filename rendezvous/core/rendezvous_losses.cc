// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore loses nodes: those that fell silent, and those that said so.
#include <algorithm>
#include <utility>

#include "rendezvous/core/node_state.h"
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

namespace {

// All workers reach a step boundary together; who has not parked so long after another one has left
// there will not do so by itself.
constexpr Duration kBoundaryMargin = std::chrono::seconds(1);
// A cause names so many nodes at most.
constexpr std::size_t kNamesInCause = 3;

}  // namespace

std::string RendezvousCore::describe_gone(const std::vector<Gone>& gone) {
    const std::size_t shown = std::min(gone.size(), kNamesInCause);
    const std::size_t more = gone.size() - shown;
    const bool alike = std::all_of(gone.begin(), gone.end(),
                                   [&](const Gone& node) { return node.how == gone[0].how; });
    std::string text;
    for (std::size_t i = 0; i < shown; ++i) {
        const bool last = i + 1 == gone.size();
        text +=
            (i == 0 ? "" : (!alike ? "; " : (last ? " and " : ", "))) + ("node " + gone[i].name);
        text += alike ? "" : " " + gone[i].how;
    }
    if (more > 0) {
        text += (alike ? " and " : "; and ") + std::to_string(more) + " more";
    }
    if (!alike) {
        return text;
    }
    std::string how = gone[0].how;
    if (gone.size() > 1) {
        constexpr std::string_view kIts = ": its ";
        how = how.starts_with("is ") ? "are " + how.substr(3) : how;
        if (const std::size_t at = how.find(kIts); at != std::string::npos) {
            how.replace(at, kIts.size(), ": their ");
        }
    }
    return text + " " + how;
}

void RendezvousCore::lose(Instant now, const NodeId& id, const std::string& how,
                          Departure departure, Instant sign) {
    const auto found = nodes_.find(id);
    if (found == nodes_.end()) {
        return;
    }
    if (dismissed_.erase(id) > 0) {
        departed_.insert(found->second.offer.name);  // Its goodbye may have been lost.
    }
    const std::string name = found->second.offer.name;
    const bool was_mortal = !found->second.report.resident;
    const bool expected =
        phase_ == Phase::preparing && departure == Departure::left && is_leaving(found->second);
    const bool was_saving = may_be_saving(found->second) && !found->second.report.failure &&
                            found->second.report.state != NodeState::finished;
    if (departure == Departure::lost) {
        keep_drain(id, found->second);
    }
    nodes_.erase(found);
    detector_.forget(id);
    ready_.erase(id);
    prestarted_.erase(id);
    const bool was_survivor = survivors_.erase(id) > 0;
    missing_.erase(id);
    detained_.erase(id);
    const bool was_member = members_.erase(id) > 0;
    if (was_member && was_mortal) {
        --mortal_;
    }
    const bool was_awaited = awaited_.erase(id) > 0;
    if (was_member && was_awaited) {
        all_finished_ = false;
        if (expected) {
            // The others have parked at the same boundary, or never will: if it left short of it,
            // what its peers end with follows from that.
            boundary_ = true;
            lost_member_ = true;
            deadline_ = std::min(deadline_, after(now, kBoundaryMargin));
            end_if_all_out(now);
        } else {
            lost_member_ = true;
            if (departure == Departure::lost) {
                lost_names_.push_back(name);
            }
            gone_.push_back({name, how});
            if (phase_ == Phase::running || phase_ == Phase::preparing) {
                begin_stopping(now, describe_gone(gone_), false, sign);
            } else {
                cause_ = describe_gone(gone_);
                ledger_.seen_at(sign);
                ledger_.spoil_stop(sign);
                end_if_all_out(now);
            }
        }
    }
    // It had parked before it was lost with the others.
    const bool is_out = (was_member && !was_awaited && phase_ == Phase::stopping) ||
                        (was_survivor && phase_ != Phase::running);
    if (is_out && departure != Departure::left && !gone_.empty()) {
        gone_.push_back({name, how});
        cause_ = describe_gone(gone_);
        ledger_.blame(cause_);
    }
    // Not awaited, for another one had parked; that does not mean that this one came so far.
    const bool is_ending = phase_ == Phase::preparing || phase_ == Phase::stopping;
    lost_member_ = lost_member_ || (was_member && !was_awaited && was_saving && is_ending);
    unconfirmed_.erase(id);
    const bool waits = phase_ == Phase::gathering || phase_ == Phase::last_call;
    if (waits && nodes_.size() < policy_.nodes_min) {
        if (leave_after_all(now)) {
            return;
        }
        release_detained(now);
    }
    if (!close_if_deserted(now)) {
        try_form(now);
    }
}

// Who has finished and gone does not come back; to wait for it would only look like a hang.
bool RendezvousCore::close_if_deserted(Instant now) {
    const bool waits = phase_ == Phase::gathering || phase_ == Phase::last_call;
    if (!waits || departed_.empty() || nodes_.size() >= policy_.nodes_min) {
        return false;
    }
    close(now, departure_verdict());
    return true;
}

void RendezvousCore::lose_silent(Instant now) {
    struct Silent {
        NodeId id;
        std::string reason;
        Instant sign;
    };
    std::vector<Silent> silent;
    for (auto& [id, reason] : detector_.lost(now)) {
        silent.push_back({id, std::move(reason), detector_.first_sign(id)});
    }
    for (const Silent& node : silent) {
        // Those lost at the same moment must not form a round with each other.
        ready_.erase(node.id);
        prestarted_.erase(node.id);
        detector_.suspect(node.id, now);
    }
    for (const Silent& node : silent) {
        lose(now, node.id, "is lost: " + node.reason, Departure::lost, node.sign);
    }
}

void RendezvousCore::on(Instant now, const Restarted& /*event*/) {
    detector_.suspect_all(now);
    for (const auto& [id, node] : nodes_) {
        update_ready(now, id);
    }
    // What was waited for could not come while nobody listened.
    const Instant back = detector_.last_deadline();
    if (deadline_ != Instant::max()) {
        deadline_ = std::max(deadline_, back);
    }
    if (inquiry_) {
        inquiry_->deadline = std::max(inquiry_->deadline, back);
    }
    missing_ = survivors_;
    if (!members_.empty() && !ledger_.awaits_training()) {
        reached_.missed_some();
    }
    // All were to leave with the process that served the rendezvous, and would only be told again.
    if (std::exchange(housed_, false) && phase_ != Phase::closed) {
        if (!evacuation_.empty()) {
            close(now, drained_verdict());
            return;
        }
        if (leave_after_all(now)) {
            return;
        }
    }
    try_form(now);
}

// They were of processes that served the rendezvous before this one.
void RendezvousCore::lose_predecessors(Instant now, const NodeId& host) {
    std::vector<NodeId> ended;
    for (const auto& [id, node] : nodes_) {
        if (id != host && node.offer.ends_with_daemon && detector_.suspects(id)) {
            ended.push_back(id);
        }
    }
    for (const NodeId& id : ended) {
        lose(now, id, "is lost: its launcher, which served the rendezvous, was ended",
             Departure::replaced, now);
    }
}

// Whose workers are still at work of their own has as long as its agent gives them.
void RendezvousCore::lose_stuck(Instant now) {
    std::set<NodeId> stuck;
    deadline_ = Instant::max();
    for (const NodeId& id : awaited_) {
        // Who is away is lost when it has been away for too long.
        const Instant until = detector_.suspects(id) ? detector_.lost_at(id)
                                                     : nodes_.at(id).at_work_until + kStopMargin;
        if (until <= now) {
            stuck.insert(id);
        } else {
            deadline_ = std::min(deadline_, until);
        }
    }
    for (const NodeId& id : stuck) {
        lose(now, id, "is lost: it did not confirm that its workers are gone", Departure::lost,
             now);
    }
}

Instant RendezvousCore::stopped_by() const {
    Instant all = Instant::min();
    for (const NodeId& id : awaited_) {
        const Instant until = std::max(deadline_, nodes_.at(id).at_work_until + kStopMargin);
        all = std::max(all, detector_.suspects(id) ? detector_.lost_at(id) : until);
    }
    return all;
}

}  // namespace regroup::rendezvous
