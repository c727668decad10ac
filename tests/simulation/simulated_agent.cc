// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/simulated_agent.h"

#include <span>
#include <utility>

#include "agent/text/cause_text.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/text/describe.h"
#include "tests/support/transcript.h"

namespace regroup::simulation {

namespace {

constexpr Duration kConnectMin = std::chrono::milliseconds(50);
constexpr Duration kConnectMax = std::chrono::seconds(1);

}  // namespace

SimulatedAgent::SimulatedAgent(World& world, Workers& workers, std::uint32_t host)
    : world_(world), workers_(workers), host_(host), name_(1, static_cast<char>('a' + host)) {}

void SimulatedAgent::start() {
    ++incarnation_;
    node_ = name_ + "#" + std::to_string(incarnation_);
    workers_count_ = world_.job.workers[host_];
    const std::int64_t drift = world_.plan.drift_ppm_max;
    clock_ = DriftingClock(
        static_cast<std::int64_t>(world_.random.below(static_cast<std::uint64_t>(2 * drift + 1))) -
        drift);
    agent::AgentConfig config;
    config.job = "simulated";
    config.node = node_;
    config.policy = world_.job.policy;
    config.offer.name = name_;
    config.offer.workers = workers_count_;
    config.offer.slot = world_.job.slots[host_];
    config.offer.rank_key = world_.job.rank_keys[host_];
    config.offer.address = "10.0.0." + std::to_string(host_ + 1);
    config.join_timeout = world_.job.join_timeout;
    config.stays_until_closed = world_.job.hosted && host_ == 0;
    config.offer.hosts_rendezvous = config.stays_until_closed;
    config.health_limit = std::min(world_.plan.health_check, config.policy.shutdown_timeout);
    config.offer.ends_with_daemon = config.stays_until_closed && world_.plan.housed;
    last_word_ = {{config.job, node_, config.policy, config.offer, {}}, 0, false};
    started_at_ = world_.now;
    paused_until_ = world_.now;
    timer_at_ = Instant::max();
    quit_.reset();
    reset_pages(workers_, host_);
    world_.network.power_on(host_);
    world_.note([&] { return node_ + " starts"; });
    world_.tell([&](Checker& c) { c.on_agent_start(world_.now, host_); });
    core_.emplace(std::move(config), clock_.local(world_.now));
    offer_store();
    connect();
}

void SimulatedAgent::end() {
    if (connection_ != kNoConnection) {
        world_.network.close_by_agent(world_.now, connection_);
        connection_ = kNoConnection;
    }
    core_.reset();
    ++attempt_;
    world_.tell([&](Checker& c) { c.on_agent_end(world_.now, host_); });
}

void SimulatedAgent::kill() {
    world_.note([&] { return node_ + " is killed"; });
    // The warden reports before the workers are ended. A warden that is killed as well sends
    // nothing.
    if (last_word_.was_sent && world_.second_random.chance(0.8)) {
        last_words_.push_back(last_word_);
        world_.queue.push(world_.now + world_.network.draw_delay(), EventKind::last_word, host_);
    }
    orphan_workers(workers_, host_);
    end();
}

void SimulatedAgent::power_off() {
    world_.note([&] { return "the host of " + node_ + " loses power"; });
    world_.network.power_off(host_);
    vanish_workers(workers_, host_);
    connection_ = kNoConnection;
    end();
}

void SimulatedAgent::quit(int signal) {
    world_.note([&] { return node_ + " gets " + signal_name(signal); });
    step(agent::QuitRequested{signal, text_of(agent::AskedBySignal{signal})});
}

void SimulatedAgent::break_link() {
    if (connection_ != kNoConnection) {
        world_.note([&] { return "the connection of " + node_ + " breaks"; });
        world_.network.close_by_agent(world_.now, connection_);
        connection_ = kNoConnection;
        connect();
        step(agent::LinkDown{});
    }
}

void SimulatedAgent::double_link() {
    if (connection_ != kNoConnection && world_.network.passable(host_)) {
        world_.note([&] { return node_ + " opens a second connection"; });
        const std::uint32_t old = connection_;
        step(agent::LinkDown{});
        if (core_) {
            connection_ = world_.network.open(host_, endpoint_);
            step(agent::LinkUp{});
        }
        world_.network.close_by_agent(world_.now, old);  // May arrive before or after the new join.
    }
}

void SimulatedAgent::connect() {
    ++attempt_;
    const Duration pause = between(world_.random, kConnectMin, kConnectMax);
    world_.queue.push(world_.now + pause + world_.network.draw_delay(), EventKind::connected, host_,
                      attempt_);
}

void SimulatedAgent::on_connected(std::uint64_t attempt, bool daemon_is_up) {
    if (!core_ || attempt != attempt_) {
        return;
    }
    if (!daemon_is_up || !world_.network.passable(host_)) {
        rotate();
        step(agent::LinkDown{});
        if (core_) {
            connect();
        }
        return;
    }
    connection_ = world_.network.open(host_, endpoint_);
    step(agent::LinkUp{});
}

void SimulatedAgent::on_arrival(Arrival arrival) {
    if (!core_ || arrival.connection != connection_) {
        return;
    }
    if (auto* message = std::get_if<rendezvous::FromDaemon>(&arrival.message)) {
        world_.trace.mix(message->index());
        world_.note([&] { return "daemon -> " + node_ + "  " + test::to_line(*message); });
        if (const auto* elsewhere = std::get_if<rendezvous::Elsewhere>(message)) {
            follow(*elsewhere);
            return;
        }
        step(agent::Received{std::move(*message)});
        return;
    }
    world_.note([&] { return node_ + " sees its connection end"; });
    world_.network.close_by_agent(world_.now, connection_);
    connection_ = kNoConnection;
    connect();
    step(agent::LinkDown{});
}

// As the real client does: to the named endpoint, otherwise to the next one.
void SimulatedAgent::follow(const rendezvous::Elsewhere& elsewhere) {
    world_.network.close_by_agent(world_.now, connection_);
    connection_ = kNoConnection;
    if (elsewhere.endpoint.empty()) {
        rotate();
    } else {
        endpoint_ = static_cast<std::uint32_t>(std::stoul(elsewhere.endpoint));
    }
    connect();
    step(agent::LinkDown{});
}

void SimulatedAgent::on_timer(std::uint64_t incarnation) {
    // A timer that an earlier one replaced still fires, and is ignored.
    if (!core_ || incarnation != incarnation_ || world_.now < timer_at_) {
        return;
    }
    timer_at_ = Instant::max();
    const Instant local = clock_.local(world_.now);
    if (core_->next_deadline() <= local) {
        ++world_.steps;
        tell_steps();
        apply(core_->advance(local));
    }
    arm();
}

void SimulatedAgent::on_worker_word(const WorkerWord& word) {
    if (core_ && word.incarnation == incarnation_) {
        step(word.event);
    }
}

void SimulatedAgent::on_store_offer(std::uint64_t incarnation) {
    if (core_ && incarnation == incarnation_) {
        offer_store();
    }
}

void SimulatedAgent::on_second_signal(std::uint64_t incarnation) {
    if (core_ && incarnation == incarnation_) {
        quit(2);
    }
}

void SimulatedAgent::on_last_word(bool daemon_is_up) {
    const LastWord word = std::move(last_words_.front());
    last_words_.pop_front();
    if (!daemon_is_up || !world_.network.passable(host_)) {
        return;
    }
    world_.note([&] { return "the warden of " + word.join.node + " -> daemon  it was killed"; });
    const std::uint32_t connection = world_.network.open(host_, word.endpoint);
    world_.network.send(world_.now, connection, word.join);
    world_.network.send(world_.now, connection, rendezvous::Leave{"its agent was killed", true});
    world_.network.close_by_agent(world_.now, connection);
}

void SimulatedAgent::offer_store() {
    world_.next_port = static_cast<std::uint16_t>(world_.next_port % 65535 + 1);
    step(agent::StoreOffered{world_.next_port});
}

void SimulatedAgent::step(const agent::AgentEvent& event) {
    world_.tell([&](Checker& c) { c.on_agent_event(world_.now, host_, event); });
    ++world_.steps;
    tell_steps();
    apply(core_->step(clock_.local(world_.now), event));
    arm();
}

void SimulatedAgent::tell_steps() {
    const std::uint64_t highest = highest_step(workers_, host_);
    if (highest != core_->report().held_step) {
        apply(core_->step(clock_.local(world_.now), agent::StepsCommitted{highest}));
    }
}

void SimulatedAgent::apply(agent::AgentEffects effects) {
    for (agent::AgentEffect& effect : effects) {
        if (!core_) {
            return;
        }
        world_.tell([&](Checker& c) { c.on_agent_effect(world_.now, host_, *core_, effect); });
        std::visit([&](auto& e) { act(e); }, effect);
    }
}

void SimulatedAgent::act(agent::SendToDaemon& effect) {
    if (connection_ != kNoConnection) {
        world_.note([&] { return node_ + " -> daemon  " + test::to_line(effect.message); });
        last_word_.join.report = core_->report();
        last_word_.endpoint = endpoint_;
        last_word_.was_sent = true;
        world_.network.send(world_.now, connection_, std::move(effect.message));
    }
}

void SimulatedAgent::act(agent::SendLeave& effect) {
    agent::SendToDaemon leave{rendezvous::Leave{text_of(effect.reason)}};
    act(leave);
}

void SimulatedAgent::act(agent::DropLink& /*effect*/) {
    world_.note([&] { return node_ + " gives its silent connection up"; });
    rotate();
    if (connection_ != kNoConnection) {
        world_.network.close_by_agent(world_.now, connection_);
        connection_ = kNoConnection;
    }
    connect();
}

void SimulatedAgent::act(agent::BeginRound& effect) {
    world_.note(
        [&] { return node_ + " begins round " + std::to_string(number(effect.assignment.round)); });
    world_.trace.mix(number(effect.assignment.round) << 8U | host_);
    if (effect.assignment.group_rank == 0) {
        world_.queue.push(world_.now, EventKind::store_offer, host_, incarnation_);
    }
}

void SimulatedAgent::act(agent::LaunchWorkers& effect) {
    world_.note([&] {
        return node_ + " launches " + std::to_string(effect.local_ranks.size()) +
               " worker(s) for round " + std::to_string(number(effect.assignment.round));
    });
    launch_workers(workers_, host_, incarnation_, node_, effect);
}

void SimulatedAgent::act(agent::PrestartWorkers& effect) {
    world_.note([&] { return node_ + " starts workers ahead of a round"; });
    prestart_workers(workers_, host_, incarnation_, node_, effect);
}

void SimulatedAgent::act(agent::AssignWorkers& effect) {
    world_.note([&] {
        return node_ + " gives " + std::to_string(effect.local_ranks.size()) +
               " suspended worker(s) round " + std::to_string(number(effect.assignment.round));
    });
    assign_workers(workers_, host_, effect.assignment, effect.local_ranks);
}

void SimulatedAgent::act(agent::EndRound& effect) {
    world_.note([&] {
        return node_ + " ends round " + std::to_string(number(effect.round)) + " for " +
               std::to_string(effect.local_ranks.size()) + " worker(s)";
    });
    end_round(workers_, host_, effect.round, effect.local_ranks);
}

void SimulatedAgent::act(agent::PauseWorkers& effect) {
    world_.note([&] {
        return node_ + " pauses round " + std::to_string(number(effect.round)) +
               (effect.at_once ? ", to leave at once"
                : effect.leave ? ", to leave"
                               : "");
    });
    using worker_link::Leaving;
    pause_workers(workers_, host_, effect.round,
                   effect.at_once ? Leaving::at_once
                   : effect.leave ? Leaving::at_boundary
                                  : Leaving::no);
}

void SimulatedAgent::act(agent::SignalWorkers& effect) {
    world_.note([&] {
        return node_ + (effect.force() ? " kills " : " stops ") +
               std::to_string(effect.local_ranks.size()) + " worker(s) in round " +
               std::to_string(number(effect.round));
    });
    signal_workers(workers_, host_, effect.local_ranks, effect.force());
}

void SimulatedAgent::act(agent::SaveStacks& effect) {
    const bool slow = world_.random.chance(0.1);
    say(workers_, host_, incarnation_,
                 between(world_.random, {}, std::chrono::seconds(slow ? 20 : 1)),
                 agent::StacksSaved{effect.round, positions_of(workers_, host_)});
}

void SimulatedAgent::act(agent::CheckNode& /*effect*/) {
    const Duration limit = std::min(world_.plan.health_check, world_.job.policy.shutdown_timeout);
    agent::NodeChecked checked;
    checked.fault = world_.second_random.chance(world_.plan.unhealthy) ? "its GPU is lost" : "";
    world_.note([&] { return node_ + " checks its health"; });
    say(workers_, host_, incarnation_, between(world_.second_random, {}, limit), checked);
}

void SimulatedAgent::act(agent::KillWorker& effect) {
    world_.note([&] {
        return node_ + " ends worker " + std::to_string(effect.local_rank) + ": " +
               describe(effect.reason);
    });
    condemn_worker(workers_, host_, effect.local_rank);
}

void SimulatedAgent::act(agent::TellAtWork& effect) {
    world_.note([&] {
        return node_ + " waits for workers in user code, " + format_duration(effect.left) +
               " at most";
    });
}

void SimulatedAgent::act(agent::TellRecovery& effect) {
    world_.note([&] { return node_ + ": " + describe(effect.incident); });
}

void SimulatedAgent::act(agent::Quit& effect) {
    world_.note([&] {
        return node_ + " ends with " + std::to_string(effect.exit_code) + ": " +
               (effect.verdict ? describe(effect.verdict->reason) : text_of(effect.reason));
    });
    world_.trace.mix(static_cast<std::uint64_t>(effect.exit_code));
    orphan_workers(workers_, host_);  // Only workers that resist SIGKILL are left.
    quit_ = std::move(effect);
    end();
}

void SimulatedAgent::arm() {
    if (!core_) {
        return;
    }
    // Never at once: because of rounding, a timer could fire again and again at one instant.
    const Instant at =
        std::max(clock_.world(core_->next_deadline()), world_.now + std::chrono::microseconds(1));
    if (at < timer_at_) {
        timer_at_ = at;
        world_.queue.push(timer_at_, EventKind::agent_timer, host_, incarnation_);
    }
}

Instant SimulatedAgent::awake_since() const noexcept {
    return core_ && paused_until_ <= world_.now ? std::max(started_at_, paused_until_)
                                                : Instant::max();
}

}  // namespace regroup::simulation
