// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore records events. Nothing is decided here.
#include <algorithm>
#include <utility>

#include "rendezvous/core/message_bytes.h"
#include "rendezvous/core/node_state.h"
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

namespace {

// Memory of a node besides its offer and its last report, without its id.
constexpr std::size_t kNodeBytes = 1024;
// The places in which its id is kept.
constexpr std::size_t kIdCopies = 8;

// A daemon that does not know the job's rounds skips this many numbers: absent nodes may still run
// a round that this daemon has not heard of, and no two rounds may have the same number.
constexpr std::uint64_t kUnseenRounds = 100;

// Waiting nodes are told of one refused join in this time.
constexpr Duration kRefusalPause = std::chrono::seconds(1);

// How far a node has come within a round. It never decreases.
int progress(NodeState state) noexcept {
    switch (state) {
        case NodeState::running:
            return 0;
        case NodeState::stopping:
            return 1;
        case NodeState::stopped:
        case NodeState::finished:
            return 2;
    }
    return 2;
}

// True if report `a` describes the node at an earlier time than report `b`.
bool is_older(const NodeReport& a, const NodeReport& b) noexcept {
    return a.round != b.round ? a.round < b.round : progress(a.state) < progress(b.state);
}

}  // namespace

bool RendezvousCore::is_proven(const NodeId& node, const Offer& offer) const {
    const auto found = nodes_.find(node);
    return found == nodes_.end() || found->second.offer.secret == offer.secret;
}

bool RendezvousCore::has_member(const NodeId& node) const {
    const auto found = nodes_.find(node);
    return found != nodes_.end() && is_member(found->second);
}

void RendezvousCore::observe(Instant now, const NodeJoined& event) {
    if (!is_proven(event.node, event.offer)) {
        return;
    }
    if (phase_ == Phase::closed) {
        effects_.push_back({event.node, Closed{*verdict_, !knows(event.node)}});
        return;
    }
    if (const std::optional<Refused> refused = refusal(now, event)) {
        effects_.push_back({event.node, *refused});
        tell_refused(now, refused->reason);
        return;
    }
    const auto [found, is_new] = nodes_.try_emplace(event.node);
    Node& node = found->second;
    const bool begins_to_host =
        event.offer.ends_with_daemon && (is_new || !node.offer.ends_with_daemon);
    if (is_new) {
        node.report = event.report;
        node.out_since = now;
        node.joined = ++nodes_joined_;
        const auto kept = std::find_if(kept_wishes_.begin(), kept_wishes_.end(),
                                       [&](const auto& wish) { return wish.first == event.node; });
        if (kept != kept_wishes_.end()) {
            node.wish = std::move(kept->second);
            kept_wishes_.erase(kept);
        }
    } else {
        offers_.remove(event.node, node.offer);
    }
    node.offer = event.offer;
    offers_.add(event.node, event.offer);
    embedded_daemon_ = embedded_daemon_ || event.offer.ends_with_daemon;
    if (is_member(node) && event.report.round == round_.id) {
        // The node was away when the incident was reported. If it had received the report, it
        // recognizes the repetition.
        for (Incident& incident : ledger_.again(round_.id)) {
            effects_.push_back({event.node, Recovered{std::move(incident)}});
        }
    }
    hear(now, event.node, node, event.report);
    if (is_new) {
        note(now, JobEvent::Kind::joined, event.node, node);
        place_leavers(now);
    }
    if (phase_ == Phase::forming || is_member(node)) {
        // Answering the first heartbeat is early enough for Waiting or Alive. Usually the round has
        // formed by then.
        speaker_.reset();
        concern(event.node);
    }
    if (begins_to_host) {
        // Other such nodes belong to processes that hosted the daemon before this one.
        std::vector<NodeId> ended;
        for (const auto& [id, other] : nodes_) {
            if (id != event.node && other.offer.ends_with_daemon && detector_.suspects(id)) {
                ended.push_back(id);
            }
        }
        for (const NodeId& id : ended) {
            lose(now, id, {Departure::Kind::launcher_ended}, now);
        }
    }
}

// Nodes that wait for others must know why one does not join. Nobody can make them hear it more
// often than they can read.
void RendezvousCore::tell_refused(Instant now, const Refusal& refusal) {
    if (now < refusals_untold_until_) {
        return;
    }
    refusals_untold_until_ = after(now, kRefusalPause);
    for (const NodeId& id : places_.in(Place::ready)) {
        Waiting word = waiting(now, id, nodes_.at(id));
        word.detail = Situation();
        word.detail.kind = Situation::Kind::refused;
        word.detail.refusal = refusal;
        effects_.push_back({id, std::move(word)});
    }
}

