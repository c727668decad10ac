// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/incident_ledger.h"

#include <algorithm>
#include <utility>

namespace regroup::rendezvous {

void IncidentLedger::begin(RoundId round, bool planned, Instant sign, Instant now) {
    if (open_) {
        abandon(std::clamp(sign, std::min(formed_at_.value_or(stopped_at_.value_or(told_at_)), now),
                           now));
    }
    open_ = true;
    held_ = false;
    incident_ = {};
    incident_.round = round;
    incident_.planned = planned;
    incident_.detect = std::max(Duration::zero(), now - std::max(sign, last_end_));
    told_at_ = now;
    boundary_at_.reset();
    stopped_at_.reset();
    formed_at_.reset();
}

void IncidentLedger::mark_unplanned(Instant sign) noexcept {
    if (std::exchange(incident_.planned, false)) {
        told_at_ = std::max(told_at_, sign);
    }
}

void IncidentLedger::seen_at(Instant sign) noexcept {
    if (open_ && !incident_.planned && !stopped_at_) {
        incident_.detect = std::max(incident_.detect, told_at_ - std::max(sign, last_end_));
    }
}

void IncidentLedger::mark_stop_unplanned(Instant sign) noexcept {
    if (std::exchange(incident_.planned, false)) {
        told_at_ = std::max(told_at_, boundary_at_ ? std::min(*boundary_at_, sign) : sign);
    }
}

void IncidentLedger::at_boundary(Instant at) {
    if (!boundary_at_) {
        boundary_at_ = std::max(told_at_, at);
    }
}

void IncidentLedger::stopped(Instant now, Cause cause) {
    if (!open_ || formed_at_) {
        return;  // The round that stopped is the next one, before it was known to train.
    }
    incident_.cause = std::move(cause);
    // Until the boundary the round went on training, so that time is not lost.
    incident_.stop = now - (incident_.planned ? boundary_at_.value_or(told_at_) : told_at_);
    stopped_at_ = now;
}

void IncidentLedger::blame(const Cause& cause) {
    if (open_ && stopped_at_ && !formed_at_) {
        incident_.cause = cause;
    }
}

void IncidentLedger::formed(Instant now, RoundId next, Succession decision) {
    if (!open_ || !stopped_at_) {
        return;
    }
    incident_.next_round = next;
    incident_.decision = std::move(decision);
    (held_ ? incident_.decide : incident_.join) += now - *stopped_at_;
    formed_at_ = now;
}

// The daemon's clock measures the total time. The new round reports only the time that its own
// processes have seen; the rest counts as `join`, since the processes may have had to start first.
std::vector<Incident> IncidentLedger::resumed(Instant now, const Resumed& resumed,
                                              std::uint64_t reached, bool at_least) {
    if (!formed_at_ || resumed.round != incident_.next_round) {
        return {};
    }
    incident_.communicator = std::max(Duration::zero(), resumed.communicator);
    incident_.state = std::max(Duration::zero(), resumed.state);
    incident_.first_step = std::max(Duration::zero(), resumed.first_step);
    incident_.step = resumed.step;
    incident_.lost_steps =
        resumed.step > 0 && resumed.step <= reached ? reached + 1 - resumed.step : 0;
    incident_.lost_at_least = at_least;
    const Duration seen = incident_.communicator + incident_.state + incident_.first_step;
    const Duration passed = now - *formed_at_ - std::max(Duration::zero(), resumed.ago);
    incident_.join += std::max(Duration::zero(), passed - seen);
    return complete(now - std::max(Duration::zero(), resumed.ago));
}

std::vector<Incident> IncidentLedger::running(Instant now, std::uint64_t step) {
    if (!formed_at_) {
        return {};
    }
    incident_.first_step = now - *formed_at_;
    incident_.step = step;
    return complete(now);
}

std::vector<Incident> IncidentLedger::close(Instant now, bool success) {
    if (open_ && formed_at_ && success) {
        return running(now, 0);
    }
    if (open_ && formed_at_) {
        abandon(now);
    } else if (open_ && !incident_.planned) {
        goodput_.lost_at_end = incident_.detect + (now - told_at_);  // No recovery was begun.
    }
    open_ = false;
    return std::exchange(pending_, {});
}

// The time until `end` goes to the stage that the recovery had reached.
void IncidentLedger::abandon(Instant end) {
    if (formed_at_) {
        incident_.first_step = std::max(Duration::zero(), end - *formed_at_);
    } else if (stopped_at_) {
        incident_.join += end - *stopped_at_;
    } else if (!incident_.planned) {
        incident_.stop = end - told_at_;
    }
    incident_.cut_short = true;
    if (pending_.size() == kPendingLimit) {
        pending_.erase(pending_.begin());
    }
    pending_.push_back(incident_);
    keep(end);
}

std::vector<Incident> IncidentLedger::again(RoundId round) const {
    const bool is_last = !told_.empty() && told_.back().next_round == round;
    return is_last ? told_ : std::vector<Incident>{};
}

std::vector<Incident> IncidentLedger::complete(Instant end) {
    told_ = std::exchange(pending_, {});
    told_.push_back(incident_);
    keep(end);
    return told_;
}

void IncidentLedger::keep(Instant end) {
    open_ = false;
    last_end_ = end;
    formed_at_.reset();
    goodput_.add(incident_);
    if (recent_.size() == kRecentLimit) {
        recent_.pop_front();
    }
    recent_.push_back(incident_);
}

}  // namespace regroup::rendezvous
