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

// A daemon whose records take longer than this to be accepted is not in charge of anything.
constexpr Duration kPrompt = std::chrono::milliseconds(500);

}  // namespace

// ---- Life and death.

void SimulatedDaemon::start() {
    up_ = true;
    ++life_;
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
        restore();
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

// Whatever it was about to decide, it does not.
void SimulatedDaemon::resign() {
    if (core_ && keeps_log()) {
        world_.tell([&](Checker& c) { c.on_daemon_gone(world_.now); });
    }
    core_.reset();
    lease_.reset();
    sessions_.clear();
    inbox_.clear();
    fold_.clear();
    pending_.clear();
    begin_.reset();
    timer_at_ = Instant::max();
    world_.network.close_all_by_daemon(world_.now, index_);
}

void SimulatedDaemon::restore() {
    in_charge_since_ = world_.now;
    position_ = log_.size();
    offset_ = index_ == 0 ? Duration::zero() : world_.plan.skew;
    if (!log_.begun()) {
        return;
    }
    // The job's time never goes back, whoever's clock it is told by.
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
    call.batch = pending_;
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
            restore();
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
            pump();
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

// ---- What comes in.

bool SimulatedDaemon::speaks_over(std::uint32_t connection) const {
    const auto found = sessions_.find(world_.network.connection(connection).node);
    return found != sessions_.end() && found->second == connection;
}

void SimulatedDaemon::on_arrival(Arrival arrival) {
    if (!up_) {
        return;
    }
    const bool leading = leads();
    const std::uint32_t id = arrival.connection;
    const NodeId node = world_.network.connection(id).node;
    auto* message = std::get_if<rendezvous::FromAgent>(&arrival.message);
    if (message == nullptr) {
        world_.network.close_by_daemon(world_.now, id);
        // A newer connection of the same node may have taken over.
        if (speaks_over(id)) {
            sessions_.erase(node);
            world_.note([&] { return "the daemon sees the connection of " + node + " end"; });
            submit(rendezvous::NodeDisconnected{node});
        }
        return;
    }
    world_.trace.mix(message->index());
    if (!leading) {
        turn_away(id);
    } else if (auto* hello = std::get_if<rendezvous::Join>(message)) {
        join(id, std::move(*hello));
    } else if (!speaks_over(id)) {
        return;  // A message that overtook its connection's join; only unreliable networks do that.
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
        world_.network.close_by_daemon(world_.now, session->second);  // Superseded.
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
    if (leads()) {
        pump();
    }
}

void SimulatedDaemon::submit(std::optional<rendezvous::Event> event) {
    if (core_) {
        inbox_.push_back({{job_now(), 0, std::move(event), {}}});
        pump();
    }
}

// ---- What is decided.

void SimulatedDaemon::pump() {
    const std::uint64_t life = life_;
    while (life == life_ && core_ && pending_.empty()) {
        if (inbox_.empty()) {
            if (core_->next_deadline() > job_now()) {
                break;
            }
            inbox_.push_back({{job_now(), 0, std::nullopt, {}}});
        }
        if (!keeps_log() || is_routine(inbox_.front().entry)) {
            const journal::Entry entry = std::move(inbox_.front().entry);
            inbox_.pop_front();
            digest_routine(entry);
        } else {
            record_all();
        }
    }
    if (life == life_) {
        arm();
    }
}

void SimulatedDaemon::record_all() {
    pending_since_ = world_.now;
    pending_ = fold_.take();
    // Words that come without a pause do not keep it from looking at the clock.
    if (inbox_.back().entry.event && core_->next_deadline() <= job_now()) {
        inbox_.push_back({{job_now(), 0, std::nullopt, {}}});
    }
    std::move(inbox_.begin(), inbox_.end(), std::back_inserter(pending_));
    inbox_.clear();
    if (is_replicated()) {
        send_append();
        return;
    }
    const std::vector<Effects> effects = commit(world_, log_, pending_);
    if (!dies_midway()) {
        recorded(effects);
    }
}

void SimulatedDaemon::recorded(const std::vector<Effects>& effects) {
    if (world_.now > pending_since_ + kPrompt) {
        in_charge_since_ = world_.now;
    }
    const std::vector<Record> batch = std::exchange(pending_, {});
    position_ += batch.size();
    begin_.reset();
    ENSURE(batch.size() == effects.size());
    for (std::size_t i = 0; i < batch.size(); ++i) {
        if (!batch[i].folded) {
            ++world_.steps;
            Effects mine = journal::apply(*core_, batch[i].entry);
            world_.tell([&](Checker& c) { c.on_replayed(world_.now, mine, effects[i]); });
            send(std::move(mine));
        }
    }
}

bool SimulatedDaemon::is_routine(const journal::Entry& entry) const {
    return entry.event ? core_->is_routine(*entry.event) : core_->next_decision() > entry.at;
}

// Nothing that must be recorded: a heartbeat, a notice, or anything of a daemon that keeps no log.
void SimulatedDaemon::digest_routine(const journal::Entry& entry) {
    ++world_.steps;
    if (entry.event) {
        world_.tell([&](Checker& c) { c.on_daemon_event(world_.now, *entry.event); });
        if (keeps_log()) {
            fold_.add(entry);
        }
    }
    Effects effects = journal::apply(*core_, entry);
    world_.tell([&](Checker& c) { c.on_daemon_effects(world_.now, *core_, effects); });
    send(std::move(effects));
}

void SimulatedDaemon::send(Effects effects) {
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
        const std::string line = core_->explain(job_now());
        if (line != explained_) {
            world_.note([&] { return "= " + line; });
            explained_ = line;
        }
    }
}

void SimulatedDaemon::arm() {
    if (!core_ || !pending_.empty()) {
        return;
    }
    const Instant due = core_->next_deadline();
    const Instant at = due == Instant::max() ? due : std::max(due - offset_, world_.now);
    if (at < timer_at_) {
        timer_at_ = at;
        world_.queue.push(at, EventKind::daemon_timer, index_, life_);
    }
}

Instant SimulatedDaemon::awake_since() const noexcept {
    const bool waits = !pending_.empty() && world_.now > pending_since_ + kPrompt;
    const bool in_charge =
        up_ && (!is_replicated() || lease_) && !waits && paused_until_ <= world_.now;
    return in_charge ? std::max(in_charge_since_, paused_until_) : Instant::max();
}

}  // namespace regroup::simulation
