// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore records events. Nothing is decided here.
#include "rendezvous/core/observe.h"

#include <algorithm>
#include <utility>

#include "rendezvous/core/message_bytes.h"
#include "rendezvous/core/orders.h"
#include "rendezvous/core/rendezvous_core.h"
#include "rendezvous/core/transitions.h"

namespace regroup::rendezvous::core {

namespace {

// Memory of a node besides its offer and its last report, without its id.
constexpr std::size_t kNodeBytes = 1024;
// The places in which its id is kept.
constexpr std::size_t kIdCopies = 8;

// A daemon that does not know the job's rounds skips numbers: absent nodes may still run a round
// that this daemon has not heard of, and no two rounds may have the same number. An unseen round
// was formed by a daemon that knew the job's rounds, and then its number is less than this above
// those that are heard of; or by one that skipped numbers too, and then it skipped another number
// of such blocks.
constexpr std::uint64_t kUnseenRounds = 100;
// A prime number: daemons may be started at a regular interval.
constexpr std::uint64_t kSkipsOfUnseenRounds = 997;

// Waiting nodes are told of one refused join in this time.
constexpr Duration kRefusalPause = std::chrono::seconds(1);

std::uint64_t skipped_rounds(const Job& job) noexcept {
    return kUnseenRounds * (1 + static_cast<std::uint64_t>(job.began_ms) % kSkipsOfUnseenRounds);
}

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

void weigh(Job& job, const NodeId& id, Node& node) {
    job.nodes_bytes -= node.bytes;
    node.bytes = kNodeBytes + kIdCopies * id.size() + bytes_of(node.offer) + bytes_of(node.report);
    job.nodes_bytes += node.bytes;
}

void observe_links(Job& job, Instant now, const NodeId& id, const NodeReport& report,
                   const NodeReport& before) {
    const auto named = [&](std::uint32_t rank) { return name_with(job, rank).value_or(""); };
    for (const BrokenLink& link : report.broken_links) {
        const auto& told = before.broken_links;
        if (before.round != report.round ||
            std::find(told.begin(), told.end(), link) == told.end()) {
            job.round.add_report(id,
                                 {now, Evidence::LinkBroken{id,
                                                            {link.rank, named(link.rank), link.peer,
                                                             named(link.peer), false, link.text}}});
        }
    }
}

void observe_boundary(Job& job, Instant now, const NodeId& id, const Node& node) {
    if (job.phase != Phase::changing) {
        return;
    }
    job.ledger.at_boundary(std::min(now, node.saw_end_at));
    const bool stays = node.report.state == NodeState::stopped && !leaves_with_change(job, id);
    job.round.change->boundary =
        std::max(job.round.change->boundary,
                 stays ? Change::Boundary::seen_by_stayer : Change::Boundary::seen_by_leaver);
}

// Records what a member's report says about the round.
void observe_member(Job& job, Instant now, const NodeId& id, const Node& node,
                    const NodeReport& before) {
    Round& round = job.round;
    const NodeReport& report = node.report;
    const bool is_first = before.round != report.round;
    const bool is_ahead =
        job.phase == Phase::training ||
        (job.phase == Phase::changing && round.change->boundary == Change::Boundary::ahead);
    observe_links(job, now, id, report, before);
    observe_finished(job, now, node);
    if (report.store_spent && (is_first || !before.store_spent)) {
        round.add_report(id, {now, Evidence::RoundAbandoned{node.offer.name, true, is_ahead}});
    }
    if (report.failure) {
        const bool is_hang = round.hang.open() && report.failure->kind == FailureKind::hang;
        if (!leaves_unawaited(job, id) && (is_first || before.failure != report.failure)) {
            const Boxed<WorkerFailure> failure(*report.failure);
            note(job, now, JobEvent::Kind::failed, node).detail = failure;
            round.add_report(
                id, {is_hang ? round.hang.open()->sign : now, Evidence::WorkerFailed{failure}});
        }
    } else if (report.state == NodeState::finished) {
        ++round.finish.members;
        // Group rank 0 is needed: it serves the store.
        seat_of(job, node).dismissed = job.phase == Phase::training && node.group_rank != 0;
        round.hang.forget(id);
        observe_boundary(job, now, id, node);
    } else if (report.state == NodeState::running) {
        if (job.phase != Phase::ending) {
            observe_hang(job, now, id, node);
        }
    } else if (report.store_spent) {
        return;
    } else if (job.phase == Phase::training ||
               (is_ahead && report.state == NodeState::stopped && !report.broken_links.empty())) {
        round.add_report(id, {now, Evidence::RoundAbandoned{node.offer.name, false}});
    } else if (report.state == NodeState::stopped) {
        observe_boundary(job, now, id, node);
    }
}

// A member reports that it runs the round, or how far it has come.
void observe_training(Job& job, Instant now, const Node& node, const NodeReport& before) {
    Round& round = job.round;
    const NodeReport& report = node.report;
    if (report.failure && !report.failure->start_error.empty()) {
        return;  // The round does not run.
    }
    const bool is_first = !std::exchange(seat_of(job, node).confirmed, true);
    round.unconfirmed -= is_first ? 1 : 0;
    const bool all_run = is_first && round.unconfirmed == 0;
    job.program_has_run = job.program_has_run || all_run;
    const bool had_committed = round.has_committed;
    round.has_committed = had_committed || report.held_step > round.held_before;
    if (!job.ledger.awaits_training()) {
        // The first round. It is not known yet whether its programs will tell their steps.
        if ((all_run && !round.announces_training) || (!had_committed && round.has_committed)) {
            note(job, now, JobEvent::Kind::running);
        }
        return;
    }
    // After lost steps the round may train for long below the job's highest step.
    const bool goes_on = before.round == round.id && before.held_step > 0;
    const bool trains =
        report.step > round.step_before || (goes_on && report.held_step > before.held_step);
    if (!round.announces_training) {
        if (round.unconfirmed == 0) {
            begin_training(job, now, job.ledger.running(now, job.budget.step()));
        }
    } else if (!round.trains_since && trains) {
        // Resumed may still arrive, and has more details.
        round.trains_since = now;
    }
}

void learn(Job& job, Instant now, const NodeId& id, Node& node, const NodeReport& report) {
    Round& round = job.round;
    const bool member = is_member(job, node);
    if (member && node.report.elastic != report.elastic) {
        round.non_elastic_members += report.elastic ? std::size_t(-1) : std::size_t{1};
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
        note(job, now, JobEvent::Kind::draining, node).detail = why_leaving(job, node);
    } else if (report.draining.empty() && node.wish && !node.wish->said.empty()) {
        node.wish.reset();
    }
    if (report.elastic) {
        job.is_elastic = true;
        job.budget.expect_steps();
    }
    job.budget.reach(report.step);
    if (!member || report.round != round.id) {
        const bool is_news = report.round != before.round && node.place == Place::working;
        if (member && report.round > round.id && is_news) {
            round.add_report(id, {now, Evidence::Superseded{{node.offer.name, report.round}}});
        }
        return;
    }
    if (job.phase == Phase::ending && node.saw_end_at >= round.began) {
        job.ledger.seen_at(node.saw_end_at);
    }
    // Before Resumed it is not known at which step the round began.
    if (!job.ledger.awaits_training()) {
        job.reached.heard(report);
    }
    observe_training(job, now, node, before);
    if (node.place == Place::working) {
        observe_member(job, now, id, node, before);
    }
}

// Any message from a node: the node is alive, and `report` is its state.
void hear(Job& job, Instant now, const NodeId& id, Node& node, const NodeReport& report) {
    job.detector.heard(node.slot, now);
    job.outbox.speaker = node.slot;
    // A daemon that is younger than the job continues the job's numbers. Before its first round the
    // highest reported number counts, in whatever order the nodes report.
    const RoundId known =
        job.round.id == RoundId::none ? RoundId::none : std::max(job.round.id, job.round_floor);
    if (report.round > known && report.round <= RendezvousCore::kRoundClaimMax) {
        job.round_floor = std::max(
            job.round_floor, static_cast<RoundId>(number(report.round) + skipped_rounds(job)));
    }
    if (!is_older(report, node.report)) {
        learn(job, now, id, node, report);
    }
    weigh(job, id, node);
    place(job, now, id, node);
}

// Nodes that wait for others must know why one does not join. Nobody can make them hear it more
// often than they can read.
void tell_refused(Job& job, Instant now, const Refusal& refusal) {
    if (now < job.refusals_untold_until) {
        return;
    }
    job.refusals_untold_until = after(now, kRefusalPause);
    for (const auto& [id, node] : NodesIn(job, Place::ready)) {
        Waiting word = waiting(job, now, id, node);
        word.detail = Situation();
        word.detail.kind = Situation::Kind::refused;
        word.detail.refusal = refusal;
        job.outbox.send(id, std::move(word));
    }
}

}  // namespace

bool is_proven(const Job& job, const NodeId& node, const Offer& offer) {
    const auto found = job.nodes.find(node);
    return found == job.nodes.end() || found->second.offer.secret == offer.secret;
}

void observe(Job& job, Instant now, const NodeJoined& event) {
    if (!is_proven(job, event.node, event.offer)) {
        return;
    }
    if (job.phase == Phase::closed) {
        job.outbox.send(event.node, Closed{*job.verdict, !job.nodes.contains(event.node)});
        return;
    }
    if (const std::optional<Refused> refused = refusal(job, now, event)) {
        job.outbox.send(event.node, *refused);
        tell_refused(job, now, refused->reason);
        return;
    }
    const auto [found, is_new] = job.nodes.try_emplace(event.node);
    Node& node = found->second;
    const bool begins_to_host =
        event.offer.ends_with_daemon && (is_new || !node.offer.ends_with_daemon);
    if (is_new) {
        job.places.add(event.node, node.place, node.stays);
        node.report = event.report;
        node.out_since = now;
        node.joined = ++job.nodes_joined;
        const auto kept = std::find_if(job.kept_wishes.begin(), job.kept_wishes.end(),
                                       [&](const auto& wish) { return wish.first == event.node; });
        if (kept != job.kept_wishes.end()) {
            node.wish = std::move(kept->second);
            job.kept_wishes.erase(kept);
        }
    } else {
        job.offers.remove(event.node, node.offer);
    }
    node.offer = event.offer;
    job.offers.add(event.node, event.offer);
    job.embedded_daemon = job.embedded_daemon || event.offer.ends_with_daemon;
    if (is_member(job, node) && event.report.round == job.round.id) {
        // The node was away when the incident was reported. If it had received the report, it
        // recognizes the repetition.
        for (Incident& incident : job.ledger.again(job.round.id)) {
            job.outbox.send(event.node, Recovered{std::move(incident)});
        }
    }
    hear(job, now, event.node, node, event.report);
    if (is_new) {
        note(job, now, JobEvent::Kind::joined, node);
        place_leavers(job, now);
    }
    if (job.phase == Phase::forming || is_member(job, node)) {
        // Answering the first heartbeat is early enough for Waiting or Alive. Usually the round has
        // formed by then.
        job.outbox.speaker.reset();
        job.outbox.concern(node);
    }
    if (begins_to_host) {
        // Other such nodes belong to processes that hosted the daemon before this one.
        std::vector<NodeId> ended;
        for (const auto& [id, other] : job.nodes) {
            if (id != event.node && other.offer.ends_with_daemon &&
                job.detector.suspects(other.slot)) {
                ended.push_back(id);
            }
        }
        for (const NodeId& id : ended) {
            lose(job, now, id, {Departure::Kind::launcher_ended}, now);
        }
    }
}

void observe(Job& job, Instant now, const NodeReported& event) {
    // A node brings its round when it joins, and gets each later one from here. If another counted,
    // the node would count as out of all rounds that follow.
    const RoundId latest = std::max(job.round.id, job.round_floor);
    const auto found = job.nodes.find(event.node);
    if (found != job.nodes.end() && (job.phase == Phase::closed || event.report.round <= latest)) {
        hear(job, now, event.node, found->second, event.report);
    } else if (job.phase == Phase::closed) {
        job.outbox.send(event.node, Closed{*job.verdict});
    } else {
        job.outbox.send(event.node, Fenced{});
    }
}

void observe(Job& job, Instant now, const NodeDisconnected& event) {
    const auto found = job.nodes.find(event.node);
    if (found == job.nodes.end()) {
        return;
    }
    const Node& node = found->second;
    if (node.member_of == RoundId::none && node.report.round == RoundId::none) {
        // It has nothing to come back for: it can join again as a new node.
        lose(job, now, event.node, {Departure::Kind::disconnected}, now);
        return;
    }
    // A node that only says that it was in a round is not kept for as long as a member.
    const bool was_here = node.member_of != RoundId::none;
    job.detector.suspect(node.slot, now,
                         was_here ? Duration::max() : FailureDetector::kReturnCycle);
    place(job, now, event.node, found->second);
}

void observe(Job& job, Instant now, const NodeLeft& event) {
    const auto kind = event.killed ? Departure::Kind::killed : Departure::Kind::left;
    lose(job, now, event.node, {kind, {}, 1, event.reason}, now);
}

void observe(Job& job, Instant /*now*/, const StopRequested& event) {
    job.stop = job.stop.value_or(event);
}

void observe(Job& job, Instant now, const DrainRequested& event) {
    if (job.phase == Phase::closed) {
        return;
    }
    for (auto& [id, node] : job.nodes) {
        // An id identifies one node, a name all launchers on a host.
        if ((id == event.node || node.offer.name == event.node) && !node.wish) {
            node.wish = LeaveWish{"", event.author, event.reason};
            note(job, now, JobEvent::Kind::draining, node).detail = why_leaving(job, node);
            place(job, now, id, node);
            job.outbox.concern(node);
        }
    }
}

void observe(Job& job, Instant now, const ReleaseRequested& event) {
    if (job.phase == Phase::closed || !job.failures.release(event.node)) {
        return;
    }
    readmit(job, now, {event.node}, JobEvent::Release{event.author, event.reason});
}

void observe(Job& job, Instant /*now*/, const JobFollows& event) {
    job.round_floor = std::max(job.round_floor, event.last);
}

void observe(Job& job, Instant now, const SlowRankFound& event) {
    const std::optional<NodeId> owner = event.round == job.round.id && in_round(job)
                                            ? node_with(job, event.slow.rank)
                                            : std::nullopt;
    if (!owner) {
        return;
    }
    const Node& node = job.nodes.at(*owner);
    note(job, now, JobEvent::Kind::slow, node).detail = event.slow;
    for (const auto& [id, member] : members_of(job)) {
        job.outbox.send(id, RankIsSlow{event.round, event.slow, node.offer.name});
    }
}

void observe(Job& job, Instant now, const Restarted& /*event*/) {
    Round& round = job.round;
    if (job.phase != Phase::closed) {
        note(job, now, JobEvent::Kind::restored);
    }
    job.detector.suspect_all(now);
    place_all(job, now);
    // Nodes could not connect while the daemon was away.
    const Instant back = job.detector.last_deadline();
    const auto prolong = [&](Instant& deadline) {
        if (deadline != Instant::max() && deadline != Instant::min()) {
            deadline = std::max(deadline, back);
        }
    };
    prolong(job.formation.last_call_until);
    prolong(job.overdue_at);
    if (round.change && in_round(job)) {
        prolong(round.change->deadline);
        // All nodes were to leave with a process that has ended already.
        round.change->lost_with_daemon = job.embedded_daemon;
    }
    job.embedded_daemon = false;
    round.hang.prolong(back);
    if (round.finish.since && job.policy.finish_timeout > Duration::zero()) {
        // So long, the others could not say that they have finished, too.
        round.finish.since = std::max(*round.finish.since, back - job.policy.finish_timeout);
    }
    if (in_round(job) && !job.ledger.awaits_training()) {
        job.reached.missed_some();
    }
}

void observe(Job& job, Instant now, const NodeResumed& event) {
    Round& round = job.round;
    const auto found = job.nodes.find(event.node);
    if (found == job.nodes.end()) {
        return;
    }
    if (!job.detector.suspects(found->second.slot)) {
        job.detector.heard(found->second.slot, now);
    }
    const Resumed& resumed = event.resumed;
    if (!is_member(job, found->second) || resumed.round != round.id) {
        return;
    }
    job.budget.reach(resumed.step);
    round.trains_since.reset();
    const bool had_committed = std::exchange(round.has_committed, true);
    if (!job.ledger.awaits_training()) {
        if (!had_committed) {
            note(job, now, JobEvent::Kind::running);
        }
        // The node repeats Resumed until it is answered.
        for (Incident& incident : job.ledger.again(round.id)) {
            job.outbox.send(event.node, Recovered{std::move(incident)});
        }
        return;
    }
    // If a waiting node holds a later step than the round began with, the round must begin again
    // with that node. A late Resumed does not count: the round has committed more steps since.
    const Node* furthest = nullptr;
    for (const auto& [id, node] : NodesIn(job, Place::ready)) {
        const bool is_first =
            furthest == nullptr || node.report.held_step > furthest->report.held_step;
        furthest = is_first ? &node : furthest;
    }
    if (job.phase == Phase::training && resumed.step > 0 &&
        resumed.ago <= job.policy.heartbeat_timeout && furthest != nullptr &&
        furthest->report.held_step > resumed.step) {
        round.add_report(event.node, {now, Evidence::BegunBehind{{furthest->offer.name,
                                                                  furthest->report.held_step,
                                                                  resumed.step - 1}}});
        return;
    }
    begin_training(
        job, now,
        job.ledger.resumed(now, resumed, job.reached.before(resumed.step), job.reached.is_stale()));
    job.reached.begun(resumed.step);
    begin_planned_incident(job, now);
}

}  // namespace regroup::rendezvous::core
