// SPDX-License-Identifier: Apache-2.0
#include "agent/agent_core.h"

#include <algorithm>
#include <csignal>
#include <utility>

namespace regroup::agent {

using rendezvous::NodeState;

namespace {

// SIGKILL is repeated this often, and given up after the limit (a process stuck in the kernel).
constexpr Duration kForceInterval = std::chrono::seconds(1);
constexpr Duration kResistLimit = std::chrono::seconds(10);
// Within this of the first request, another is taken for its echo.
constexpr Duration kEchoLimit = std::chrono::seconds(1);
constexpr Duration kEchoLimitOfKeyboard = std::chrono::milliseconds(200);

}  // namespace

AgentCore::AgentCore(AgentConfig config, Instant now)
    : config_(std::move(config)),
      heartbeat_interval_(config_.policy.heartbeat_timeout / 3),
      give_up_at_(after(now, config_.join_timeout)) {}

AgentEffects AgentCore::step(Instant now, const AgentEvent& event) {
    if (!quit_sent_) {
        std::visit([&](const auto& e) { on(now, e); }, event);
        update_patience(now);
    }
    return std::exchange(effects_, {});
}

// ---- The link.

void AgentCore::on(Instant now, const LinkUp& /*event*/) {
    if (quit_) {
        return;  // A join would make the daemon count on a node that is going away.
    }
    link_up_ = true;
    heard_at_ = now;
    heartbeat_at_ = after(now, heartbeat_interval_);
    rejoin_ = false;
    spare_ = false;
    // An older connection's promise: the answer to this join is the truth.
    next_assignment_.reset();
    send_join();
}

void AgentCore::on(Instant /*now*/, const LinkDown& /*event*/) {
    link_up_ = false;
    heartbeat_at_ = Instant::max();
}

void AgentCore::on(Instant now, const Received& event) {
    heard_at_ = now;
    std::visit([&](const auto& message) { handle(now, message); }, event.message);
}

void AgentCore::send_join() {
    effects_.push_back(SendToDaemon{
        rendezvous::Join{config_.job, config_.node, config_.policy, config_.offer, report_}});
}

void AgentCore::tell(Instant now) {
    if (!link_up_) {
        return;
    }
    if (quit_) {
        effects_.push_back(SendToDaemon{rendezvous::Leave{quit_->reason}});
    } else {
        effects_.push_back(SendToDaemon{rendezvous::Report{report_}});
    }
    heartbeat_at_ = after(now, heartbeat_interval_);
}

// Content is who has a round, or a place in the queue for one, and a daemon.
void AgentCore::update_patience(Instant now) {
    const bool content = quit_ || (link_up_ && (spare_ || report_.state != NodeState::stopped));
    if (content) {
        give_up_at_ = Instant::max();
    } else if (give_up_at_ == Instant::max()) {
        give_up_at_ = after(now, config_.join_timeout);
    }
}

// ---- What the daemon says.

void AgentCore::handle(Instant now, const rendezvous::Assign& message) {
    const Assignment& assignment = message.assignment;
    if (assignment.round <= report_.round || quit_) {
        return;
    }
    if (assignment.group_rank == 0 && assignment.master_port != report_.store_port) {
        // Everyone was told of a store that has served an earlier round and is closed: an old
        // message from here had overtaken a newer one.
        abandon(assignment.round);
        tell(now);
        return;
    }
    if (alive_.empty()) {
        launch(assignment);
    } else if (!next_assignment_ || next_assignment_->round < assignment.round) {
        next_assignment_ = assignment;
        begin_stopping(now);
    }
}

void AgentCore::handle(Instant now, const rendezvous::Stop& message) {
    abandon(message.round);
    if (message.round == report_.round && report_.state == NodeState::running) {
        begin_stopping(now);
    } else {
        tell(now);
    }
}

void AgentCore::handle(Instant now, const rendezvous::Fenced& /*message*/) {
    if (next_assignment_) {
        abandon(next_assignment_->round);
    }
    if (quit_) {
        return;
    }
    if (alive_.empty()) {
        report_.state = NodeState::stopped;
        send_join();
    } else {
        rejoin_ = true;
        begin_stopping(now);
    }
}

void AgentCore::abandon(RoundId round) {
    if (next_assignment_ && next_assignment_->round <= round) {
        next_assignment_.reset();
    }
    if (round > report_.round) {
        // This node never ran it; naming it in the report confirms that it never will.
        report_.round = round;
        report_.failure.reset();
        if (alive_.empty()) {
            report_.state = NodeState::stopped;
        }
    }
}

void AgentCore::handle(Instant now, const rendezvous::Dismissed& message) {
    if (message.round == report_.round && report_.state == NodeState::finished &&
        !config_.stays_until_closed) {
        quit(now, Quit{0, 0, "all workers of this node have finished", std::nullopt});
    }
}

void AgentCore::handle(Instant /*now*/, const rendezvous::Alive& /*message*/) {}

void AgentCore::handle(Instant /*now*/, const rendezvous::Waiting& message) {
    spare_ = message.spare;
}

void AgentCore::handle(Instant now, const rendezvous::Refused& message) {
    const int code = message.code == Errc::invalid_argument ? kExitUsage : kExitNoRendezvous;
    quit(now, Quit{code, 0, "refused by the rendezvous: " + message.reason, std::nullopt});
}

void AgentCore::handle(Instant now, const rendezvous::Closed& message) {
    quit(now, Quit{message.verdict.exit_code, 0, "", message.verdict});
}

// ---- The workers.

void AgentCore::launch(const Assignment& assignment) {
    ENSURE(alive_.empty());
    workers_round_ = assignment.round;
    report_.round = assignment.round;
    report_.state = NodeState::running;
    report_.failure.reset();
    for (std::uint32_t local_rank = 0; local_rank < config_.offer.workers; ++local_rank) {
        alive_.insert(local_rank);
    }
    spare_ = false;
    effects_.push_back(LaunchWorkers{assignment});
}

void AgentCore::on(Instant now, const WorkerExited& event) {
    if (event.round != workers_round_ || alive_.erase(event.local_rank) == 0) {
        return;
    }
    if (event.failure && report_.state == NodeState::running) {
        report_.failure = event.failure;
        begin_stopping(now);
        if (!alive_.empty()) {
            tell(now);  // A failure is news; else the daemon hears when the last one is gone.
        }
    } else if (event.failure && event.round == report_.round &&
               !was_stopped_by_us(*event.failure) &&
               (!report_.failure || outranks(*event.failure, *report_.failure))) {
        // It ended by itself while we were stopping it; perhaps that is why we were told to.
        report_.failure = event.failure;
    }
    if (alive_.empty()) {
        all_gone(now);
    }
}

bool AgentCore::was_stopped_by_us(const WorkerFailure& failure) const {
    const bool forced = resist_at_ != Instant::max();
    return failure.signal == 0 || failure.signal == stop_signal_ ||
           (failure.signal == SIGKILL && forced);
}

void AgentCore::begin_stopping(Instant now, int signal) {
    if (report_.state != NodeState::running) {
        return;
    }
    report_.state = NodeState::stopping;
    stop_signal_ = signal;
    if (!alive_.empty()) {
        force_at_ = after(now, config_.policy.shutdown_timeout);
        effects_.push_back(SignalWorkers{workers_round_, signal, false});
    }
}

void AgentCore::all_gone(Instant now) {
    force_at_ = Instant::max();
    resist_at_ = Instant::max();
    report_.state = report_.state == NodeState::running ? NodeState::finished : NodeState::stopped;
    if (quit_) {
        quit_sent_ = true;
        effects_.push_back(*quit_);
        return;
    }
    if (std::exchange(rejoin_, false) && link_up_) {
        send_join();
        return;
    }
    if (next_assignment_) {
        launch(*std::exchange(next_assignment_, std::nullopt));
        return;
    }
    tell(now);
}

void AgentCore::on(Instant now, const StoreOffered& event) {
    const bool changed = std::exchange(report_.store_port, event.port) != event.port;
    // While workers run, the next report is early enough; a waiting node may be assigned a round
    // at any moment, and the port with it.
    if (changed && alive_.empty() && !quit_) {
        tell(now);
    }
}

// ---- The end.

void AgentCore::on(Instant now, const QuitRequested& event) {
    if (quit_) {
        const Duration echo_limit = event.signal == SIGINT ? kEchoLimitOfKeyboard : kEchoLimit;
        const bool is_echo =
            quit_requested_at_ != Instant::min() && now < after(quit_requested_at_, echo_limit);
        if (!alive_.empty() && resist_at_ == Instant::max() && !is_echo) {
            hurried_ = true;
            force_at_ = now;  // advance() does the rest.
        }
        return;
    }
    quit_requested_at_ = now;
    quit(now, Quit{128 + event.signal, event.signal,
                   "stopped by " + rendezvous::signal_name(event.signal), std::nullopt});
}

void AgentCore::quit(Instant now, Quit how) {
    if (quit_) {
        return;
    }
    quit_ = std::move(how);
    next_assignment_.reset();
    tell(now);
    if (alive_.empty()) {
        quit_sent_ = true;
        effects_.push_back(*quit_);
    } else {
        begin_stopping(now, quit_->signal != 0 ? quit_->signal : SIGTERM);
    }
}

// ---- The passing of time.

AgentEffects AgentCore::advance(Instant now) {
    if (quit_sent_) {
        return {};
    }
    if (now >= heartbeat_at_) {
        tell(now);
    }
    if (link_up_ && !quit_ && now >= after(heard_at_, config_.policy.heartbeat_timeout)) {
        effects_.push_back(DropLink{});
        on(now, LinkDown{});
    }
    if (now >= force_at_ && !alive_.empty()) {
        if (resist_at_ == Instant::max()) {
            resist_at_ = after(now, kResistLimit);
        }
        force_at_ = after(now, kForceInterval);
        effects_.push_back(SignalWorkers{workers_round_, SIGKILL, hurried_});
    }
    if (now >= resist_at_) {
        const std::string reason = std::to_string(alive_.size()) +
                                   " worker(s) did not end even after SIGKILL; they are probably "
                                   "stuck in the kernel";
        quit(now, Quit{kExitJobFailed, 0, reason, std::nullopt});
        quit_->reason = reason;
        quit_sent_ = true;
        effects_.push_back(*quit_);
    } else if (now >= give_up_at_) {
        quit(now, Quit{kExitNoRendezvous, 0,
                       std::string(link_up_ ? "no round was formed" : "no rendezvous was reached") +
                           " within " + format_duration(config_.join_timeout) + " (--join-timeout)",
                       std::nullopt});
    }
    update_patience(now);
    return std::exchange(effects_, {});
}

Instant AgentCore::next_deadline() const {
    if (quit_sent_) {
        return Instant::max();
    }
    const Instant silence =
        link_up_ && !quit_ ? after(heard_at_, config_.policy.heartbeat_timeout) : Instant::max();
    return std::min({heartbeat_at_, silence, force_at_, resist_at_, give_up_at_});
}

}  // namespace regroup::agent
