// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore goes from one phase to the next: the table, what each row asks, and what it
// does.
#include <algorithm>
#include <utility>

#include "rendezvous/core/node_state.h"
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

namespace {

// A growth names so many nodes at most.
constexpr std::size_t kNamesInCause = 32;
// Growth waits so long, and no longer, for the workers of nodes that are new.
constexpr Duration kPrestartLimit = std::chrono::seconds(30);

}  // namespace

// The first row that matches is applied, then the first that matches after that, until none does.
// docs/design.md shows this table with what each row means.
const RendezvousCore::Transition RendezvousCore::kTransitions[] = {
    {Phase::forming, &RendezvousCore::must_stop, &RendezvousCore::close_stopped},
    {Phase::forming, &RendezvousCore::too_few_left, &RendezvousCore::close_too_few_left},
    {Phase::forming, &RendezvousCore::nobody_came, &RendezvousCore::close_nobody_came},
    {Phase::forming, &RendezvousCore::needs_quarantined, &RendezvousCore::release_quarantined},
    {Phase::forming, &RendezvousCore::can_form, &RendezvousCore::form},

    {Phase::training, &RendezvousCore::must_stop, &RendezvousCore::close_stopped},
    {Phase::training, &RendezvousCore::all_finished, &RendezvousCore::close_finished},
    {Phase::training, &RendezvousCore::must_end, &RendezvousCore::begin_ending},
    {Phase::training, &RendezvousCore::must_change, &RendezvousCore::begin_change},

    {Phase::changing, &RendezvousCore::must_stop, &RendezvousCore::close_stopped},
    {Phase::changing, &RendezvousCore::lost_with_daemon, &RendezvousCore::close_drained},
    {Phase::changing, &RendezvousCore::all_finished, &RendezvousCore::close_finished},
    {Phase::changing, &RendezvousCore::must_end, &RendezvousCore::begin_ending},
    {Phase::changing, &RendezvousCore::is_at_boundary, &RendezvousCore::end_at_boundary},
    {Phase::changing, &RendezvousCore::must_change_more, &RendezvousCore::change_more},

    {Phase::ending, &RendezvousCore::must_stop, &RendezvousCore::close_stopped},
    {Phase::ending, &RendezvousCore::lost_with_daemon, &RendezvousCore::close_drained},
    {Phase::ending, &RendezvousCore::all_finished, &RendezvousCore::close_finished},
    {Phase::ending, &RendezvousCore::is_out, &RendezvousCore::end_round},
};

void RendezvousCore::transit(Instant now, Instant clock) {
    for (bool changed = true; changed;) {
        changed = false;
        update_last_call(now);
        for (const Transition& row : kTransitions) {
            if (row.from == phase_ && (this->*row.when)(clock)) {
                (this->*row.apply)(now);
                changed = true;
                break;
            }
        }
    }
}

// ---- Forming.

void RendezvousCore::update_last_call(Instant now) {
    if (phase_ != Phase::forming) {
        return;
    }
    const bool enough = places_.count(Place::ready) >= policy_.nodes_min;
    const bool awaits = places_.count(Place::outstanding) > 0;
    if (is_backing_off() || (enough && awaits)) {
        ledger_.held();
    } else if (!enough && !awaits && !needs_quarantined(now)) {
        last_call_until_ = Instant::max();  // Whoever comes back, others may come back as well.
    } else if (enough && last_call_until_ == Instant::max()) {
        last_call_until_ =
            policy_.last_call == Duration::zero() ? Instant::min() : after(now, policy_.last_call);
    }
}

bool RendezvousCore::must_stop(Instant /*clock*/) const {
    return stop_.has_value();
}

void RendezvousCore::close_stopped(Instant now) {
    Verdict verdict;
    verdict.outcome = Outcome::stopped;
    verdict.author = stop_->author;
    verdict.reason = stop_->reason;
    close(now, std::move(verdict));
}