void RendezvousCore::observe(Instant now, const NodeReported& event) {
    // A node brings its round when it joins, and gets each later one from here. If another counted,
    // the node would count as out of all rounds that follow.
    const RoundId latest = std::max(round_.id, round_floor_);
    const auto found = nodes_.find(event.node);
    if (found != nodes_.end() && (phase_ == Phase::closed || event.report.round <= latest)) {
        hear(now, event.node, found->second, event.report);
    } else if (phase_ == Phase::closed) {
        effects_.push_back({event.node, Closed{*verdict_}});
    } else {
        effects_.push_back({event.node, Fenced{}});
    }
}

void RendezvousCore::observe(Instant now, const NodeDisconnected& event) {
    const auto found = nodes_.find(event.node);
    if (found == nodes_.end()) {
        return;
    }
    const Node& node = found->second;
    if (node.member_of == RoundId::none && node.report.round == RoundId::none) {
        // It has nothing to come back for: it can join again as a new node.
        lose(now, event.node, {Departure::Kind::disconnected}, now);
        return;
    }
    // A node that only says that it was in a round is not kept for as long as a member.
    const bool was_here = node.member_of != RoundId::none;
    detector_.suspect(event.node, now, was_here ? Duration::max() : FailureDetector::kReturnCycle);
    place(now, event.node, found->second);
}

void RendezvousCore::observe(Instant now, const NodeLeft& event) {
    const auto kind = event.killed ? Departure::Kind::killed : Departure::Kind::left;
    lose(now, event.node, {kind, {}, 1, event.reason}, now);
}

void RendezvousCore::observe(Instant /*now*/, const StopRequested& event) {
    stop_ = stop_.value_or(event);
}

void RendezvousCore::observe(Instant now, const DrainRequested& event) {
    if (phase_ == Phase::closed) {
        return;
    }
    for (auto& [id, node] : nodes_) {
        // An id identifies one node, a name all launchers on a host.
        if ((id == event.node || node.offer.name == event.node) && !node.wish) {
            node.wish = LeaveWish{"", event.author, event.reason};
            note(now, JobEvent::Kind::draining, id, node).detail = why_leaving(node);
            place(now, id, node);
            concern(id);
        }
    }
}

void RendezvousCore::observe(Instant now, const ReleaseRequested& event) {
    if (phase_ == Phase::closed || !failures_.release(event.node)) {
        return;
    }
    JobEvent& released = note(now, JobEvent::Kind::released);
    released.node = event.node;
    released.detail = JobEvent::Release{event.author, event.reason};
    place_named(now, {event.node});
}

void RendezvousCore::observe(Instant /*now*/, const JobFollows& event) {
    round_floor_ = std::max(round_floor_, event.last);
}

void RendezvousCore::observe(Instant now, const Restarted& /*event*/) {
    if (phase_ != Phase::closed) {
        note(now, JobEvent::Kind::restored);
    }
    detector_.suspect_all(now);
    place_all(now);
    // Nodes could not connect while the daemon was away.
    const Instant back = detector_.last_deadline();
    const auto prolong = [&](Instant& deadline) {
        if (deadline != Instant::max() && deadline != Instant::min()) {
            deadline = std::max(deadline, back);
        }
    };
    prolong(last_call_until_);
    prolong(overdue_at_);
    if (round_.change && in_round()) {
        prolong(round_.change->deadline);
        // All nodes were to leave with a process that has ended already.
        round_.change->lost_with_daemon = embedded_daemon_;
    }
    embedded_daemon_ = false;
    if (round_.inquiry) {
        prolong(round_.inquiry->deadline);
    }
    if (round_.finished_since && policy_.finish_timeout > Duration::zero()) {
        // So long, the others could not say that they have finished, too.
        round_.finished_since = std::max(*round_.finished_since, back - policy_.finish_timeout);
    }
    if (in_round() && !ledger_.awaits_training()) {
        reached_.missed_some();
    }
}

