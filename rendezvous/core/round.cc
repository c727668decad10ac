// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/round.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace regroup::rendezvous {

namespace {

// A report has 16 broken links at most, and other signs are few.
constexpr std::uint32_t kReportsMax = 64;

}  // namespace

void Round::add_report(const NodeId& by, Evidence entry) {
    const bool is_link = entry.as<Evidence::LinkBroken>() != nullptr;
    if (++said[by] <= kReportsMax && evidence.add(std::move(entry)) && is_link) {
        lost_peers.insert(by);
    }
}

void Round::note_member(const NodeId& member, bool runs, bool is_missing) {
    if (runs && lost_peers.contains(member)) {
        live_breaks.insert(member);
    } else {
        live_breaks.erase(member);
    }
    if (is_missing) {
        missing.insert(member);
    } else {
        missing.erase(member);
    }
}

void Round::remove(const NodeId& member, std::uint32_t group_rank) {
    --members;
    unconfirmed -= seats[group_rank].confirmed ? 0 : 1;
    hang.forget(member);
    live_breaks.erase(member);
    missing.erase(member);
}

const Seat* Round::seat_with(std::uint32_t rank) const {
    const auto above = std::ranges::upper_bound(
        seats, rank, {}, [](const Seat& seat) { return seat.assignment.first_rank; });
    return above == seats.begin() ? nullptr : &*std::prev(above);
}

bool Round::stopped_for_change() const {
    return change && end && !end->by && !evidence.has_decisive();
}

Cause Round::cause_of_end() const {
    if (end) {
        return evidence.judge(*end).cause;
    }
    return change ? change->cause : Cause();
}

}  // namespace regroup::rendezvous