// Nodes that have finished and gone do not come back; to wait for them would only look like a hang.
bool RendezvousCore::too_few_left(Instant /*clock*/) const {
    return !round_.finished_and_gone.empty() && nodes_.size() < policy_.nodes_min;
}

// The nodes that are kept out would be enough. A node that gave up by itself could not say so.
bool RendezvousCore::nobody_came(Instant clock) const {
    const std::size_t ready = places_.count(Place::ready);
    return clock >= give_up_at_ && give_up_at_ != Instant::max() && !is_backing_off() &&
           places_.count(Place::outstanding) == 0 && ready < policy_.nodes_min &&
           ready + places_.count(Place::quarantined) >= policy_.nodes_min;
}

// Each node waits for others as long as its user has said: the first one gives up.
Instant RendezvousCore::first_gives_up_at() const {
    Instant first = Instant::max();
    for (const auto& [id, assignment] : round_.members) {
        first = std::min(first, gives_up_at(nodes_.at(id)));
    }
    return first;
}

Instant RendezvousCore::gives_up_at(const Node& node) {
    return node.offer.join_timeout > Duration::zero() && node.report.state == NodeState::stopped
               ? after(node.out_since, node.offer.join_timeout)
               : Instant::max();
}

bool RendezvousCore::needs_quarantined(Instant /*clock*/) const {
    return places_.count(Place::ready) < policy_.nodes_min &&
           places_.count(Place::outstanding) == 0 && places_.count(Place::quarantined) > 0 &&
           failures_.any_to_release();
}

void RendezvousCore::release_quarantined(Instant now) {
    place_named(now, failures_.release());
}

// A round forms when no node is outstanding: whichever node may hold later state was a member, and
// is waited for until it is ready or given up.
bool RendezvousCore::can_form(Instant clock) const {
    const std::size_t ready = places_.count(Place::ready);
    if (ready < policy_.nodes_min || is_backing_off() || places_.count(Place::outstanding) > 0) {
        return false;
    }
    return ready >= policy_.nodes_max || last_call_until_ == Instant::min() ||
           clock >= last_call_until_;
}

std::uint64_t RendezvousCore::furthest_ready() const {
    std::uint64_t step = 0;
    for (const NodeId& id : places_.in(Place::ready)) {
        step = std::max(step, nodes_.at(id).report.held_step);
    }
    return step;
}

void RendezvousCore::form(Instant now) {
    const std::set<NodeId>& quarantined = places_.in(Place::quarantined);
    const std::uint64_t furthest = furthest_ready();
    if (std::any_of(quarantined.begin(), quarantined.end(),
                    [&](const NodeId& id) { return nodes_.at(id).report.held_step > furthest; })) {
        release_quarantined(now);  // A step is lost with the last process that has its state.
    }
    // Where all would have to leave, nobody is to take the place of a node that wants to.
    const bool others_stay = places_.staying() >= policy_.nodes_min;
    std::vector<Member> candidates;
    for (const NodeId& id : places_.in(Place::ready)) {
        const Node& node = nodes_.at(id);
        candidates.push_back({id, node.offer, node.report.store_port, node.report.resident,
                              node.report.held_step,
                              node.wish && others_stay && !node.offer.hosts_rendezvous});
    }
    const std::vector<Member> members = ranks_.arrange(std::move(candidates), policy_.nodes_max);
    std::vector<Assignment> assignments = assign_ranks(members);
    Round round;
    round.id = next(std::max(round_.id, round_floor_));
    round.began = now;
    round.cause = round_.id == RoundId::none || !round_.judgement.cause.is_known()
                      ? Cause(Cause::Joined{members.size(), {}})
                      : round_.judgement.cause;
    round.announces_training = is_elastic_;
    round.held_before = furthest_ready();
    round.step_before = budget_.step();
    for (std::size_t i = 0; i < members.size(); ++i) {
        const NodeId& id = members[i].node;
        assignments[i].round = round.id;
        assignments[i].restart_count = budget_.restarts();
        assignments[i].reason = round.cause;
        round.unconfirmed.insert(id);
        round.roster.emplace_back(id, members[i].offer.name);
        round.non_elastic_members += members[i].warm ? 0 : 1;
        round.members.emplace(id, std::move(assignments[i]));
    }
    reached_.formed(round.held_before);
    ledger_.formed(now, round.id, succession(members));
    first_began_ = first_began_.value_or(now);
    round_ = std::move(round);
    phase_ = Phase::training;
    for (const Member& member : members) {
        nodes_.at(member.node).member_of = round_.id;
    }
    last_call_until_ = give_up_at_ = Instant::max();
    place_all(now);
    concern_members();
}

