// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/simulated_daemon.h"

#include <utility>

#include "tests/support/transcript.h"

namespace regroup::simulation {

using rendezvous::Effects;
using rendezvous::NodeId;
using rendezvous::Send;

void SimulatedDaemon::start() {
    up_ = true;
    ++life_;
    started_at_ = paused_until_ = world_.now;
    timer_at_ = Instant::max();
    world_.note([] { return "the daemon starts, remembering nothing"; });
    world_.tell([&](Checker& c) { c.on_daemon_start(world_.now); });
}

void SimulatedDaemon::kill() {
    world_.note([] { return "the daemon is killed"; });
    up_ = false;
    core_.reset();
    sessions_.clear();
    world_.network.close_all_by_daemon(world_.now);
}

void SimulatedDaemon::operator_stop() {
    if (core_) {
        world_.note([] { return "an operator stops the job"; });
        step(rendezvous::StopRequested{"operator", "enough"});
    }
}

void SimulatedDaemon::forget_job() {
    core_.reset();
    sessions_.clear();
    timer_at_ = Instant::max();
    world_.network.close_all_by_daemon(world_.now);
}

bool SimulatedDaemon::speaks_over(std::uint32_t connection) const {
    const auto found = sessions_.find(world_.network.connection(connection).node);
    return found != sessions_.end() && found->second == connection;
}

void SimulatedDaemon::on_arrival(Arrival arrival) {
    if (!up_) {
        return;
    }
    const std::uint32_t id = arrival.connection;
    const NodeId node = world_.network.connection(id).node;
    auto* message = std::get_if<rendezvous::FromAgent>(&arrival.message);
    if (message == nullptr) {
        world_.network.close_by_daemon(world_.now, id);
        // A newer connection of the same node may have taken over.
        if (speaks_over(id)) {
            sessions_.erase(node);
            world_.note([&] { return "the daemon sees the connection of " + node + " end"; });
            step(rendezvous::NodeDisconnected{node});
        }
        return;
    }
    world_.trace.mix(message->index());
    if (auto* hello = std::get_if<rendezvous::Join>(message)) {
        join(id, std::move(*hello));
    } else if (!speaks_over(id)) {
        return;  // A message that overtook its connection's join; only unreliable networks do that.
    } else if (auto* report = std::get_if<rendezvous::Report>(message)) {
        step(rendezvous::NodeReported{node, std::move(report->report)});
    } else if (auto* leave = std::get_if<rendezvous::Leave>(message)) {
        sessions_.erase(node);
        world_.network.close_by_daemon(world_.now, id);
        step(rendezvous::NodeLeft{node, std::move(leave->reason)});
    }
}

void SimulatedDaemon::join(std::uint32_t connection, rendezvous::Join join) {
    if (!core_) {
        core_.emplace(join.policy);
    }
    const NodeId node = join.node;
    world_.network.connection(connection).node = node;
    const auto [session, is_new] = sessions_.emplace(node, connection);
    if (!is_new && session->second != connection) {
        world_.network.close_by_daemon(world_.now, session->second);  // Superseded.
        session->second = connection;
    }
    step(rendezvous::NodeJoined{node, std::move(join.policy), std::move(join.offer),
                                std::move(join.report)});
}

void SimulatedDaemon::on_timer(std::uint64_t life) {
    if (!up_ || life != life_ || world_.now < timer_at_) {
        return;
    }
    timer_at_ = Instant::max();
    if (core_ && core_->next_deadline() <= world_.now) {
        ++world_.steps;
        apply(core_->advance(world_.now));
    }
    arm();
}

void SimulatedDaemon::step(const rendezvous::Event& event) {
    if (core_) {
        world_.tell([&](Checker& c) { c.on_daemon_event(world_.now, event); });
        ++world_.steps;
        apply(core_->step(world_.now, event));
    }
    arm();
}

void SimulatedDaemon::apply(Effects effects) {
    world_.tell([&](Checker& c) { c.on_daemon_effects(world_.now, *core_, effects); });
    world_.trace.mix(number(core_->round()) << 8U | static_cast<std::uint64_t>(core_->phase()));
    for (Send& effect : effects) {
        const auto found = sessions_.find(effect.node);
        if (found == sessions_.end() || (world_.swallow && world_.swallow(effect.message))) {
            continue;
        }
        const std::uint32_t connection = found->second;
        const bool refused = std::holds_alternative<rendezvous::Refused>(effect.message);
        world_.network.send(world_.now, connection, std::move(effect.message));
        if (refused) {
            sessions_.erase(found);
            world_.network.close_by_daemon(world_.now, connection);
        }
    }
    if (world_.trace.keeps_text()) {
        const std::string line = core_->explain(world_.now);
        if (line != explained_) {
            world_.note([&] { return "= " + line; });
            explained_ = line;
        }
    }
}

void SimulatedDaemon::arm() {
    if (!core_) {
        return;
    }
    const Instant at = std::max(core_->next_deadline(), world_.now);
    if (at < timer_at_) {
        timer_at_ = at;
        world_.queue.push(at, EventKind::daemon_timer, 0, life_);
    }
}

Instant SimulatedDaemon::awake_since() const noexcept {
    return up_ && paused_until_ <= world_.now ? std::max(started_at_, paused_until_)
                                              : Instant::max();
}

}  // namespace regroup::simulation
