// SPDX-License-Identifier: Apache-2.0
//
// A RendezvousCore's job as a value, for `status`.
#include <algorithm>
#include <limits>
#include <tuple>

#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

std::string_view to_string(JobStatus::Place place) noexcept {
    switch (place) {
        case JobStatus::Place::member:
            return "member";
        case JobStatus::Place::waiting:
            return "waiting";
        case JobStatus::Place::spare:
            return "spare";
        case JobStatus::Place::set_aside:
            return "set aside";
        case JobStatus::Place::leaving:
            return "leaving";
        case JobStatus::Place::away:
            return "away";
    }
    return "unknown";
}

JobStatus::Node RendezvousCore::status_of(Instant now, const NodeId& id, const Node& node) const {
    JobStatus::Node row;
    row.id = id;
    row.name = node.offer.name;
    row.address = node.offer.address;
    row.state = node.report.state;
    row.workers = node.offer.workers;
    row.resident = node.report.resident;
    // Of workers that keep their state: where they are, not how far they once were.
    row.step = node.report.resident ? node.report.held_step : node.report.step;
    row.held_step = node.report.held_step;
    row.silent = std::max(Duration::zero(), now - detector_.heard_at(id));
    const auto aside = strikes_.aside().find(node.offer.name);
    if (const auto member = members_.find(id); member != members_.end()) {
        row.place = JobStatus::Place::member;
        row.group_rank = member->second.group_rank;
        row.first_rank = member->second.first_rank;
    } else if (aside != strikes_.aside().end()) {
        row.place = JobStatus::Place::set_aside;
    } else if (phase_ == Phase::running && members_.size() >= policy_.nodes_max) {
        row.place = JobStatus::Place::spare;
    }
    if (is_leaving(node)) {
        row.place = JobStatus::Place::leaving;
        row.detail = why_leaving(node);
    } else if (detector_.suspects(id)) {
        row.place = JobStatus::Place::away;
        row.detail = "its connection is broken";
    } else if (node.report.hang && node.report.round == round_) {
        row.detail = node.report.hang->text;
    } else if (row.place == JobStatus::Place::set_aside) {
        row.detail = aside->second.reason;
    } else if (row.place == JobStatus::Place::spare && prestarted_.contains(id)) {
        row.detail = row.resident ? "its workers are started" : "its workers are being started";
    } else if (row.place == JobStatus::Place::member && node.report.round < round_) {
        row.detail = "has yet to speak of round " + std::to_string(number(round_));
    }
    if (row.place != JobStatus::Place::member && row.held_step > 0) {
        row.detail += (row.detail.empty() ? "" : "; ") + std::string("its workers have step ") +
                      std::to_string(row.held_step);
    }
    return row;
}

bool RendezvousCore::is_set_aside(const NodeId& node) const {
    const auto found = nodes_.find(node);
    return found != nodes_.end() && strikes_.is_aside(found->second.offer.name);
}

JobStatus RendezvousCore::status(Instant now) const {
    JobStatus status;
    status.phase = to_string(phase_);
    status.text = explain(now);
    status.round = round_;
    status.world_size = members_.empty() ? 0 : members_.begin()->second.world_size;
    status.resident = is_resident();
    status.step = reached_.now();
    status.goodput = verdict_ ? verdict_->goodput : ledger_.goodput();
    if (!verdict_) {
        status.goodput.lasted = now - first_began_.value_or(now);
    }
    status.restarts = budget_.restarts();
    for (const auto& [id, node] : nodes_) {
        status.nodes.push_back(status_of(now, id, node));
    }
    const auto order = [&](const JobStatus::Node& row) {
        const auto member = members_.find(row.id);
        return member == members_.end() ? std::numeric_limits<std::uint32_t>::max()
                                        : member->second.group_rank;
    };
    std::sort(status.nodes.begin(), status.nodes.end(),
              [&](const JobStatus::Node& a, const JobStatus::Node& b) {
                  const std::uint32_t rank_a = order(a);
                  const std::uint32_t rank_b = order(b);
                  if (rank_a != rank_b) {
                      return rank_a < rank_b;
                  }
                  return a.name != b.name ? natural_less(a.name, b.name) : a.id < b.id;
              });
    for (const auto& [name, aside] : strikes_.aside()) {
        status.set_aside.push_back(
            {name, aside.reason, std::max(Duration::zero(), aside.until - now)});
    }
    status.budgets = {
        {"failures", budget_.used(Charge::failure), budget_.allowed(Charge::failure)},
        {"node losses", budget_.used(Charge::loss), budget_.allowed(Charge::loss)},
    };
    if (policy_.budgets.hangs) {
        status.budgets.push_back({"hangs", budget_.used(Charge::hang), policy_.budgets.hangs});
    }
    if (policy_.budgets.no_progress_max > 0) {
        status.budgets.push_back(
            {"rounds without progress", budget_.barren_rounds(), policy_.budgets.no_progress_max});
    }
    status.incidents.assign(ledger_.recent().begin(), ledger_.recent().end());
    status.verdict = verdict_;
    return status;
}

}  // namespace regroup::rendezvous