// The fate of each of the last round's places.
Succession RendezvousCore::succession(const std::vector<Member>& members) const {
    std::set<NodeId> former;
    for (const auto& [id, name] : round_.roster) {
        former.insert(id);
    }
    Succession succession;
    succession.nodes = members.size();
    succession.nodes_before = round_.roster.size();
    for (std::size_t slot = 0; slot < members.size(); ++slot) {
        if (former.contains(members[slot].node) ||
            ++succession.arrivals_count > Succession::kArrivalsNamed) {
            continue;
        }
        using Kind = Succession::Arrival::Kind;
        const std::string& name = members[slot].offer.name;
        const bool returns = slot < round_.roster.size() && round_.roster[slot].second == name;
        const bool spare = round_.roster.size() >= policy_.nodes_max;
        succession.arrivals.push_back(
            {returns ? Kind::returned : (spare ? Kind::spare : Kind::joined), name, slot});
    }
    if (round_.judgement.failure && !round_.has_lost_nodes()) {
        succession.restarted_on = round_.judgement.failure->node;
    }
    return succession;
}

// ---- Training.

bool RendezvousCore::all_finished(Instant /*clock*/) const {
    return round_.all_finished();
}

bool RendezvousCore::must_end(Instant clock) const {
    return decisive_evidence(clock).has_value() ||
           (phase_ == Phase::changing && clock >= round_.change->deadline);
}

std::optional<std::size_t> RendezvousCore::decisive_evidence(Instant clock) const {
    const std::vector<Evidence>& evidence = round_.evidence;
    if (evidence.empty()) {
        return std::nullopt;
    }
    const auto decisive = std::find_if(evidence.begin(), evidence.end(),
                                       [](const Evidence& entry) { return entry.is_decisive(); });
    if (decisive != evidence.end()) {
        return static_cast<std::size_t>(decisive - evidence.begin());
    }
    if (const auto mutual = find_mutual_break(evidence)) {
        return mutual;
    }
    if (clock < link_deadline()) {
        return std::nullopt;
    }
    for (std::size_t i = 0; i < evidence.size(); ++i) {
        if (is_live_break(evidence[i])) {
            return i;
        }
    }
    return std::nullopt;
}

// The worker that says so lives, and so it is not explained by its own end.
bool RendezvousCore::is_live_break(const Evidence& evidence) const {
    const auto* broken = evidence.as<Evidence::LinkBroken>();
    return broken != nullptr && places_.is(broken->said_by, Place::working) &&
           nodes_.at(broken->said_by).report.state == NodeState::running;
}

// Mostly one of the two workers is dead, and its node says so, or is lost itself.
Instant RendezvousCore::link_deadline() const {
    if ((phase_ != Phase::training && phase_ != Phase::changing) ||
        std::none_of(round_.evidence.begin(), round_.evidence.end(),
                     [&](const Evidence& entry) { return is_live_break(entry); })) {
        return Instant::max();
    }
    Instant until = after(*round_.link_broke_at(), policy_.regroup_call);
    // A node under suspicion is about to be lost, which explains it, or to speak.
    for (const auto& [id, assignment] : round_.members) {
        if (detector_.suspects(id)) {
            until = std::max(until, detector_.lost_at(id));
        }
    }
    return until;
}

