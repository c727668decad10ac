// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/failure_detector.h"

#include <algorithm>
#include <utility>

namespace regroup::rendezvous {

namespace {

// If `lost` is called later than a deadline by this part of the silence limit, the daemon was
// asleep.
constexpr int kOversleptPart = 10;
// How often the detector records that the daemon listens, while nodes have to come back.
constexpr Duration kAttendance = std::chrono::seconds(1);

}  // namespace

FailureDetector::FailureDetector(Duration silence_limit, Duration return_limit)
    : silence_limit_(silence_limit), return_limit_(std::min(return_limit, silence_limit)) {}

void FailureDetector::move_deadline(NodeSlot node, Entry& entry, Instant deadline) {
    // Reuses the tree node: heartbeats come by the thousand and must not allocate.
    auto handle = deadlines_.extract({entry.deadline, node});
    if (handle.empty()) {
        deadlines_.insert({deadline, node});
    } else {
        handle.value().first = deadline;
        deadlines_.insert(deadlines_.end(), std::move(handle));  // Usually the latest deadline.
    }
    entry.deadline = deadline;
}

void FailureDetector::clear(Entry& entry) {
    absent_count_ -= entry.by_absence ? 1 : 0;
    entry.suspected = entry.by_absence = false;
    attend_at_ = absent_count_ > 0 ? attend_at_ : Instant::max();
}

void FailureDetector::heard(NodeSlot node, Instant now) {
    if (node >= entries_.size()) {
        entries_.resize(node + 1);
    }
    Entry& entry = entries_[node];
    entry.known = true;
    clear(entry);
    entry.heard = now;
    entry.pardoned = false;
    move_deadline(node, entry, after(now, silence_limit_));
}

void FailureDetector::suspect(NodeSlot node, Instant now, Duration limit) {
    if (!knows(node) || entries_[node].suspected) {
        return;
    }
    Entry& entry = entries_[node];
    entry.suspected = true;
    entry.suspected_at = now;
    move_deadline(node, entry,
                  std::min(entry.deadline, after(now, std::min(limit, return_limit_))));
}

void FailureDetector::suspect_all(Instant now) {
    const Duration limit = absence_limit();
    deadlines_.clear();
    const Duration waited_in_vain = std::max(Duration::zero(), attended_ - kReturnPause);
    for (NodeSlot node = 0; node < entries_.size(); ++node) {
        Entry& entry = entries_[node];
        if (!entry.known) {
            continue;
        }
        if (entry.by_absence) {
            entry.return_time = std::max(kReturnPause, entry.return_time - waited_in_vain);
            ++entry.absences;
        } else {
            entry.return_time = limit;
            entry.absences = 1;
            entry.suspected_at = now;
        }
        entry.suspected = true;
        entry.by_absence = true;
        entry.pardoned = false;
        entry.deadline = after(now, entry.return_time);
        deadlines_.insert({entry.deadline, node});
    }
    absent_count_ = deadlines_.size();
    attended_ = Duration::zero();
    attend_at_ = deadlines_.empty() ? Instant::max() : after(now, kAttendance);
}

void FailureDetector::forget(NodeSlot node) {
    if (!knows(node)) {
        return;
    }
    clear(entries_[node]);
    deadlines_.erase({entries_[node].deadline, node});
    entries_[node] = Entry();
}

bool FailureDetector::suspects(NodeSlot node) const {
    return knows(node) && entries_[node].suspected;
}

Instant FailureDetector::heard_at(NodeSlot node) const {
    return knows(node) ? entries_[node].heard : Instant::min();
}

Instant FailureDetector::first_sign(NodeSlot node) const {
    if (!knows(node)) {
        return Instant::min();
    }
    const Entry& entry = entries_[node];
    return entry.suspected && !fell_silent(entry) ? entry.suspected_at : entry.heard;
}

Instant FailureDetector::lost_at(NodeSlot node) const {
    return knows(node) ? entries_[node].deadline : Instant::min();
}

Instant FailureDetector::last_deadline() const {
    return deadlines_.empty() ? Instant::min() : deadlines_.rbegin()->first;
}

Instant FailureDetector::next_deadline() const {
    const Instant next = deadlines_.empty() ? Instant::max() : deadlines_.begin()->first;
    return std::min(next, attend_at_);
}

bool FailureDetector::fell_silent(const Entry& entry) const {
    return !entry.by_absence && entry.deadline >= after(entry.heard, silence_limit_);
}

Departure FailureDetector::departure_of(const Entry& entry) const {
    using Kind = Departure::Kind;
    if (!entry.suspected || fell_silent(entry)) {
        return {Kind::silent, silence_limit_};
    }
    if (entry.by_absence) {
        return {Kind::absent, absence_limit(), entry.absences};
    }
    return {Kind::disconnected, return_limit_};
}

std::vector<std::pair<NodeSlot, Departure>> FailureDetector::lost(Instant now) {
    if (now >= attend_at_) {
        attended_ += kAttendance;  // Not the time beyond that: the daemon may have slept.
        attend_at_ = after(now, kAttendance);
    }
    std::vector<std::pair<NodeSlot, Departure>> result;
    std::vector<NodeSlot> overslept;
    for (const auto& [deadline, node] : deadlines_) {
        if (deadline > now) {
            break;
        }
        const Entry& entry = entries_[node];
        if (!entry.pardoned && now - deadline > silence_limit_ / kOversleptPart) {
            overslept.push_back(node);
        } else {
            result.emplace_back(node, departure_of(entry));
        }
    }
    for (const NodeSlot node : overslept) {
        Entry& entry = entries_[node];
        entry.pardoned = true;
        const Duration grace = !entry.suspected   ? silence_limit_
                               : entry.by_absence ? entry.return_time
                                                  : return_limit_;
        move_deadline(node, entry, after(now, grace));
    }
    return result;
}

}  // namespace regroup::rendezvous