void RendezvousCore::observe(Instant now, const NodeResumed& event) {
    const auto found = nodes_.find(event.node);
    if (found == nodes_.end()) {
        return;
    }
    if (!detector_.suspects(event.node)) {
        detector_.heard(event.node, now);
    }
    const Resumed& resumed = event.resumed;
    if (!is_member(found->second) || resumed.round != round_.id) {
        return;
    }
    budget_.reach(resumed.step);
    round_.trains_since.reset();
    const bool had_committed = std::exchange(round_.has_committed, true);
    if (!ledger_.awaits_training()) {
        if (!had_committed) {
            note(now, JobEvent::Kind::running);
        }
        // The node repeats Resumed until it is answered.
        for (Incident& incident : ledger_.again(round_.id)) {
            effects_.push_back({event.node, Recovered{std::move(incident)}});
        }
        return;
    }
    // If a waiting node holds a later step than the round began with, the round must begin again
    // with that node. A late Resumed does not count: the round has committed more steps since.
    const auto held_by = [&](const NodeId& id) { return nodes_.at(id).report.held_step; };
    const std::set<NodeId>& ready = places_.in(Place::ready);
    const auto furthest =
        std::max_element(ready.begin(), ready.end(),
                         [&](const NodeId& a, const NodeId& b) { return held_by(a) < held_by(b); });
    if (phase_ == Phase::training && resumed.step > 0 && resumed.ago <= policy_.heartbeat_timeout &&
        furthest != ready.end() && held_by(*furthest) > resumed.step) {
        round_.add_report(event.node,
                          {now, Evidence::BegunBehind{
                                    {name_of(*furthest), held_by(*furthest), resumed.step - 1}}});
        return;
    }
    begin_training(
        now, ledger_.resumed(now, resumed, reached_.before(resumed.step), reached_.is_stale()));
    reached_.begun(resumed.step);
    begin_planned_incident(now);
}

void RendezvousCore::hear(Instant now, const NodeId& id, Node& node, const NodeReport& report) {
    detector_.heard(id, now);
    speaker_ = id;
    // A daemon that is younger than the job continues the job's numbers. Before its first round the
    // highest reported number counts, in whatever order the nodes report.
    const RoundId known =
        round_.id == RoundId::none ? RoundId::none : std::max(round_.id, round_floor_);
    if (report.round > known && report.round <= kRoundClaimMax) {
        round_floor_ =
            std::max(round_floor_, static_cast<RoundId>(number(report.round) + kUnseenRounds));
    }
    if (!is_older(report, node.report)) {
        learn(now, id, node, report);
    }
    weigh(id, node);
    place(now, id, node);
}

void RendezvousCore::weigh(const NodeId& id, Node& node) {
    nodes_bytes_ -= node.bytes;
    node.bytes = kNodeBytes + kIdCopies * id.size() + bytes_of(node.offer) + bytes_of(node.report);
    nodes_bytes_ += node.bytes;
}

void RendezvousCore::learn(Instant now, const NodeId& id, Node& node, const NodeReport& report) {
    const bool member = is_member(node);
    if (member && node.report.elastic != report.elastic) {
        round_.non_elastic_members += report.elastic ? std::size_t(-1) : std::size_t{1};
    }
    const bool was_out = node.report.state == NodeState::stopped;
    if (report.state == NodeState::stopped && (!was_out || report.round > node.report.round)) {
        node.out_since = now;
    }
    const NodeReport before = std::exchange(node.report, report);
    const bool goes_on = report.state == NodeState::running && report.broken_links.empty();
    if (report.ended_ago > Duration::zero()) {
        node.saw_end_at = now - report.ended_ago;
    } else if (goes_on || report.round != before.round) {
        node.saw_end_at = Instant::max();
    }
    // An unchanged deadline is not computed again, so that a journal may leave out the report.
    if (report.at_work == Duration::zero()) {
        node.in_user_code_until = Instant::min();
    } else if (report.at_work > before.at_work || node.in_user_code_until == Instant::min()) {
        node.in_user_code_until = after(now, report.at_work);
    }
    if (!report.draining.empty() && !node.wish) {
        node.wish = LeaveWish{report.draining, "", ""};
        note(now, JobEvent::Kind::draining, id, node).detail = why_leaving(node);
    } else if (report.draining.empty() && node.wish && !node.wish->said.empty()) {
        node.wish.reset();
    }
    if (report.elastic) {
        is_elastic_ = true;
        budget_.expect_steps();
    }
    budget_.reach(report.step);
    if (!member || report.round != round_.id) {
        const bool is_news = report.round != before.round && node.place == Place::working;
        if (member && report.round > round_.id && is_news) {
            round_.add_report(id, {now, Evidence::Superseded{{node.offer.name, report.round}}});
        }
        return;
    }
    if (phase_ == Phase::ending && node.saw_end_at >= round_.began) {
        ledger_.seen_at(node.saw_end_at);
    }
    // Before Resumed it is not known at which step the round began.
    if (!ledger_.awaits_training()) {
        reached_.heard(report);
    }
    observe_training(now, id, before, report);
    if (node.place == Place::working) {
        observe_member(now, id, node, before);
    }
}