void RendezvousCore::begin_ending(Instant now) {
    const std::optional<std::size_t> by = decisive_evidence(now);
    Instant sign = now;
    if (by) {
        const Evidence& evidence = round_.evidence[*by];
        const bool of_link = evidence.as<Evidence::LinkBroken>() != nullptr ||
                             evidence.as<Evidence::RoundAbandoned>() != nullptr;
        sign = of_link ? round_.link_broke_at().value_or(evidence.at) : evidence.at;
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
    round_.told_at = round_.told_at.value_or(now);
    round_.ended_at = now;
    round_.inquiry.reset();
    phase_ = Phase::ending;
    overdue_at_ = std::min(overdue_at_, after(after(now, policy_.shutdown_timeout), kStopMargin));
    concern_members();
}

// ---- Changing.

bool RendezvousCore::may_grow() const {
    // A round in which somebody has finished is about to end: it is not worth a restart.
    return phase_ == Phase::training && round_.members.size() < policy_.nodes_max &&
           places_.count(Place::ready) > 0 && round_.finished == 0;
}

Instant RendezvousCore::grow_at() const {
    // A round that has yet to train has no step boundary so far.
    if (!may_grow() || (round_.is_elastic() && ledger_.awaits_training())) {
        return Instant::max();
    }
    const Instant at = after(round_.began, policy_.grow_after);
    const Instant cold = prestarts_.last_cold();
    // An elastic round trains while the newcomers' workers start.
    return round_.is_elastic() && cold != Instant::min() ? std::max(at, after(cold, kPrestartLimit))
                                                         : at;
}

// A node may leave while its round trains, if the nodes that stay are enough, and one of them has
// committed a step in this very round. If they are too few, or the rendezvous goes with the node,
// all leave.
std::optional<Change> RendezvousCore::wanted_departures() const {
    // Of new processes it is not known yet whether they are elastic; in the rounds before, some
    // were.
    const bool will_commit = round_.is_elastic() || round_.announces_training;
    if (places_.not_staying().empty() || (will_commit && !round_.has_committed)) {
        return std::nullopt;
    }
    Change change;
    const Node* first = nullptr;
    const Node* host = nullptr;
    for (const NodeId& id : places_.not_staying()) {
        const Node& node = nodes_.at(id);
        if (node.wish && node.place == Place::working) {
            change.leavers.insert(id);
            first = first == nullptr ? &node : first;
        }
        host = node.wish && node.offer.hosts_rendezvous ? &node : host;
    }
    const bool all_leave_with_host = host != nullptr && round_.is_elastic();
    if (first == nullptr && !all_leave_with_host) {
        return std::nullopt;
    }
    const Node& node = all_leave_with_host ? *host : *first;
    Cause::Leaving leaving{node.offer.name, *node.wish};
    const std::size_t stay = places_.staying();
    change.kind = Change::Kind::leave;
    if (round_.is_elastic() && (all_leave_with_host || stay < policy_.nodes_min)) {
        using Why = Cause::JobDrain::Why;
        const Why why = all_leave_with_host ? Why::rendezvous_goes
                        : stay == 0         ? Why::nobody_stays
                                            : Why::too_few_stay;
        change.kind = Change::Kind::job_drain;
        change.author = node.offer.name;
        change.leavers.clear();
        change.cause = Cause::JobDrain{std::move(leaving), why, stay, policy_.nodes_min};
        return change;
    }
    const bool somebody_has_state =
        !round_.is_elastic() || places_.staying(Place::working) > 0 || policy_.nodes_max == 1;
    if (!somebody_has_state) {
        // First a node that waits is let in, and has a step committed.
        if (places_.count(Place::ready) == 0 && !failures_.any_to_release()) {
            return std::nullopt;
        }
        change.kind = Change::Kind::regroup;
        change.leavers.clear();
        leaving.hands_over = true;
    }
    change.cause = std::move(leaving);
    return change;
}

bool RendezvousCore::must_change(Instant clock) const {
    return clock >= grow_at() || wanted_departures().has_value();
}

void RendezvousCore::begin_change(Instant now) {
    if (std::optional<Change> departures = wanted_departures()) {
        round_.change = std::move(departures);
        if (round_.change->kind == Change::Kind::regroup && places_.count(Place::ready) == 0) {
            release_quarantined(now);
        }
    } else {
        const std::set<NodeId>& ready = places_.in(Place::ready);
        Cause::Joined joined{ready.size(), {}};
        for (auto id = ready.begin(); id != ready.end() && joined.names.size() < kNamesInCause;
             ++id) {
            joined.names.push_back(name_of(*id));
        }
        round_.change.emplace();
        round_.change->cause = std::move(joined);
    }
    if (!round_.is_elastic()) {
        begin_ending(now);
        return;
    }
    round_.change->deadline = after(now, policy_.prepare_timeout);
    round_.told_at = now;
    phase_ = Phase::changing;
    begin_planned_incident(now);
    concern_members();
}

// The way to this round ends with its first step, which may lie ahead of the boundary.
void RendezvousCore::begin_planned_incident(Instant now) {
    if (phase_ == Phase::changing && !ledger_.awaits_training()) {
        ledger_.begin(round_.id, true, now, now);
    }
}

// More nodes want to leave at the boundary to which all are on their way.
bool RendezvousCore::must_change_more(Instant /*clock*/) const {
    const Change& change = *round_.change;
    if (change.boundary != Change::Boundary::ahead || change.kind == Change::Kind::job_drain) {
        return false;
    }
    const std::optional<Change> wanted = wanted_departures();
    return wanted && (wanted->kind > change.kind || wanted->leavers.size() > change.leavers.size());
}

void RendezvousCore::change_more(Instant /*now*/) {
    Change wanted = *wanted_departures();
    wanted.deadline = round_.change->deadline;
    round_.change = std::move(wanted);
    concern_members();
}

bool RendezvousCore::is_at_boundary(Instant clock) const {
    return is_out(clock);
}

void RendezvousCore::end_at_boundary(Instant now) {
    if (ledger_.awaits_training()) {
        ledger_.begin(round_.id, true, now, now);  // The word of its first step was lost.
    }
    if (round_.change->kind == Change::Kind::job_drain) {
        close_drained(now);
        return;
    }
    round_.judgement.cause = round_.change->cause;
    ledger_.stopped(now, round_.judgement.cause);
    begin_forming(now);
}

bool RendezvousCore::lost_with_daemon(Instant /*clock*/) const {
    return round_.change && round_.change->kind == Change::Kind::job_drain &&
           round_.change->lost_with_daemon;
}

// ---- Ending.

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
    round_.judgement = judge(round_.evidence, *round_.end);
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

void RendezvousCore::begin_forming(Instant now) {
    phase_ = Phase::forming;
    last_call_until_ = Instant::min();  // Nodes of the last round go on at once.
    overdue_at_ = Instant::max();
    round_.inquiry.reset();
    round_.trains_since.reset();
    place_all(now);
    for (const NodeId& id : places_.in(Place::leaving)) {
        concern(id);
    }
    if (round_.judgement.failure && !round_.has_lost_nodes()) {
        give_up_at_ = first_gives_up_at();
    }
}

void RendezvousCore::close(Instant now, Verdict verdict) {
    tell_recovered(ledger_.close(now, verdict.outcome == Outcome::succeeded));
    phase_ = Phase::closed;
    verdict.restarts = budget_.restarts();
    verdict.goodput = ledger_.goodput();
    verdict.goodput.lasted = first_began_ ? now - *first_began_ : Duration::zero();
    verdict_ = std::move(verdict);
    round_.members.clear();
    round_.inquiry.reset();
    round_.trains_since.reset();
    for (auto& [id, node] : nodes_) {
        place(now, id, node);
        concern(id);
    }
}

}  // namespace regroup::rendezvous
