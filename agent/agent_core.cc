// SPDX-License-Identifier: Apache-2.0
#include "agent/agent_core.h"

#include <algorithm>
#include <utility>

namespace regroup::agent {

using rendezvous::NodeState;

namespace {

// SIGKILL is repeated this often, and given up after the limit (a process stuck in the kernel).
constexpr Duration kForceInterval = std::chrono::seconds(1);
constexpr Duration kResistLimit = std::chrono::seconds(10);

}  // namespace

AgentCore::AgentCore(AgentConfig config, Instant now)
    : config_(std::move(config)),
      heartbeat_interval_(config_.policy.heartbeat_timeout / 3),
      give_up_at_(after(now, config_.join_timeout)) {}

AgentEffects AgentCore::step(Instant now, const AgentEvent& event) {
    if (!quit_sent_) {
        std::visit([&](const auto& e) { on(now, e); }, event);
    }
    return std::exchange(effects_, {});
}

// ---- The link.

void AgentCore::on(Instant now, const LinkUp& /*event*/) {
    link_up_ = true;
    heard_at_ = now;
    heartbeat_at_ = after(now, heartbeat_interval_);
    if (report_.state == NodeState::running || report_.state == NodeState::finished) {
        give_up_at_ = Instant::max();
    }
    send_join();
}

void AgentCore::on(Instant now, const LinkDown& /*event*/) {
    if (link_up_ && give_up_at_ == Instant::max()) {
        give_up_at_ = after(now, config_.join_timeout);
    }
    link_up_ = false;
    heartbeat_at_ = Instant::max();
}

void AgentCore::on(Instant now, const Received& event) {
    heard_at_ = now;
    std::visit([&](const auto& message) { handle(now, message); }, event.message);
}

void AgentCore::send_join() {
    effects_.push_back(SendToDaemon{rendezvous::Join{config_.job, config_.node, config_.policy,
                                                     config_.offer, report_}});
}

void AgentCore::send_report(Instant now) {
    if (link_up_) {
        effects_.push_back(SendToDaemon{rendezvous::Report{report_}});
        heartbeat_at_ = after(now, heartbeat_interval_);
    }
}

// ---- What the daemon says.

void AgentCore::handle(Instant now, const rendezvous::Assign& message) {
    const Assignment& assignment = message.assignment;
    if (assignment.round <= report_.round || quit_) {
        return;
    }
    if (alive_.empty()) {
        launch(now, assignment);
    } else if (!next_assignment_ || next_assignment_->round < assignment.round) {
        next_assignment_ = assignment;
        begin_stopping(now);
    }
}

void AgentCore::handle(Instant now, const rendezvous::Stop& message) {
    if (next_assignment_ && next_assignment_->round <= message.round) {
        next_assignment_.reset();
    }
    if (message.round > report_.round) {
        // A round that this node never ran; naming it in the report confirms that it never will.
        report_.round = message.round;
        report_.failure.reset();
        if (alive_.empty()) {
            report_.state = NodeState::stopped;
        }
    }
    if (message.round == report_.round && report_.state == NodeState::running) {
        begin_stopping(now);
    } else {
        send_report(now);
    }
}

void AgentCore::handle(Instant now, const rendezvous::Fenced& /*message*/) {
    next_assignment_.reset();
    if (alive_.empty()) {
        report_.state = NodeState::stopped;
        send_join();
    } else {
        rejoin_ = true;
        begin_stopping(now);
    }
}

void AgentCore::handle(Instant /*now*/, const rendezvous::Alive& /*message*/) {}

void AgentCore::handle(Instant now, const rendezvous::Waiting& message) {
    if (message.spare) {
        give_up_at_ = Instant::max();
    } else if (report_.state == NodeState::stopped && give_up_at_ == Instant::max()) {
        give_up_at_ = after(now, config_.join_timeout);
    }
}

void AgentCore::handle(Instant now, const rendezvous::Refused& message) {
    const int code = message.code == Errc::invalid_argument ? kExitUsage : kExitNoRendezvous;
    quit(now, Quit{code, 0, "refused by the rendezvous: " + message.reason, std::nullopt});
}

void AgentCore::handle(Instant now, const rendezvous::Closed& message) {
    quit(now, Quit{message.verdict.exit_code, 0, "", message.verdict});
}

// ---- The workers.

void AgentCore::launch(Instant now, const Assignment& assignment) {
    ENSURE(alive_.empty());
    workers_round_ = assignment.round;
    report_.round = assignment.round;
    report_.state = NodeState::running;
    report_.failure.reset();
    for (std::uint32_t local_rank = 0; local_rank < config_.offer.workers; ++local_rank) {
        alive_.insert(local_rank);
    }
    give_up_at_ = link_up_ ? Instant::max() : after(now, config_.join_timeout);
    effects_.push_back(LaunchWorkers{assignment});
}

void AgentCore::on(Instant now, const WorkerExited& event) {
    if (event.round != workers_round_ || alive_.erase(event.local_rank) == 0) {
        return;
    }
    // Whoever ends after the first failure, or after we began to stop, was stopped by us.
    if (event.failure && report_.state == NodeState::running) {
        report_.failure = event.failure;
        begin_stopping(now);
    }
    if (alive_.empty()) {
        all_gone(now);
    }
}

void AgentCore::begin_stopping(Instant now) {
    if (report_.state != NodeState::running) {
        return;
    }
    report_.state = NodeState::stopping;
    if (!alive_.empty()) {
        force_at_ = after(now, config_.policy.shutdown_timeout);
        effects_.push_back(SignalWorkers{workers_round_, false});
    }
    // Only a failure is news to the daemon; otherwise it will hear when they are gone.
    if (report_.failure && !alive_.empty()) {
        send_report(now);
    }
}

void AgentCore::all_gone(Instant now) {
    force_at_ = Instant::max();
    resist_at_ = Instant::max();
    report_.state =
        report_.state == NodeState::running ? NodeState::finished : NodeState::stopped;
    if (quit_) {
        send_report(now);
        quit_sent_ = true;
        effects_.push_back(*quit_);
        return;
    }
    if (std::exchange(rejoin_, false) && link_up_) {
        send_join();
        return;
    }
    if (next_assignment_) {
        launch(now, *std::exchange(next_assignment_, std::nullopt));
        return;
    }
    if (report_.state == NodeState::stopped && give_up_at_ == Instant::max()) {
        give_up_at_ = after(now, config_.join_timeout);
    }
    send_report(now);
}

void AgentCore::on(Instant /*now*/, const StoreOffered& event) { report_.store_port = event.port; }

// ---- The end.

void AgentCore::on(Instant now, const QuitRequested& event) {
    if (quit_) {
        if (!alive_.empty() && resist_at_ == Instant::max()) {
            force_at_ = now;  // advance() does the rest.
        }
        return;
    }
    if (link_up_) {
        effects_.push_back(SendToDaemon{rendezvous::Leave{rendezvous::signal_name(event.signal)}});
    }
    quit(now, Quit{128 + event.signal, event.signal,
                   "stopped by " + rendezvous::signal_name(event.signal), std::nullopt});
}

void AgentCore::quit(Instant now, Quit how) {
    if (quit_) {
        return;
    }
    quit_ = std::move(how);
    next_assignment_.reset();
    give_up_at_ = Instant::max();
    if (alive_.empty()) {
        quit_sent_ = true;
        effects_.push_back(*quit_);
    } else {
        begin_stopping(now);
    }
}

// ---- The passing of time.

AgentEffects AgentCore::advance(Instant now) {
    if (quit_sent_) {
        return {};
    }
    if (now >= heartbeat_at_) {
        send_report(now);
    }
    if (link_up_ && now >= after(heard_at_, config_.policy.heartbeat_timeout)) {
        effects_.push_back(DropLink{});
        on(now, LinkDown{});
    }
    if (now >= force_at_ && !alive_.empty()) {
        if (resist_at_ == Instant::max()) {
            resist_at_ = after(now, kResistLimit);
        }
        force_at_ = after(now, kForceInterval);
        effects_.push_back(SignalWorkers{workers_round_, true});
    }
    if (now >= resist_at_) {
        quit_sent_ = true;
        effects_.push_back(Quit{kExitJobFailed, 0,
                                std::to_string(alive_.size()) +
                                    " worker(s) did not end even after SIGKILL; they are probably "
                                    "stuck in the kernel",
                                std::nullopt});
    } else if (now >= give_up_at_) {
        quit(now, Quit{kExitNoRendezvous, 0,
                       std::string(link_up_ ? "no round was formed" : "no rendezvous was reached") +
                           " within " + format_duration(config_.join_timeout) +
                           " (--join-timeout)",
                       std::nullopt});
    }
    return std::exchange(effects_, {});
}

Instant AgentCore::next_deadline() const {
    if (quit_sent_) {
        return Instant::max();
    }
    const Instant silence =
        link_up_ ? after(heard_at_, config_.policy.heartbeat_timeout) : Instant::max();
    return std::min({heartbeat_at_, silence, force_at_, resist_at_, give_up_at_});
}

}  // namespace regroup::agent
