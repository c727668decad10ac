// SPDX-License-Identifier: Apache-2.0
//
// A simulated daemon steps, records, and sends the effects.
#include <iterator>
#include <utility>

#include "rendezvous/base/ensure.h"
#include "rendezvous/text/describe.h"
#include "tests/simulation/simulated_daemon.h"

namespace regroup::simulation {

using rendezvous::Effects;
using rendezvous::Send;

namespace {

constexpr Duration kSweepInterval = std::chrono::seconds(1);

}  // namespace

// As the real daemon does: JobTable::step and JobTable::advance.
void SimulatedDaemon::submit(std::optional<rendezvous::Event> event) {
    if (!core_) {
        return;
    }
    const std::uint64_t life = life_;
    ++world_.steps;
    journal::Entry entry{job_now(), 0, std::move(event), {}};
    const bool routine = keeps_log() && entry.event && core_->is_routine(*entry.event);
    const auto before = std::pair(core_->phase(), core_->round());
    Effects effects = journal::apply(*core_, entry);
    const bool noted = entry.event && before == std::pair(core_->phase(), core_->round()) &&
                       journal::is_only_noted(*entry.event, effects);
    const bool refused = entry.event && journal::is_refusal(*entry.event, effects);
    if (!keeps_log() || routine || noted || refused) {
        if (entry.event) {
            world_.tell([&](Checker& c) { c.on_daemon_event(world_.now, *entry.event); });
        }
        // Steps on their way into a log do not count yet.
        if (!keeps_log() || log_.begun()) {
            const rendezvous::RendezvousCore& counts = keeps_log() ? log_.machine() : *core_;
            world_.tell([&](Checker& c) { c.on_daemon_effects(world_.now, counts, effects); });
        }
        if (routine) {
            fold_.add(std::move(entry));
        } else if (keeps_log() && noted) {
            defer(std::move(entry));
        }
        send(std::move(effects));
    } else {
        defer(std::move(entry));
        deferred_.back().folded = false;
        outbox_.push_back({std::exchange(deferred_, {}), std::move(effects)});
        record_all();
    }
    if (life == life_) {
        arm();
    }
}

void SimulatedDaemon::defer(journal::Entry entry) {
    std::vector<Record> heartbeats = fold_.take();
    std::move(heartbeats.begin(), heartbeats.end(), std::back_inserter(deferred_));
    deferred_.push_back({std::move(entry), true});
    if (!std::exchange(sweeps_, true)) {
        world_.queue.push(world_.now + kSweepInterval, EventKind::daemon_sweep, index_, life_);
    }
}

void SimulatedDaemon::on_sweep(std::uint64_t life) {
    if (life != life_) {
        return;
    }
    sweeps_ = false;
    if (leads() && core_ && !deferred_.empty()) {
        outbox_.push_back({std::exchange(deferred_, {}), {}});
        record_all();
    }
}

void SimulatedDaemon::record_all() {
    if (outbox_.empty() || !pending_.empty()) {
        return;
    }
    pending_since_ = world_.now;
    std::move(outbox_.begin(), outbox_.end(), std::back_inserter(pending_));
    outbox_.clear();
    if (is_replicated()) {
        send_append();
        return;
    }
    std::vector<Record> batch;
    for (const Step& step : pending_) {
        batch.insert(batch.end(), step.records.begin(), step.records.end());
    }
    const std::vector<Effects> effects = commit(world_, log_, batch);
    if (!dies_midway()) {
        recorded(effects);
    }
}

void SimulatedDaemon::recorded(const std::vector<Effects>& effects) {
    if (world_.now > pending_since_ + kPrompt) {
        in_charge_since_ = world_.now;
    }
    begin_.reset();
    std::size_t next = 0;
    for (Step& step : std::exchange(pending_, {})) {
        next += step.records.size();
        position_ += step.records.size();
        ENSURE(next <= effects.size());
        if (!step.records.back().folded) {
            world_.tell(
                [&](Checker& c) { c.on_replayed(world_.now, step.effects, effects[next - 1]); });
            send(std::move(step.effects));
        }
    }
    ENSURE(next == effects.size());
    record_all();
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
        const std::string line = describe(core_->situation(job_now()));
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
    const Instant due = core_->next_deadline();
    const Instant at = due == Instant::max() ? due : std::max(due - offset_, world_.now);
    if (at < timer_at_) {
        timer_at_ = at;
        world_.queue.push(at, EventKind::daemon_timer, index_, life_);
    }
}

}  // namespace regroup::simulation
