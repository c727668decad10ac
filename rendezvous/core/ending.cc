// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore ends a round: on which evidence, and when the last worker is gone.
#include <algorithm>
#include <utility>

#include "rendezvous/core/node_state.h"
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

bool RendezvousCore::all_finished(Instant /*clock*/) const {
    return round_.all_finished();
}

bool RendezvousCore::must_end(Instant clock) const {
    return decisive_evidence(clock).has_value() ||
           (phase_ == Phase::changing && clock >= round_.change->deadline);
}

std::optional<std::size_t> RendezvousCore::decisive_evidence(Instant clock) const {
    if (const auto decisive = round_.evidence.decisive()) {
        return decisive;
    }
    if (clock < link_deadline()) {
        return std::nullopt;
    }
    const std::vector<Evidence>& entries = round_.evidence.entries();
    const auto live = std::find_if(entries.begin(), entries.end(), [&](const Evidence& entry) {
        const auto* broken = entry.as<Evidence::LinkBroken>();
        return broken != nullptr && round_.live_breaks.contains(broken->said_by);
    });
    return live == entries.end() ? std::nullopt
                                 : std::optional(static_cast<std::size_t>(live - entries.begin()));
}

// Usually one of the two workers is dead, and its node reports that soon, or is lost itself. While
// a member is under suspicion, the round waits: the member will be lost, which explains the break,
// or report.
Instant RendezvousCore::link_deadline() const {
    const bool may_end = phase_ == Phase::training || phase_ == Phase::changing;
    if (!may_end || round_.live_breaks.empty() || !round_.missing.empty()) {
        return Instant::max();
    }
    return after(*round_.evidence.link_broke_at(), policy_.regroup_window);
}

void RendezvousCore::begin_ending(Instant now) {
    const std::optional<std::size_t> by = decisive_evidence(now);
    Instant sign = now;
    if (by) {
        const Evidence& evidence = round_.evidence.entries()[*by];
        const bool of_link = evidence.as<Evidence::LinkBroken>() != nullptr ||
                             evidence.as<Evidence::RoundAbandoned>() != nullptr;
        sign = of_link ? round_.evidence.link_broke_at().value_or(evidence.at) : evidence.at;
        for (const auto& [id, assignment] : round_.members) {
            const Node& node = nodes_.at(id);
            if (node.report.round == round_.id && node.saw_end_at >= round_.began) {
                sign = std::min(sign, node.saw_end_at);
            }
        }
    }
    if (phase_ == Phase::training || ledger_.awaits_training()) {
        ledger_.begin(round_.id, !by, sign, now);
    } else if (by) {
        ledger_.mark_unplanned(sign);
    }
    RoundEnd end;
    end.by = by;
    if (!by) {
        end.planned = round_.change->cause;
        end.planned.boundary_missed = phase_ == Phase::changing;
    }
    round_.end = std::move(end);
    round_.evidence.end(by);
    round_.told_at = round_.told_at.value_or(now);
    round_.ended_at = now;
    round_.inquiry.reset();
    phase_ = Phase::ending;
    note(now, JobEvent::Kind::ending).detail = round_.cause_of_end();
    overdue_at_ = std::min(overdue_at_, after(after(now, policy_.shutdown_timeout), kStopMargin));
    concern_members();
}

bool RendezvousCore::is_out(Instant /*clock*/) const {
    const std::set<NodeId>& working = places_.in(Place::working);
    return working.empty() || (round_.change && working.size() <= round_.change->leavers.size() &&
                               std::all_of(working.begin(), working.end(),
                                           [&](const NodeId& id) { return leaves_unawaited(id); }));
}

void RendezvousCore::end_round(Instant now) {
    const std::set<NodeId>& working = places_.in(Place::working);
    round_.end->leaver_may_be_gone =
        round_.change && (round_.change->leaver_gone ||
                          std::any_of(working.begin(), working.end(),
                                      [&](const NodeId& id) { return may_be_saving(id); }));
    round_.judgement = round_.evidence.judge(*round_.end);
    ledger_.stopped(now, round_.judgement.cause);
    const bool all_leave =
        round_.change && round_.change->kind == Change::Kind::job_drain &&
        (round_.change->boundary != Change::Boundary::ahead || round_.stopped_for_change());
    if (all_leave) {
        close_drained(now);
    } else if (std::optional<Verdict> verdict = charge(now)) {
        close(now, std::move(*verdict));
    } else {
        begin_forming(now);
    }
}

}  // namespace regroup::rendezvous
