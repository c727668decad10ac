// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/simulated_daemon.h"

#include <utility>

#include "tests/support/transcript.h"

namespace regroup::simulation {

using rendezvous::NodeId;

namespace {

constexpr Duration kReadMax = std::chrono::seconds(1);
constexpr Duration kSweepInterval = std::chrono::seconds(1);

}  // namespace

// ---- Start and end.

void SimulatedDaemon::start() {
    up_ = true;
    ++life_;
    sweeps_ = false;
    uptime_.restart(world_.now);
    timer_at_ = Instant::max();
    if (world_.plan.is_replicated()) {
        world_.note([&] { return "daemon " + std::to_string(index_) + " starts"; });
        on_due(EventKind::daemon_duty, life_);
        return;
    }
    world_.note([&] {
        return std::string("the daemon starts, remembering ") +
               (log_.begun() ? "its journal" : "nothing");
    });
    if (world_.plan.keeps_log()) {
        take_over();
    } else {
        world_.tell([&](Checker& c) { c.on_daemon_start(world_.now); });
    }
}

void SimulatedDaemon::kill() {
    world_.note([&] { return "daemon " + std::to_string(index_) + " is killed"; });
    up_ = false;
    ++life_;
    resign();
}

// Pending decisions are dropped.
void SimulatedDaemon::resign() {
    if ((job_.core() != nullptr || words_) && world_.plan.keeps_log()) {
        world_.tell([&](Checker& c) { c.on_daemon_gone(world_.now); });
    }
    job_.clear();
    lease_.reset();
    ++reading_;
    words_.reset();
    timer_at_ = Instant::max();
}

void SimulatedDaemon::take_over() {
    const Duration needs = log_.begun() && world_.second_random.chance(0.5)
                               ? between(world_.second_random, {}, kReadMax)
                               : Duration::zero();
    if (needs == Duration::zero()) {
        restore();
        return;
    }
    words_.emplace();
    world_.queue.push(world_.now + needs, EventKind::daemon_read, index_, ++reading_);
}

void SimulatedDaemon::restore() {
    uptime_.began = world_.now;
    if (job_.restore()) {
        submit(rendezvous::Restarted{});
    }
}

void SimulatedDaemon::forget_job() {
    const std::optional<Lease> lease = lease_;
    resign();
    if (up_) {
        lease_ = lease;
        job_.recording().position = 0;
    }
}

void SimulatedDaemon::operate(const std::string& note, rendezvous::Event event) {
    if (job_.core() != nullptr && leads()) {
        world_.note([&] { return note; });
        submit(std::move(event));
    }
}

void SimulatedDaemon::on_due(EventKind kind, std::uint64_t tag) {
    if (kind == EventKind::daemon_read) {
        if (words_ && tag == reading_ && leads()) {
            const std::vector<Arrival> words = *std::exchange(words_, std::nullopt);
            restore();
            for (const Arrival& word : words) {
                if (world_.network.connection(word.connection).daemon_open) {
                    hear(word);
                }
            }
        }
        return;
    }
    if (tag != life_) {
        return;
    }
    if (kind == EventKind::daemon_duty && up_) {
        etcd_.call(question(leads() ? EtcdCall::Kind::keep_alive : EtcdCall::Kind::campaign));
        if (!job_.recording().pending.empty()) {
            send_append();  // The answer may have been lost.
        }
        world_.queue.push(world_.now + world_.plan.lease / 4, kind, index_, life_);
    } else if (kind == EventKind::daemon_sweep) {
        sweeps_ = false;
        if (leads() && job_.core() != nullptr && !job_.recording().deferred.empty()) {
            job_.recording().write({});
            record();
        }
    } else if (kind == EventKind::daemon_timer && world_.now >= timer_at_) {
        timer_at_ = Instant::max();
        if (!leads() || job_.core() == nullptr) {
            return;
        }
        if (job_.next_deadline() <= world_.now) {
            submit(std::nullopt);
        } else {
            arm();
        }
    }
}

// ---- Leadership.

bool SimulatedDaemon::leads() {
    if (!world_.plan.is_replicated()) {
        return up_;
    }
    if (lease_ && world_.now >= lease_->until) {
        world_.note([&] { return "daemon " + std::to_string(index_) + " has lost its lease"; });
        resign();
    }
    return up_ && lease_.has_value();
}

EtcdCall SimulatedDaemon::question(EtcdCall::Kind kind) const {
    EtcdCall call;
    call.kind = kind;
    call.daemon = index_;
    call.life = life_;
    call.asked = world_.now;
    call.epoch = lease_ ? lease_->epoch : 0;
    return call;
}

void SimulatedDaemon::send_append() {
    EtcdCall call = question(EtcdCall::Kind::append);
    call.job = log_.job();
    call.position = job_.recording().position;
    call.batch = job_.recording().batch();
    call.begin = job_.recording().begin;
    etcd_.call(std::move(call));
}

void SimulatedDaemon::on_etcd_answer(EtcdCall call) {
    if (!up_ || call.life != life_) {
        return;
    }
    known_leader_ = call.leader;
    if (call.kind == EtcdCall::Kind::campaign) {
        if (call.granted && !lease_) {
            world_.note([&] { return "daemon " + std::to_string(index_) + " leads"; });
            lease_ = Lease{call.epoch, call.asked + world_.plan.lease};
            take_over();
        }
        return;
    }
    if (!leads()) {
        return;
    }
    const bool mine = call.epoch == lease_->epoch;
    if (!call.granted && (!mine || call.job == log_.job())) {
        world_.note([&] { return "daemon " + std::to_string(index_) + " is deposed"; });
        resign();
        return;
    }
    if (call.kind == EtcdCall::Kind::keep_alive) {
        lease_->until = std::max(lease_->until, call.asked + world_.plan.lease);
    } else if (!job_.recording().pending.empty() && call.job == log_.job() &&
               call.position == job_.recording().position) {
        if (!dies_midway()) {
            recorded(etcd_.last_effects());
        }
    }
}

bool SimulatedDaemon::dies_midway() {
    if (!dies_midway_for_) {
        return false;
    }
    const Duration outage = *std::exchange(dies_midway_for_, std::nullopt);
    kill();
    world_.queue.push(world_.now + outage, EventKind::daemon_return, index_);
    return true;
}

// ---- Incoming messages.

void SimulatedDaemon::on_arrival(Arrival arrival) {
    if (!up_) {
        return;
    }
    const bool leading = leads();
    if (leading && words_) {
        if (std::holds_alternative<rendezvous::FromAgent>(arrival.message)) {
            words_->push_back(std::move(arrival));
        } else {
            world_.network.close_by_daemon(world_.now, arrival.connection);
        }
        return;
    }
    if (!leading && std::holds_alternative<rendezvous::FromAgent>(arrival.message)) {
        world_.trace.mix(std::get<rendezvous::FromAgent>(arrival.message).index());
        const bool knows = known_leader_ && *known_leader_ != index_;
        world_.network.send(world_.now, arrival.connection,
                            rendezvous::Elsewhere{knows ? std::to_string(*known_leader_) : ""});
        world_.network.close_by_daemon(world_.now, arrival.connection);
        return;
    }
    hear(std::move(arrival));
}

void SimulatedDaemon::hear(Arrival arrival) {
    const std::uint32_t id = arrival.connection;
    const NodeId node = world_.network.connection(id).node;
    auto* message = std::get_if<rendezvous::FromAgent>(&arrival.message);
    if (message == nullptr) {
        world_.network.close_by_daemon(world_.now, id);
        // A newer connection of the same node may have replaced this one.
        if (job_.speaks_over(id)) {
            job_.end_session(node);
            world_.note([&] { return "the daemon sees the connection of " + node + " end"; });
            submit(rendezvous::NodeDisconnected{node});
        }
        return;
    }
    world_.trace.mix(message->index());
    if (auto* hello = std::get_if<rendezvous::Join>(message)) {
        job_.open_session(id, *hello);
        submit(rendezvous::NodeJoined{hello->node, std::move(hello->policy),
                                      std::move(hello->offer), std::move(hello->report)});
    } else if (!job_.speaks_over(id)) {
        return;  // A message overtook the join of its connection, which only unreliable networks
                 // allow.
    } else if (auto* report = std::get_if<rendezvous::Report>(message)) {
        submit(rendezvous::NodeReported{node, std::move(report->report)});
    } else if (auto* resumed = std::get_if<rendezvous::Resumed>(message)) {
        submit(rendezvous::NodeResumed{node, *resumed});
    } else if (auto* leave = std::get_if<rendezvous::Leave>(message)) {
        job_.end_session(node);
        world_.network.close_by_daemon(world_.now, id);
        submit(rendezvous::NodeLeft{node, std::move(leave->reason), leave->killed});
    }
}

// ---- Steps.

void SimulatedDaemon::submit(std::optional<rendezvous::Event> event) {
    if (job_.core() == nullptr) {
        return;
    }
    const std::uint64_t life = life_;
    if (job_.step(std::move(event)) && !std::exchange(sweeps_, true)) {
        world_.queue.push(world_.now + kSweepInterval, EventKind::daemon_sweep, index_, life_);
    }
    record();
    if (life == life_) {
        arm();
    }
}

void SimulatedDaemon::record() {
    if (!job_.recording().depart(world_.now)) {
        return;
    }
    if (world_.plan.is_replicated()) {
        send_append();
        return;
    }
    const std::vector<rendezvous::Effects> effects = commit(world_, log_, job_.recording().batch());
    if (!dies_midway()) {
        recorded(effects);
    }
}

void SimulatedDaemon::recorded(const std::vector<rendezvous::Effects>& effects) {
    if (job_.recording().is_late(world_.now)) {
        uptime_.began = world_.now;
    }
    job_.recorded(effects);
    record();
}

void SimulatedDaemon::arm() {
    if (job_.core() == nullptr) {
        return;
    }
    const Instant at = std::max(job_.next_deadline(), world_.now);
    if (at < timer_at_) {
        timer_at_ = at;
        world_.queue.push(at, EventKind::daemon_timer, index_, life_);
    }
}

Instant SimulatedDaemon::awake_since() const noexcept {
    const bool in_charge = up_ && (!world_.plan.is_replicated() || lease_) && !words_ &&
                           !job_.recording().is_late(world_.now);
    return in_charge ? uptime_.awake_since(world_.now) : Instant::max();
}

}  // namespace regroup::simulation