// A member reports that it runs the round, or how far it has come.
void RendezvousCore::observe_training(Instant now, const NodeId& id, const NodeReport& before,
                                      const NodeReport& report) {
    if (report.failure && !report.failure->start_error.empty()) {
        return;  // The round does not run.
    }
    const bool all_run = round_.unconfirmed.erase(id) > 0 && round_.unconfirmed.empty();
    program_has_run_ = program_has_run_ || all_run;
    const bool had_committed = round_.has_committed;
    round_.has_committed = had_committed || report.held_step > round_.held_before;
    if (!ledger_.awaits_training()) {
        // The first round. It is not known yet whether its programs will tell their steps.
        if ((all_run && !round_.announces_training) || (!had_committed && round_.has_committed)) {
            note(now, JobEvent::Kind::running);
        }
        return;
    }
    // After lost steps the round may train for long below the job's highest step.
    const bool goes_on = before.round == round_.id && before.held_step > 0;
    const bool trains =
        report.step > round_.step_before || (goes_on && report.held_step > before.held_step);
    if (!round_.announces_training) {
        if (round_.unconfirmed.empty()) {
            begin_training(now, ledger_.running(now, budget_.step()));
        }
    } else if (!round_.trains_since && trains) {
        // Resumed may still arrive, and has more details.
        round_.trains_since = now;
    }
}

void RendezvousCore::observe_member(Instant now, const NodeId& id, const Node& node,
                                    const NodeReport& before) {
    const NodeReport& report = node.report;
    const bool is_first = before.round != report.round;
    const bool is_ahead =
        phase_ == Phase::training ||
        (phase_ == Phase::changing && round_.change->boundary == Change::Boundary::ahead);
    observe_links(now, id, report, before);
    observe_finished(now, id, node);
    if (report.store_spent && (is_first || !before.store_spent)) {
        round_.add_report(id, {now, Evidence::RoundAbandoned{node.offer.name, true, is_ahead}});
    }
    if (report.failure) {
        const bool is_hang = round_.inquiry && report.failure->kind == FailureKind::hang;
        if (!leaves_unawaited(id) && (is_first || before.failure != report.failure)) {
            const Boxed<WorkerFailure> failure(*report.failure);
            note(now, JobEvent::Kind::failed, id, node).detail = failure;
            round_.add_report(
                id, {is_hang ? round_.inquiry->sign : now, Evidence::WorkerFailed{failure}});
        }
    } else if (report.state == NodeState::finished) {
        ++round_.finished;
        if (phase_ == Phase::training && round_.members.at(id).group_rank != 0) {
            round_.dismissed.insert(id);  // Group rank 0 is needed: it serves the store.
        }
        round_.hanging.erase(id);
        if (round_.inquiry) {
            round_.inquiry->unanswered.erase(id);
        }
        observe_boundary(now, id, node);
    } else if (report.state == NodeState::running) {
        if (phase_ != Phase::ending) {
            observe_hang(now, id, node);
        }
    } else if (report.store_spent) {
        return;
    } else if (phase_ == Phase::training ||
               (is_ahead && report.state == NodeState::stopped && !report.broken_links.empty())) {
        round_.add_report(id, {now, Evidence::RoundAbandoned{node.offer.name, false}});
    } else if (report.state == NodeState::stopped) {
        observe_boundary(now, id, node);
    }
}

void RendezvousCore::observe_boundary(Instant now, const NodeId& id, const Node& node) {
    if (phase_ != Phase::changing) {
        return;
    }
    ledger_.at_boundary(std::min(now, node.saw_end_at));
    const bool stays = node.report.state == NodeState::stopped && !leaves_with_change(id);
    round_.change->boundary =
        std::max(round_.change->boundary,
                 stays ? Change::Boundary::seen_by_stayer : Change::Boundary::seen_by_leaver);
}

void RendezvousCore::observe_links(Instant now, const NodeId& id, const NodeReport& report,
                                   const NodeReport& before) {
    const auto named = [&](std::uint32_t rank) {
        const std::optional<NodeId> found = node_with(rank);
        return found ? name_of(*found) : std::string();
    };
    for (const BrokenLink& link : report.broken_links) {
        const auto& told = before.broken_links;
        if (before.round != report.round ||
            std::find(told.begin(), told.end(), link) == told.end()) {
            round_.add_report(id,
                              {now, Evidence::LinkBroken{id,
                                                         {link.rank, named(link.rank), link.peer,
                                                          named(link.peer), false, link.text}}});
        }
    }
}

}  // namespace regroup::rendezvous
