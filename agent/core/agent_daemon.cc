// SPDX-License-Identifier: Apache-2.0
//
// The connection to the daemon, and its messages.
#include <algorithm>
#include <utility>

#include "agent/core/agent_state.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/core/node_state.h"

namespace regroup::agent::core {

using rendezvous::NodeState;
using Part = AgentCore::Part;

namespace {

// The daemon knows how long this node waits after a round. It closes the job, with a reason, before
// the node gives up.
constexpr Duration kVerdictMargin = std::chrono::seconds(1);
constexpr std::size_t kToldLimit = 32;

Instant next_heartbeat(const AgentState& node, Instant now) {
    return after(now, node.config.policy.heartbeat_timeout / 3);
}

}  // namespace

// ---- The link.

void handle(AgentState& node, Instant now, const LinkUp& /*event*/) {
    if (is_quitting(node)) {
        return;  // A join would make the daemon count on a node that is going away.
    }
    node.link.up = true;
    node.link.queued = false;
    node.link.heard_at = now;
    node.link.heartbeat_at = next_heartbeat(node, now);
    // An assignment over an older connection no longer counts; the answer to this join does.
    node.next = std::monostate{};
    send_join(node, now);
    if (!node.fault.empty()) {
        quit_unhealthy(node, now);
        return;
    }
    if (node.round.resumed) {
        node.round.resumed->ago = now - node.round.resumed_at;
        node.effects.push_back(SendToDaemon{*node.round.resumed});
    }
}

void handle(AgentState& node, Instant /*now*/, const LinkDown& /*event*/) {
    node.link.up = false;
    node.link.heartbeat_at = Instant::max();
}

void send_join(AgentState& node, Instant now) {
    update_at_work(node, now);
    rendezvous::Join join{node.config.job,   node.config.node, node.config.policy,
                          node.config.offer, node.report,      now - node.began};
    if (node.round.ended_at != Instant::max()) {
        join.report.ended_ago = now - node.round.ended_at;
    }
    node.effects.push_back(SendToDaemon{std::move(join)});
}

void tell(AgentState& node, Instant now) {
    update_at_work(node, now);
    if (!node.link.up) {
        return;
    }
    if (node.leave.quit) {
        node.effects.push_back(SendLeave{node.leave.quit->reason});
    } else {
        node.effects.push_back(SendToDaemon{rendezvous::Report{node.report}});
    }
    node.link.heartbeat_at = next_heartbeat(node, now);
}

void update_waits(AgentState& node, Instant now) {
    // The join timeout does not run while the node is connected and is a member or queued. A daemon
    // that has refused the node counts only once it has answered something else.
    const bool connected = node.link.up && !node.link.refusal;
    if (is_quitting(node) ||
        (connected && (node.link.queued || node.report.state != NodeState::stopped))) {
        node.link.give_up_at = Instant::max();
    } else if (node.link.give_up_at == Instant::max()) {
        const bool after_round = node.link.up && has_run(node);
        node.link.give_up_at = after(after(now, node.config.join_timeout),
                                     after_round ? kVerdictMargin : Duration::zero());
    }
    // A node may wait for days, and its GPUs may break meanwhile.
    if (node.config.recheck_interval == Duration::zero() || part(node) != Part::standby) {
        node.recheck_at = Instant::max();
    } else if (node.recheck_at == Instant::max()) {
        node.recheck_at = after(now, node.config.recheck_interval);
    }
}

void give_up(AgentState& node, Instant now) {
    if (!node.fault.empty()) {
        quit_unhealthy(node, now);
        return;
    }
    Quit how{kExitNoRendezvous, 0, {}};
    how.reason.cause = node.link.up ? QuitCause::no_round : QuitCause::no_rendezvous;
    how.reason.limit = node.config.join_timeout;
    if (!node.link.up && node.report.state == NodeState::finished) {
        how.reason.succeeded = true;
        how.reason.alone = node.round.assignment.group_world_size == 1;
        how.exit_code = how.reason.alone ? 0 : kExitNoRendezvous;
    } else if (!node.link.up && node.link.refusal) {
        how.reason.cause = QuitCause::refused;
        how.reason.why = ToldByDaemon{*node.link.refusal};
    }
    quit(node, now, std::move(how));
}

void handle(AgentState& node, Instant now, const StoreOffered& event) {
    const bool changed = std::exchange(node.report.store_port, event.port) != event.port;
    // While workers run, the next report is early enough. A waiting node can be assigned a round,
    // with its port, at any moment.
    if (changed && node.workers.all_out() && !is_quitting(node)) {
        tell(node, now);
    }
}

void handle(AgentState& node, Instant now, const RendezvousServed& event) {
    node.config.stays_until_closed = true;
    node.config.offer.hosts_rendezvous = true;
    node.config.offer.ends_with_daemon = event.ends_with_daemon;
    node.link.give_up_at = after(now, node.config.join_timeout);
}

Part part(const AgentState& node) {
    if (is_quitting(node)) {
        return Part::leaving;
    }
    const bool has_place = node.link.up && has_run(node) && !node.link.queued;
    if (node.report.state != NodeState::stopped || has_place) {
        return Part::member;
    }
    return node.link.up && node.link.queued ? Part::standby : Part::none;
}

bool waits_out(const AgentState& node, const rendezvous::Refused& refused) {
    const bool has_room_later = refused.code == Errc::overloaded;
    // A daemon that came in place of another one may refuse what that one accepted, such as the
    // version or the token. The workers do not need it, and the next one may accept the node again.
    const bool was_accepted =
        node.report.state != NodeState::stopped || node.workers.any_holds_state();
    return !is_quitting(node) && (has_room_later || was_accepted);
}

// ---- Messages of the daemon.

namespace {

void handle(AgentState& node, Instant now, const rendezvous::Assign& message) {
    const Assignment& assignment = message.assignment;
    if (assignment.round <= node.report.round || node.leave.stage >= LeaveStage::saving) {
        return;
    }
    if (names_spent_store(node, assignment)) {
        refuse(node, assignment.round);
        begin_stopping(node, now, ToldByDaemon{assignment.reason});
        tell(node, now);
        return;
    }
    if (is_ready(node)) {
        begin_round(node, now, assignment);
        return;
    }
    const auto* const next = std::get_if<Assignment>(&node.next);
    if (std::holds_alternative<std::monostate>(node.next) ||
        (next != nullptr && next->round < assignment.round)) {
        node.next = assignment;
        begin_stopping(node, now, ToldByDaemon{assignment.reason});
    }
}

void handle(AgentState& node, Instant now, const rendezvous::Stop& message) {
    abandon(node, message.round);
    if (runs(node, message.round) && message.planned) {
        begin_planned_stop(node, now, ToldByDaemon{message.reason});
    } else if (runs(node, message.round)) {
        begin_stopping(node, now, ToldByDaemon{message.reason});
    } else {
        tell(node, now);
    }
}

void handle(AgentState& node, Instant now, const rendezvous::Prepare& message) {
    if (node.leave.stage >= LeaveStage::saving) {
        return;
    }
    const bool trains = runs(node, message.round);
    const ToldByDaemon why{message.reason};
    if (message.leave && node.report.state == NodeState::finished) {
        quit(node, now, Quit{0, 0, {QuitCause::finished, why}});
    } else if (trains && message.leave && node.leave.stage < LeaveStage::at_boundary) {
        begin_leaving(node, now, LeaveStage::at_boundary, why);
    } else if (trains && !message.leave && !std::exchange(node.round.pausing, true)) {
        node.effects.push_back(
            PauseWorkers{message.round, false, node.config.policy.prepare_timeout, why});
    } else if (!trains && message.leave && node.report.state == NodeState::stopped &&
               !message.if_running) {
        if (message.stale || !node.workers.any_holds_state()) {
            node.leave.why = why;
            quit_drained(node, now);
        } else {
            begin_leaving(node, now, LeaveStage::saving, why);
        }
    } else if (!trains) {
        tell(node, now);
    }
}

void handle(AgentState& node, Instant now, const rendezvous::SaveStacks& message) {
    if (message.round != node.report.round || !node.workers.any_alive() ||
        message.alarm == node.report.alarm) {
        tell(node, now);  // The daemon may not have received the answer.
        return;
    }
    node.round.stacks_wanted = message;
    if (node.round.stacks_being_saved == 0) {
        save_stacks(node);
    }
}

void handle(AgentState& node, Instant now, const rendezvous::EndWorker& message) {
    const std::uint32_t local_rank = message.rank - node.round.assignment.first_rank;
    if (message.round != node.report.round || message.rank < node.round.assignment.first_rank ||
        local_rank >= node.workers.size() || !node.workers[local_rank].in_round() ||
        node.workers[local_rank].round != message.round) {
        tell(node, now);
        return;
    }
    Worker& worker = node.workers[local_rank];
    if (!worker.hang) {  // The daemon repeats it until it hears of the end.
        worker.hang = message;
        worker.state = WorkerState::ending;
        node.effects.push_back(KillWorker{local_rank, message.reason, message.by_silence});
    }
}

void handle(AgentState& node, Instant now, const rendezvous::Fenced& message) {
    if (const auto* const next = std::get_if<Assignment>(&node.next)) {
        abandon(node, next->round);
    }
    if (is_quitting(node)) {
        return;
    }
    if (is_ready(node)) {
        node.report.state = NodeState::stopped;
        send_join(node, now);
    } else {
        node.next = AgentState::Rejoin{};
        begin_stopping(node, now, ToldByDaemon{message.reason});
    }
}

void handle(AgentState& node, Instant now, const rendezvous::Dismissed& message) {
    if (message.round == node.report.round && node.report.state == NodeState::finished &&
        !node.config.stays_until_closed) {
        quit(node, now, Quit{0, 0, {QuitCause::finished}});
    }
}

void handle(AgentState& node, Instant now, const rendezvous::Waiting& message) {
    node.link.queued = message.standby;
    node.ahead.wanted = message.prestart;
    // A finished node whose round the others must repeat can be a standby.
    if (keeps_ahead(node) && node.ahead.again_at == Instant::max()) {
        prestart(node, now);
    }
}

void handle(AgentState& node, Instant now, const rendezvous::Refused& message) {
    if (waits_out(node, message)) {
        // Its end of the connection is the same as a broken one.
        node.link.refusal = message.reason;
        handle(node, now, LinkDown{});
        return;
    }
    const int code = message.code == Errc::invalid_argument ? kExitUsage : kExitNoRendezvous;
    quit(node, now, Quit{code, 0, {QuitCause::refused, ToldByDaemon{message.reason}}});
}

void handle(AgentState& node, Instant /*now*/, const rendezvous::Recovered& message) {
    // The recovery of an older round comes with that of its successor.
    const bool keep = message.incident.next_round <= node.report.round &&
                      node.round.assignment.round == node.report.round &&
                      node.round.assignment.group_rank == 0;
    // The daemon repeats a recovery that was not acknowledged in time.
    if (std::find(node.told.begin(), node.told.end(), message.incident) == node.told.end()) {
        node.effects.push_back(TellRecovery{message.incident, keep});
        node.told.push_back(message.incident);
        if (node.told.size() > kToldLimit) {
            node.told.pop_front();
        }
    }
    if (node.round.resumed && message.incident.next_round == node.round.resumed->round) {
        node.round.resumed.reset();
    }
}

void handle(AgentState& node, Instant now, const rendezvous::Closed& message) {
    const rendezvous::Verdict& verdict = message.verdict;
    Quit how{verdict.exit_code, 0, {}, verdict};
    if (verdict.outcome != rendezvous::Outcome::succeeded && how.exit_code == 0) {
        how.exit_code = kExitJobFailed;  // Code 0 says that the job has succeeded.
    }
    if (message.missed && !has_run(node)) {
        how.exit_code = kExitNoRendezvous;  // The end of that job is not the end of this node's.
        how.reason.cause = QuitCause::missed;
    } else if (how.exit_code == 0 && !has_run(node) && node.config.policy.standbys_max == 0) {
        how.exit_code = kExitNoRendezvous;  // Nobody has asked for a node that never runs.
    }
    // The verdict may be the only message about a drain of the whole job. A node that had to leave
    // saves its state however the job ends.
    const bool drained = verdict.exit_code == kExitRequeue;
    const bool saves = (drained || node.leave.stage != LeaveStage::member) &&
                       node.workers.any_holds_state() && node.report.state != NodeState::finished;
    if (is_quitting(node) || !saves) {
        quit(node, now, std::move(how));
        return;
    }
    if (node.leave.stage != LeaveStage::saving) {
        const Cause why = drained ? ToldByDaemon{verdict.reason} : why_leaving(node);
        begin_leaving(node, now, LeaveStage::saving, why);
    }
    node.leave.quit = std::move(how);
    tell(node, now);
}

// The daemon has what it asked for. Positions are long, and would be in each report from now on.
void handle(AgentState& node, Instant /*now*/, const rendezvous::Alive& /*message*/) {
    node.report.positions.clear();
    node.report.alarm = 0;
}

// The others are not for an agent, or ask for nothing.
template <class Message>
void handle(AgentState& /*node*/, Instant /*now*/, const Message& /*message*/) {}

}  // namespace

void handle(AgentState& node, Instant now, const Received& event) {
    node.link.heard_at = now;
    node.link.refusal.reset();
    std::visit([&](const auto& message) { handle(node, now, message); }, event.message);
}

}  // namespace regroup::agent::core
