// SPDX-License-Identifier: Apache-2.0
//
// A simulated daemon steps, records, and sends the effects.
#include "tests/simulation/simulated_job.h"

#include <iterator>
#include <utility>

#include "rendezvous/base/ensure.h"
#include "rendezvous/text/describe.h"
#include "tests/support/transcript.h"

namespace regroup::simulation {

using rendezvous::Effects;
using rendezvous::Send;

namespace {

constexpr Duration kPrompt = std::chrono::milliseconds(500);

}  // namespace

void Recording::defer(journal::Entry entry) {
    std::vector<Record> heartbeats = fold.take();
    std::move(heartbeats.begin(), heartbeats.end(), std::back_inserter(deferred));
    deferred.push_back({std::move(entry), true});
}

void Recording::write(Effects effects) {
    outbox.push_back({std::exchange(deferred, {}), std::move(effects)});
}

bool Recording::depart(Instant now) {
    if (outbox.empty() || !pending.empty()) {
        return false;
    }
    pending_since = now;
    pending = std::exchange(outbox, {});
    return true;
}

std::vector<Record> Recording::batch() const {
    std::vector<Record> result;
    for (const Step& step : pending) {
        result.insert(result.end(), step.records.begin(), step.records.end());
    }
    return result;
}

bool Recording::is_late(Instant now) const {
    return !pending.empty() && now > pending_since + kPrompt;
}

bool SimulatedJob::restore() {
    recording_.position = log_.size();
    offset_ = daemon_ == 0 ? Duration::zero() : world_.plan.skew;
    if (!log_.begun()) {
        return false;
    }
    // The job's time never goes back, whichever daemon's clock it follows.
    offset_ = std::max(offset_, log_.last_at() - world_.now);
    core_.emplace(log_.machine());
    world_.tell([&](Checker& c) { c.on_daemon_restored(world_.now, *core_); });
    return true;
}

void SimulatedJob::clear() {
    core_.reset();
    sessions_.clear();
    recording_ = {.position = recording_.position};
    world_.network.close_all_by_daemon(world_.now, daemon_);
}

// As the real daemon does: JobTable::step and JobTable::advance.
bool SimulatedJob::step(std::optional<rendezvous::Event> event) {
    ++world_.steps;
    const bool keeps_log = world_.plan.keeps_log();
    journal::Entry entry{world_.now + offset_, 0, std::move(event), {}};
    const bool routine = keeps_log && entry.event && core_->is_routine(*entry.event);
    const auto before = std::pair(core_->phase(), core_->round());
    Effects effects = journal::apply(*core_, entry);
    const bool noted = entry.event && before == std::pair(core_->phase(), core_->round()) &&
                       journal::is_only_noted(*entry.event, effects);
    const bool refused = entry.event && journal::is_refusal(*entry.event, effects);
    if (keeps_log && !routine && !noted && !refused) {
        recording_.defer(std::move(entry));
        recording_.deferred.back().folded = false;
        recording_.write(std::move(effects));
        return true;
    }
    if (entry.event) {
        world_.tell([&](Checker& c) { c.on_daemon_event(world_.now, *entry.event); });
    }
    // Steps on their way into a log do not count yet.
    if (!keeps_log || log_.begun()) {
        const rendezvous::RendezvousCore& counts = keeps_log ? log_.machine() : *core_;
        world_.tell([&](Checker& c) { c.on_daemon_effects(world_.now, counts, effects); });
    }
    const bool defers = keeps_log && !routine && noted;
    if (routine) {
        recording_.fold.add(std::move(entry));
    } else if (defers) {
        recording_.defer(std::move(entry));
    }
    send(std::move(effects));
    return defers;
}

void SimulatedJob::recorded(const std::vector<Effects>& effects) {
    recording_.begin.reset();
    std::size_t next = 0;
    for (Recording::Step& step : std::exchange(recording_.pending, {})) {
        next += step.records.size();
        recording_.position += step.records.size();
        ENSURE(next <= effects.size());
        if (!step.records.back().folded) {
            world_.tell(
                [&](Checker& c) { c.on_replayed(world_.now, step.effects, effects[next - 1]); });
            send(std::move(step.effects));
        }
    }
    ENSURE(next == effects.size());
}

bool SimulatedJob::speaks_over(std::uint32_t connection) const {
    const auto found = sessions_.find(world_.network.connection(connection).node);
    return found != sessions_.end() && found->second == connection;
}

void SimulatedJob::open_session(std::uint32_t connection, const rendezvous::Join& join) {
    if (!core_) {
        const auto clock = (world_.now + offset_).time_since_epoch();
        core_.emplace(join.policy,
                      std::chrono::duration_cast<std::chrono::milliseconds>(clock).count());
        if (world_.plan.durability == Durability::journal) {
            log_.begin(*core_);
        } else if (world_.plan.is_replicated()) {
            recording_.begin = core_;
        }
    }
    world_.network.connection(connection).node = join.node;
    const auto [session, is_new] = sessions_.emplace(join.node, connection);
    if (!is_new && session->second != connection) {
        // A newer connection replaces it.
        world_.network.close_by_daemon(world_.now, session->second);
        session->second = connection;
    }
}

void SimulatedJob::send(Effects effects) {
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
        const std::string line = describe(core_->situation(world_.now + offset_));
        if (line != explained_) {
            world_.note([&] { return "= " + line; });
            explained_ = line;
        }
    }
}

Instant SimulatedJob::next_deadline() const {
    const Instant due = core_->next_deadline();
    return due == Instant::max() ? due : due - offset_;
}

}  // namespace regroup::simulation
