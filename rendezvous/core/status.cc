// SPDX-License-Identifier: Apache-2.0
//
// The state of a RendezvousCore's job as a value, for `status` and for waiting nodes.
#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include "rendezvous/core/node_state.h"
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

std::string_view to_string(JobStatus::Place place) noexcept {
    switch (place) {
        case JobStatus::Place::member:
            return "member";
        case JobStatus::Place::waiting:
            return "waiting";
        case JobStatus::Place::standby:
            return "standby";
        case JobStatus::Place::quarantined:
            return "quarantined";
        case JobStatus::Place::leaving:
            return "leaving";
        case JobStatus::Place::away:
            return "away";
    }
    return "unknown";
}

std::string_view to_string(JobStatus::Budget::Kind kind) noexcept {
    switch (kind) {
        case JobStatus::Budget::Kind::failures:
            return "failures";
        case JobStatus::Budget::Kind::node_losses:
            return "node losses";
        case JobStatus::Budget::Kind::hangs:
            return "hangs";
        case JobStatus::Budget::Kind::rounds_without_progress:
            return "rounds without progress";
    }
    return "unknown";
}

std::string RendezvousCore::name_of(const NodeId& id) const {
    const auto found = nodes_.find(id);
    // An id is for the node and the daemon only.
    return found == nodes_.end() ? "a lost node" : found->second.offer.name;
}

std::optional<NodeId> RendezvousCore::node_with(std::uint32_t rank) const {
    const auto above = round_.by_rank.upper_bound(rank);
    if (above == round_.by_rank.begin()) {
        return std::nullopt;
    }
    const auto& [first_rank, id] = *std::prev(above);
    const bool has_it =
        round_.members.contains(id) && rank - first_rank < nodes_.at(id).offer.workers;
    return has_it ? std::optional(id) : std::nullopt;
}

std::size_t RendezvousCore::nodes_called(const std::string& name) const {
    return static_cast<std::size_t>(std::count_if(
        nodes_.begin(), nodes_.end(),
        [&](const auto& entry) { return entry.first == name || entry.second.offer.name == name; }));
}

bool RendezvousCore::is_quarantined(const NodeId& node) const {
    const auto found = nodes_.find(node);
    return found != nodes_.end() && failures_.is_quarantined(found->second.offer.name);
}

Situation RendezvousCore::situation(Instant now) const {
    using Kind = Situation::Kind;
    Situation s;
    s.round = round_.id;
    s.nodes_min = policy_.nodes_min;
    s.nodes_max = policy_.nodes_max;
    s.ready = places_.count(Place::ready);
    s.members = round_.members.size();
    const auto until = [&](Instant at) { s.left = std::max(Duration::zero(), at - now); };
    const auto await = [&](Place place) {
        for (const NodeId& id : places_.in(place)) {
            if (s.awaited.size() == Situation::kNamesMax) {
                s.more_awaited = true;
                break;
            }
            if (place != Place::working || !leaves_unawaited(id)) {
                s.awaited.push_back(name_of(id));
            }
        }
    };
    s.partial_finish = partial_finish(now);
    switch (phase_) {
        case Phase::forming:
            if (s.ready < policy_.nodes_min) {
                s.kind = Kind::gathering;
                add_quarantined(now, s);
            } else if (is_backing_off()) {
                s.kind = Kind::backing_off;
                s.cause = round_.judgement.cause;
                until(back_off_until_);
            } else if (places_.count(Place::outstanding) > 0) {
                s.kind = Kind::awaiting;
                Instant last = Instant::min();
                for (const NodeId& id : places_.in(Place::outstanding)) {
                    last = std::max(last, out_by(id, nodes_.at(id)));
                }
                await(Place::outstanding);
                until(last);
            } else {
                s.kind = Kind::last_call;
                until(std::max(last_call_until_, now));
            }
            break;
        case Phase::training:
            s.kind = round_.inquiry ? Kind::hanging : Kind::training;
            if (round_.inquiry) {
                s.hang = round_.inquiry->hang.text;
                s.culprit = round_.inquiry->culprit;
            }
            break;
        case Phase::changing:
            s.kind = Kind::changing;
            s.cause = round_.change->cause;
            await(Place::working);
            until(round_.change->deadline);
            break;
        case Phase::ending: {
            s.kind = Kind::ending;
            s.cause = round_.cause_of_end();
            await(Place::working);
            const Instant usual =
                after(after(*round_.ended_at, policy_.shutdown_timeout), kStopMargin);
            Instant last = usual;
            for (const NodeId& id : places_.in(Place::working)) {
                const Instant out = out_by(id, nodes_.at(id));
                last = out == Instant::max() ? last : std::max(last, out);
            }
            s.in_user_code = last > usual;
            until(last);
            break;
        }
        case Phase::closed:
            s.kind = Kind::closed;
            s.author = verdict_->author;
            s.ending = verdict_->reason;
            break;
    }
    return s;
}

