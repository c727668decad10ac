// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/simulated_daemon.h"

#include <iterator>
#include <utility>

#include "rendezvous/base/ensure.h"
#include "tests/support/transcript.h"

namespace regroup::simulation {

using rendezvous::Effects;
using rendezvous::NodeId;
using rendezvous::Send;

namespace {

constexpr Duration kReadMax = std::chrono::seconds(1);

}  // namespace

// ---- Start and end.

void SimulatedDaemon::start() {
    up_ = true;
    ++life_;
    sweeps_ = false;
    in_charge_since_ = paused_until_ = world_.now;
    timer_at_ = Instant::max();
    if (is_replicated()) {
        world_.note([&] { return "daemon " + std::to_string(index_) + " starts"; });
        on_duty(life_);
        return;
    }
    world_.note([&] {
        return std::string("the daemon starts, remembering ") +
               (log_.begun() ? "its journal" : "nothing");
    });
    if (keeps_log()) {
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
    if ((core_ || reads_) && keeps_log()) {
        world_.tell([&](Checker& c) { c.on_daemon_gone(world_.now); });
    }
    core_.reset();
    lease_.reset();
    sessions_.clear();
    fold_.clear();
    deferred_.clear();
    outbox_.clear();
    pending_.clear();
    reads_ = false;
    ++reading_;
    words_.clear();
    begin_.reset();
    timer_at_ = Instant::max();
    world_.network.close_all_by_daemon(world_.now, index_);
}

void SimulatedDaemon::take_over() {
    const Duration needs = log_.begun() && world_.second_random.chance(0.5)
                               ? between(world_.second_random, {}, kReadMax)
                               : Duration::zero();
    if (needs == Duration::zero()) {
        restore();
        return;
    }
    reads_ = true;
    world_.queue.push(world_.now + needs, EventKind::daemon_read, index_, ++reading_);
}

void SimulatedDaemon::on_has_read(std::uint64_t reading) {
    if (!reads_ || reading != reading_ || !leads()) {
        return;
    }
    reads_ = false;
    const std::vector<Arrival> words = std::exchange(words_, {});
    restore();
    for (const Arrival& word : words) {
        if (world_.network.connection(word.connection).daemon_open) {
            hear(word);
        }
    }
}

void SimulatedDaemon::restore() {
    in_charge_since_ = world_.now;
    position_ = log_.size();
    offset_ = index_ == 0 ? Duration::zero() : world_.plan.skew;
    if (!log_.begun()) {
        return;
    }
    // The job's time never goes back, whichever daemon's clock it follows.
    offset_ = std::max(offset_, log_.last_at() - world_.now);
    core_.emplace(log_.machine());
    world_.tell([&](Checker& c) { c.on_daemon_restored(world_.now, *core_); });
    submit(rendezvous::Restarted{});
}

void SimulatedDaemon::forget_job() {
    const std::optional<Lease> lease = lease_;
    resign();
    if (up_) {
        lease_ = lease;
        position_ = 0;
    }
}

void SimulatedDaemon::stop_job(const std::string& author, const std::string& reason) {
    if (core_ && leads()) {
        world_.note([&] { return "stopped by " + author; });
        submit(rendezvous::StopRequested{author, reason});
    }
}

void SimulatedDaemon::operator_drain(const std::string& node) {
    if (core_ && leads()) {
        world_.note([&] { return "an operator drains node " + node; });
        submit(rendezvous::DrainRequested{node, "operator", "maintenance"});
    }
}

// ---- Leadership.

bool SimulatedDaemon::leads() {
    if (!is_replicated()) {
        return up_;
    }
    if (lease_ && world_.now >= lease_->until) {
        world_.note([&] { return "daemon " + std::to_string(index_) + " has lost its lease"; });
        resign();
    }
    return up_ && lease_.has_value();
}

void SimulatedDaemon::on_duty(std::uint64_t life) {
    if (!up_ || life != life_) {
        return;
    }
    etcd_.call(question(leads() ? EtcdCall::Kind::keep_alive : EtcdCall::Kind::campaign));
    if (!pending_.empty()) {
        send_append();  // The answer may have been lost.
    }
    world_.queue.push(world_.now + world_.plan.lease / 4, EventKind::daemon_duty, index_, life_);
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
    call.position = position_;
    for (const Step& step : pending_) {
        call.batch.insert(call.batch.end(), step.records.begin(), step.records.end());
    }
    call.begin = begin_;
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
    } else if (!pending_.empty() && call.job == log_.job() && call.position == position_) {
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

bool SimulatedDaemon::speaks_over(std::uint32_t connection) const {
    const auto found = sessions_.find(world_.network.connection(connection).node);
    return found != sessions_.end() && found->second == connection;
}

void SimulatedDaemon::on_arrival(Arrival arrival) {
    if (!up_) {
        return;
    }
    const bool leading = leads();
    if (leading && reads_) {
        if (std::holds_alternative<rendezvous::FromAgent>(arrival.message)) {
            words_.push_back(std::move(arrival));
        } else {
            world_.network.close_by_daemon(world_.now, arrival.connection);
        }
        return;
    }
    if (!leading && std::holds_alternative<rendezvous::FromAgent>(arrival.message)) {
        world_.trace.mix(std::get<rendezvous::FromAgent>(arrival.message).index());
        turn_away(arrival.connection);
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
        if (speaks_over(id)) {
            sessions_.erase(node);
            world_.note([&] { return "the daemon sees the connection of " + node + " end"; });
            submit(rendezvous::NodeDisconnected{node});
        }
        return;
    }
    world_.trace.mix(message->index());
    if (auto* hello = std::get_if<rendezvous::Join>(message)) {
        join(id, std::move(*hello));
    } else if (!speaks_over(id)) {
        return;  // A message overtook the join of its connection, which only unreliable networks
                 // allow.
    } else if (auto* report = std::get_if<rendezvous::Report>(message)) {
        submit(rendezvous::NodeReported{node, std::move(report->report)});
    } else if (auto* resumed = std::get_if<rendezvous::Resumed>(message)) {
        submit(rendezvous::NodeResumed{node, *resumed});
    } else if (auto* leave = std::get_if<rendezvous::Leave>(message)) {
        sessions_.erase(node);
        world_.network.close_by_daemon(world_.now, id);
        submit(rendezvous::NodeLeft{node, std::move(leave->reason), leave->killed});
    }
}

void SimulatedDaemon::turn_away(std::uint32_t connection) {
    const bool knows = known_leader_ && *known_leader_ != index_;
    world_.network.send(world_.now, connection,
                        rendezvous::Elsewhere{knows ? std::to_string(*known_leader_) : ""});
    world_.network.close_by_daemon(world_.now, connection);
}

void SimulatedDaemon::join(std::uint32_t connection, rendezvous::Join join) {
    if (!core_) {
        core_.emplace(join.policy);
        if (world_.plan.durability == Durability::journal) {
            log_.begin(join.policy);
        } else if (is_replicated()) {
            begin_ = join.policy;
        }
    }
    const NodeId node = join.node;
    world_.network.connection(connection).node = node;
    const auto [session, is_new] = sessions_.emplace(node, connection);
    if (!is_new && session->second != connection) {
        // A newer connection replaces it.
        world_.network.close_by_daemon(world_.now, session->second);
        session->second = connection;
    }
    submit(rendezvous::NodeJoined{node, std::move(join.policy), std::move(join.offer),
                                  std::move(join.report)});
}

void SimulatedDaemon::on_timer(std::uint64_t life) {
    if (life != life_ || world_.now < timer_at_) {
        return;
    }
    timer_at_ = Instant::max();
    if (!leads() || !core_) {
        return;
    }
    if (core_->next_deadline() <= job_now()) {
        submit(std::nullopt);
    } else {
        arm();
    }
}

Instant SimulatedDaemon::awake_since() const noexcept {
    const bool waits = !pending_.empty() && world_.now > pending_since_ + kPrompt;
    const bool in_charge =
        up_ && (!is_replicated() || lease_) && !waits && !reads_ && paused_until_ <= world_.now;
    return in_charge ? std::max(in_charge_since_, paused_until_) : Instant::max();
}

}  // namespace regroup::simulation
