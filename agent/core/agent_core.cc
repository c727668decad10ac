// SPDX-License-Identifier: Apache-2.0
#include "agent/core/agent_core.h"

#include <algorithm>
#include <utility>

#include "agent/core/agent_state.h"

namespace regroup::agent {

using core::AgentState;
using core::LeaveStage;
using rendezvous::NodeState;

AgentState::AgentState(AgentConfig agent_config, Instant now)
    : config(std::move(agent_config)), began(now), workers(config.offer.workers) {
    config.offer.join_timeout = config.join_timeout;
    link.give_up_at = after(after(now, config.first_check_limit), config.join_timeout);
}

AgentCore::AgentCore(AgentConfig config, Instant now)
    : node_(std::make_unique<AgentState>(std::move(config), now)) {}
AgentCore::AgentCore(AgentCore&&) noexcept = default;
AgentCore& AgentCore::operator=(AgentCore&&) noexcept = default;
AgentCore::~AgentCore() = default;

AgentEffects AgentCore::step(Instant now, const AgentEvent& event) {
    if (!done()) {
        std::visit([&](const auto& e) { core::handle(*node_, now, e); }, event);
        core::update_waits(*node_, now);
    }
    return std::exchange(node_->effects, {});
}

// ---- Time.

namespace {

// When a daemon that has said nothing since counts as gone.
Instant silent_at(const AgentState& node) {
    return node.link.up && !core::is_quitting(node)
               ? after(node.link.heard_at, node.config.policy.heartbeat_timeout)
               : Instant::max();
}

}  // namespace

AgentEffects AgentCore::advance(Instant now) {
    AgentState& node = *node_;
    if (done()) {
        return {};
    }
    if (now >= node.link.heartbeat_at) {
        core::tell(node, now);
    }
    if (now >= silent_at(node)) {
        node.effects.push_back(DropLink{});
        core::handle(node, now, LinkDown{});
    }
    if (now >= core::leave_deadline(node)) {
        core::go_on_leaving(node, now);
    }
    if (now >= node.grace.tell_at) {
        node.grace.tell_at = Instant::max();
        node.effects.push_back(
            TellAtWork{node.report.round, std::max(Duration::zero(), node.grace.kill_at - now)});
    }
    if (now >= node.grace.kill_at) {
        core::kill_workers(node, now);
    }
    if (now >= node.ahead.again_at) {
        node.ahead.again_at = Instant::max();
        if (core::keeps_ahead(node)) {
            core::prestart(node, now);
        }
    }
    if (now >= node.grace.resist_at) {
        core::end_for_unkillable(node, now);
    } else if (now >= node.link.give_up_at) {
        core::give_up(node, now);
    }
    if (now >= node.recheck_at) {
        node.recheck_at = Instant::max();
        node.effects.push_back(CheckNode{true});
    }
    core::update_waits(node, now);
    return std::exchange(node.effects, {});
}

Instant AgentCore::next_deadline() const {
    if (done()) {
        return Instant::max();
    }
    const AgentState& node = *node_;
    return std::min({node.link.heartbeat_at, silent_at(node), node.link.give_up_at,
                     core::leave_deadline(node), node.grace.kill_at, node.grace.tell_at,
                     node.grace.resist_at, node.ahead.again_at, node.recheck_at});
}

// ---- Queries.

const rendezvous::NodeReport& AgentCore::report() const noexcept {
    return node_->report;
}
const Assignment& AgentCore::assignment() const noexcept {
    return node_->round.assignment;
}
bool AgentCore::has_workers() const {
    return node_->workers.any_alive();
}
bool AgentCore::holds_state() const {
    return node_->workers.any_holds_state();
}
bool AgentCore::awaits_check() const {
    return node_->workers.all_out() && !core::is_ready(*node_);
}
bool AgentCore::would_drain() const {
    return core::would_drain(*node_);
}
bool AgentCore::draining() const noexcept {
    return core::is_draining(*node_);
}
bool AgentCore::leaving() const noexcept {
    return core::is_quitting(*node_);
}
bool AgentCore::done() const noexcept {
    return node_->leave.stage == LeaveStage::done;
}
Instant AgentCore::give_up_at() const noexcept {
    return node_->link.give_up_at;
}
AgentCore::Part AgentCore::part() const {
    return core::part(*node_);
}

std::optional<WorkerFailure> AgentCore::failure_in(const WorkerExited& exited) const {
    return core::failure_in(*node_, exited);
}

bool AgentCore::waits_out(const rendezvous::Refused& refused) const {
    return core::waits_out(*node_, refused);
}

bool AgentCore::is_suspended(std::uint32_t local_rank) const {
    const Workers& workers = node_->workers;
    return local_rank < workers.size() && workers[local_rank].alive() &&
           workers[local_rank].is_out();
}

AgentCore::Parting AgentCore::parting() const {
    const bool at_boundary = node_->leave.stage == LeaveStage::at_boundary;
    Parting parting;
    for (const Worker& worker : node_->workers) {
        parting.at_boundary += at_boundary && worker.state == WorkerState::training;
        parting.suspending += worker.state == WorkerState::suspending;
        parting.saving += worker.state == WorkerState::saving;
        parting.ending += worker.state == WorkerState::ending;
    }
    const bool saves = parting.at_boundary + parting.saving > 0;
    parting.kill_at = std::min(node_->grace.kill_at, saves ? node_->leave.until : Instant::max());
    return parting;
}

bool AgentCore::may_serve_rendezvous(bool remembers) const {
    const AgentState& node = *node_;
    if (node.link.up || node.leave.stage != LeaveStage::member) {
        return false;
    }
    const bool has_lost_peer =
        !node.report.broken_links.empty() || node.round.assignment.member_serves;
    return remembers || node.report.state == NodeState::stopped ||
           (core::is_in_round(node) && has_lost_peer);
}

}  // namespace regroup::agent