void RendezvousCore::add_quarantined(Instant now, Situation& situation) const {
    for (const NodeId& id : places_.in(Place::quarantined)) {
        if (situation.quarantined.size() == Situation::kQuarantinedMax) {
            situation.more_quarantined =
                places_.count(Place::quarantined) - Situation::kQuarantinedMax;
            break;
        }
        const std::string name = name_of(id);
        const auto& entry = failures_.quarantined().at(name);
        situation.quarantined.push_back(
            {name, entry.why, std::max(Duration::zero(), entry.until - now)});
    }
}

JobStatus::Node RendezvousCore::status_of(Instant now, const NodeId& id, const Node& node) const {
    JobStatus::Node row;
    row.id = id;
    row.name = node.offer.name;
    row.address = node.offer.address;
    row.state = node.report.state;
    row.workers = node.offer.workers;
    row.elastic = node.report.elastic;
    // Elastic workers: the step that they hold now, which may be lower than the highest one.
    row.step = node.report.elastic ? node.report.held_step : node.report.step;
    row.held_step = node.report.held_step;
    row.silent = std::max(Duration::zero(), now - detector_.heard_at(id));
    if (is_member(node)) {
        const Assignment& assignment = round_.members.at(id);
        row.place = JobStatus::Place::member;
        row.group_rank = assignment.group_rank;
        row.first_rank = assignment.first_rank;
        row.finished = node.report.round == round_.id ? node.report.finished : RankSet();
        row.unheard_of = node.report.round < round_.id ? round_.id : RoundId::none;
    } else if (failures_.is_quarantined(node.offer.name)) {
        row.place = JobStatus::Place::quarantined;
        row.quarantine = failures_.quarantined().at(node.offer.name).why;
    } else if (phase_ == Phase::training && round_.members.size() >= policy_.nodes_max) {
        row.place = JobStatus::Place::standby;
        row.prestarted = prestarts_.contains(id);
    }
    if (node.wish || (is_member(node) && phase_ == Phase::changing && leaves_with_change(id))) {
        row.place = JobStatus::Place::leaving;
        row.leaving = why_leaving(node);
    } else if (detector_.suspects(id)) {
        row.place = JobStatus::Place::away;
    }
    return row;
}

JobStatus RendezvousCore::status(Instant now) const {
    JobStatus status;
    status.phase = phase_;
    status.situation = situation(now);
    status.round = round_.id;
    status.world_size =
        in_round() && !round_.members.empty() ? round_.members.begin()->second.world_size : 0;
    status.elastic = in_round() && round_.is_elastic();
    status.step = reached_.now();
    status.goodput = verdict_ ? verdict_->goodput : ledger_.goodput();
    if (!verdict_) {
        status.goodput.lasted = now - first_began_.value_or(now);
    }
    status.restarts = budget_.restarts();
    // A rank is looked up once for each node, and not in each comparison. A row is moved once.
    std::vector<JobStatus::Node> rows;
    std::vector<std::pair<std::uint32_t, std::size_t>> order;
    rows.reserve(nodes_.size());
    order.reserve(nodes_.size());
    for (const auto& [id, node] : nodes_) {
        rows.push_back(status_of(now, id, node));
        order.emplace_back(
            is_member(node) ? rows.back().group_rank : std::numeric_limits<std::uint32_t>::max(),
            rows.size() - 1);
    }
    std::sort(order.begin(), order.end(), [&rows](const auto& a, const auto& b) {
        if (a.first != b.first) {
            return a.first < b.first;
        }
        const JobStatus::Node& one = rows[a.second];
        const JobStatus::Node& other = rows[b.second];
        return one.name != other.name ? natural_less(one.name, other.name) : one.id < other.id;
    });
    status.nodes.reserve(rows.size());
    for (const auto& [rank, row] : order) {
        status.nodes.push_back(std::move(rows[row]));
    }
    for (const auto& [name, entry] : failures_.quarantined()) {
        status.quarantined.push_back(
            {name, entry.why, std::max(Duration::zero(), entry.until - now)});
    }
    using Kind = JobStatus::Budget::Kind;
    status.budgets = {
        {Kind::failures, budget_.used(Charge::failure), budget_.allowed(Charge::failure)},
        {Kind::node_losses, budget_.used(Charge::loss), budget_.allowed(Charge::loss)},
    };
    if (policy_.budgets.hangs) {
        status.budgets.push_back({Kind::hangs, budget_.used(Charge::hang), policy_.budgets.hangs});
    }
    if (policy_.budgets.no_progress_max > 0) {
        status.budgets.push_back({Kind::rounds_without_progress, budget_.rounds_without_progress(),
                                  policy_.budgets.no_progress_max});
    }
    status.incidents.assign(ledger_.recent().begin(), ledger_.recent().end());
    status.verdict = verdict_;
    return status;
}

}  // namespace regroup::rendezvous
