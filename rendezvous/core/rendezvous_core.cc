// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/rendezvous_core.h"

#include <algorithm>
#include <utility>

#include "rendezvous/core/job.h"
#include "rendezvous/core/observe.h"
#include "rendezvous/core/orders.h"
#include "rendezvous/core/transitions.h"

namespace regroup::rendezvous {

namespace {

Effects decide(core::Job& job, Instant now, Instant clock) {
    transit(job, now, clock);
    reconcile(job, now);
    return std::exchange(job.outbox.effects, {});
}

// When it is taken for granted that the round trains, because Resumed has not arrived by then.
Instant trains_by(const core::Job& job) {
    return job.round.trains_since ? after(*job.round.trains_since, job.policy.heartbeat_timeout)
                                  : Instant::max();
}

// When the inquiry into a hang is due to go on; Instant::max(): there is none.
Instant inquiry_deadline(const core::Job& job) {
    return job.round.hang.open() ? job.round.hang.open()->deadline : Instant::max();
}

}  // namespace

RendezvousCore::RendezvousCore(JobPolicy policy, std::int64_t began_ms)
    : job_(std::make_unique<core::Job>(std::move(policy), began_ms)) {}
RendezvousCore::RendezvousCore(const RendezvousCore& other)
    : job_(std::make_unique<core::Job>(*other.job_)) {}
RendezvousCore& RendezvousCore::operator=(const RendezvousCore& other) {
    return *this = RendezvousCore(other);
}
RendezvousCore::RendezvousCore(RendezvousCore&&) noexcept = default;
RendezvousCore& RendezvousCore::operator=(RendezvousCore&&) noexcept = default;
RendezvousCore::~RendezvousCore() = default;

Effects RendezvousCore::step(Instant now, const Event& event) {
    job_->outbox.events.clear();
    std::visit([&](const auto& e) { observe(*job_, now, e); }, event);
    return decide(*job_, now, Instant::min());
}

Effects RendezvousCore::advance(Instant now) {
    core::Job& job = *job_;
    job.outbox.events.clear();
    observe_silence(job, now);
    if (job.phase != Phase::closed) {
        readmit(job, now, job.failures.expire(now));
        if (now >= job.formation.back_off_until) {
            job.formation.back_off_until = Instant::max();
        }
        if (now >= job.overdue_at) {
            lose_overdue(job, now);
        }
        if (now >= job.formation.give_up_at) {
            // The node that was to give up may be gone.
            job.formation.give_up_at = first_gives_up_at(job);
        }
        if (now >= inquiry_deadline(job)) {
            overdue_inquiry(job, now);
        }
        if (now >= tell_finish_at(job)) {
            tell_finish(job, now);
        }
        if (now >= trains_by(job)) {
            const Instant since = *std::exchange(job.round.trains_since, std::nullopt);
            begin_training(job, now, job.ledger.running(since, job.budget.step()));
            begin_planned_incident(job, now);
        }
    }
    return decide(job, now, now);
}

const std::vector<JobEvent>& RendezvousCore::job_events() const noexcept {
    return job_->outbox.events;
}

Instant RendezvousCore::next_deadline() const {
    const core::Job& job = *job_;
    Instant next = job.detector.next_deadline();
    if (job.phase == Phase::closed) {
        return next;
    }
    next = std::min({next, job.formation.back_off_until, job.overdue_at, grow_at(job),
                     link_deadline(job), job.failures.next_deadline(), tell_finish_at(job),
                     finish_deadline(job), inquiry_deadline(job), trains_by(job)});
    if (job.phase == Phase::forming) {
        if (can_form(job, Instant::max())) {
            next = std::min(next, job.formation.last_call_until);
        }
        if (nobody_came(job, Instant::max())) {
            next = std::min(next, job.formation.give_up_at);
        }
    }
    return job.phase == Phase::changing ? std::min(next, job.round.change->deadline) : next;
}

bool RendezvousCore::is_routine(const Event& event) const {
    const core::Job& job = *job_;
    const auto* reported = std::get_if<NodeReported>(&event);
    if (reported == nullptr || job.phase == Phase::closed) {
        return false;
    }
    const auto found = job.nodes.find(reported->node);
    if (found == job.nodes.end() || job.detector.suspects(found->second.slot)) {
        return false;
    }
    const core::Node& node = found->second;
    const NodeReport& report = reported->report;
    if (job.round.hang.open() || node.report.hang ||
        (core::is_of_round(job, node) && !core::seat_of(job, node).confirmed)) {
        return false;
    }
    NodeReport expected = node.report;
    expected.step = report.step;
    if (node.report.state == NodeState::running && report.held_step >= node.report.held_step) {
        expected.held_step = report.held_step;
    }
    expected.at_work = std::min(node.report.at_work, report.at_work);  // It decreases with time.
    expected.ended_ago = Duration::zero();  // An end that the node saw while it was away is news.
    if (expected != report || expected.step < node.report.step) {
        return false;
    }
    // The first step of a round is news.
    const bool in_it = is_member(job, node) && report.round == job.round.id;
    const bool awaits_step =
        !job.round.has_committed || (job.ledger.awaits_training() && !job.round.trains_since);
    if (in_it && awaits_step &&
        (report.held_step != node.report.held_step || report.step != node.report.step)) {
        return false;
    }
    return !needs_telling(desired(job, {}, reported->node, node), node);
}

bool RendezvousCore::is_proven(const NodeId& node, const Offer& offer) const {
    return core::is_proven(*job_, node, offer);
}

bool RendezvousCore::knows(const NodeId& node) const {
    return job_->nodes.contains(node);
}

bool RendezvousCore::has_member(const NodeId& node) const {
    const auto found = job_->nodes.find(node);
    return found != job_->nodes.end() && core::is_member(*job_, found->second);
}

std::size_t RendezvousCore::nodes_count() const noexcept {
    return job_->nodes.size();
}

std::size_t RendezvousCore::nodes_bytes() const noexcept {
    return job_->nodes_bytes;
}

std::size_t RendezvousCore::nodes_called(const std::string& name) const {
    return static_cast<std::size_t>(std::ranges::count_if(job_->nodes, [&](const auto& entry) {
        return entry.first == name || entry.second.offer.name == name;
    }));
}

std::string RendezvousCore::name_of(const NodeId& id) const {
    return core::name_of(*job_, id);
}

std::optional<NodeId> RendezvousCore::node_with(std::uint32_t rank) const {
    return core::node_with(*job_, rank);
}

bool RendezvousCore::is_quarantined(const std::string& name) const {
    return job_->failures.is_quarantined(name);
}

const JobPolicy& RendezvousCore::policy() const noexcept {
    return job_->policy;
}

Phase RendezvousCore::phase() const noexcept {
    return job_->phase;
}

RoundId RendezvousCore::round() const noexcept {
    return job_->round.id;
}

const std::optional<Verdict>& RendezvousCore::verdict() const noexcept {
    return job_->verdict;
}

bool RendezvousCore::is_backing_off() const noexcept {
    return job_->formation.is_backing_off();
}

Duration RendezvousCore::absence_limit() const noexcept {
    return job_->detector.absence_limit();
}

Situation RendezvousCore::situation(Instant now) const {
    return core::situation(*job_, now);
}

JobStatus RendezvousCore::status(Instant now) const {
    return core::status(*job_, now);
}

}  // namespace regroup::rendezvous
