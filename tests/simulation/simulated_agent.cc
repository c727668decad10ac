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
    : world_(world),
      workers_(workers),
      host_(host),
      link_{.world = world, .host = host},
      warden_(world, host) {}

void SimulatedAgent::start() {
    ++incarnation_;
    node_ = host_name(host_) + "#" + std::to_string(incarnation_);
    const std::int64_t drift = world_.plan.drift_ppm_max;
    clock_ = DriftingClock(
        static_cast<std::int64_t>(world_.random.below(static_cast<std::uint64_t>(2 * drift + 1))) -
        drift);
    agent::AgentConfig config;
    config.job = "simulated";
    config.node = node_;
    config.policy = world_.job.policy;
    config.offer.name = host_name(host_);
    config.offer.workers = world_.job.workers[host_];
    config.offer.slot = world_.job.slots[host_];
    config.offer.rank_key = world_.job.rank_keys[host_];
    config.offer.address = "10.0.0." + std::to_string(host_ + 1);
    config.join_timeout = world_.job.join_timeout;
    config.stays_until_closed = world_.job.hosted && host_ == 0;
    config.offer.hosts_rendezvous = config.stays_until_closed;
    config.health_limit = std::min(world_.plan.health_check, config.policy.shutdown_timeout);
    config.offer.ends_with_daemon = config.stays_until_closed && world_.plan.housed;
    warden_.begin({config.job, node_, config.policy, config.offer, {}});
    uptime_.restart(world_.now);
    timer_at_ = Instant::max();
    quit_.reset();
    reset_pages(workers_, host_);
    world_.network.power_on(host_);
    world_.note([&] { return node_ + " starts"; });
    world_.tell([&](Checker& c) { c.on_agent_start(world_.now, host_); });
    core_.emplace(std::move(config), clock_.local(world_.now));
    offer_store();
    link_.connect();
}

void SimulatedAgent::end() {
    link_.close();
    core_.reset();
    ++link_.attempt;
    world_.tell([&](Checker& c) { c.on_agent_end(world_.now, host_); });
}

void SimulatedAgent::kill() {
    world_.note([&] { return node_ + " is killed"; });
    warden_.on_killed();  // It reports before the workers are ended.
    orphan_workers(workers_, host_);
    end();
}

void SimulatedAgent::power_off() {
    world_.note([&] { return "the host of " + node_ + " loses power"; });
    world_.network.power_off(host_);
    vanish_workers(workers_, host_);
    link_.connection = kNoConnection;
    end();
}

void SimulatedAgent::quit(int signal) {
    world_.note([&] { return node_ + " gets " + signal_name(signal); });
    step(agent::QuitRequested{signal, text_of(agent::AskedBySignal{signal})});
}

void SimulatedAgent::lose_link() {
    link_.close();
    link_.connect();
    step(agent::LinkDown{});
}

void SimulatedAgent::break_link() {
    if (link_.is_open()) {
        world_.note([&] { return "the connection of " + node_ + " breaks"; });
        lose_link();
    }
}

void SimulatedAgent::double_link() {
    if (link_.is_open() && world_.network.passable(host_)) {
        world_.note([&] { return node_ + " opens a second connection"; });
        const std::uint32_t old = link_.connection;
        step(agent::LinkDown{});
        if (core_) {
            link_.open();
            step(agent::LinkUp{});
        }
        world_.network.close_by_agent(world_.now, old);  // May arrive before or after the new join.
    }
}

void SimulatedAgent::on_connected(std::uint64_t attempt, bool daemon_is_up) {
    if (!core_ || attempt != link_.attempt) {
        return;
    }
    if (!daemon_is_up || !world_.network.passable(host_)) {
        link_.rotate();
        step(agent::LinkDown{});
        if (core_) {
            link_.connect();
        }
        return;
    }
    link_.open();
    step(agent::LinkUp{});
}

void SimulatedAgent::on_arrival(Arrival arrival) {
    if (!core_ || arrival.connection != link_.connection) {
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
    lose_link();
}

// As the real client does: to the named endpoint, otherwise to the next one.
void SimulatedAgent::follow(const rendezvous::Elsewhere& elsewhere) {
    if (elsewhere.endpoint.empty()) {
        link_.rotate();
    } else {
        link_.endpoint = static_cast<std::uint32_t>(std::stoul(elsewhere.endpoint));
    }
    lose_link();
}

void SimulatedAgent::on_due(EventKind kind, std::uint64_t incarnation) {
    if (!core_ || incarnation != incarnation_) {
        return;
    }
    if (kind == EventKind::store_offer) {
        offer_store();
    } else if (kind == EventKind::second_signal) {
        quit(2);
    } else if (world_.now >= timer_at_) {  // An earlier timer that a later one replaced is ignored.
        timer_at_ = Instant::max();
        const Instant local = clock_.local(world_.now);
        if (core_->next_deadline() <= local) {
            ++world_.steps;
            tell_steps();
            apply(core_->advance(local));
        }
        arm();
    }
}

void SimulatedAgent::on_worker_word(const WorkerWord& word) {
    if (core_ && word.incarnation == incarnation_) {
        step(word.event);
    }
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

struct SimulatedAgent::Hands {
    SimulatedAgent& self;

    void operator()(agent::SendToDaemon& effect) const {
        if (self.link_.is_open()) {
            self.world_.note(
                [&] { return self.node_ + " -> daemon  " + test::to_line(effect.message); });
            self.warden_.remember(self.core_->report(), self.link_.endpoint);
            self.world_.network.send(self.world_.now, self.link_.connection,
                                     std::move(effect.message));
        }
    }

    void operator()(agent::SendLeave& effect) const {
        agent::SendToDaemon leave{rendezvous::Leave{text_of(effect.reason)}};
        (*this)(leave);
    }

    void operator()(agent::DropLink& /*effect*/) const {
        self.world_.note([&] { return self.node_ + " gives its silent connection up"; });
        self.link_.rotate();
        self.link_.close();
        self.link_.connect();
    }

    void operator()(agent::BeginRound& effect) const {
        self.world_.note([&] {
            return self.node_ + " begins round " + std::to_string(number(effect.assignment.round));
        });
        self.world_.trace.mix(number(effect.assignment.round) << 8U | self.host_);
        if (effect.assignment.group_rank == 0) {
            self.world_.queue.push(self.world_.now, EventKind::store_offer, self.host_,
                                   self.incarnation_);
        }
    }

    void operator()(agent::LaunchWorkers& effect) const {
        self.world_.note([&] {
            return self.node_ + " launches " + std::to_string(effect.local_ranks.size()) +
                   " worker(s) for round " + std::to_string(number(effect.assignment.round));
        });
        launch_workers(self.workers_, self.host_, self.incarnation_, self.node_, effect);
    }

    void operator()(agent::PrestartWorkers& effect) const {
        self.world_.note([&] { return self.node_ + " starts workers ahead of a round"; });
        prestart_workers(self.workers_, self.host_, self.incarnation_, self.node_, effect);
    }

    void operator()(agent::AssignWorkers& effect) const {
        self.world_.note([&] {
            return self.node_ + " gives " + std::to_string(effect.local_ranks.size()) +
                   " suspended worker(s) round " + std::to_string(number(effect.assignment.round));
        });
        assign_workers(self.workers_, self.host_, effect.assignment, effect.local_ranks);
    }

    void operator()(agent::EndRound& effect) const {
        self.world_.note([&] {
            return self.node_ + " ends round " + std::to_string(number(effect.round)) + " for " +
                   std::to_string(effect.local_ranks.size()) + " worker(s)";
        });
        end_round(self.workers_, self.host_, effect.round, effect.local_ranks);
    }

    void operator()(agent::PauseWorkers& effect) const {
        self.world_.note([&] {
            return self.node_ + " pauses round " + std::to_string(number(effect.round)) +
                   (effect.at_once ? ", to leave at once"
                    : effect.leave ? ", to leave"
                                   : "");
        });
        using worker_link::Leaving;
        pause_workers(self.workers_, self.host_, effect.round,
                      effect.at_once ? Leaving::at_once
                      : effect.leave ? Leaving::at_boundary
                                     : Leaving::no);
    }

    void operator()(agent::SignalWorkers& effect) const {
        self.world_.note([&] {
            return self.node_ + (effect.force() ? " kills " : " stops ") +
                   std::to_string(effect.local_ranks.size()) + " worker(s) in round " +
                   std::to_string(number(effect.round));
        });
        signal_workers(self.workers_, self.host_, effect.local_ranks, effect.force());
    }

    void operator()(agent::SaveStacks& effect) const {
        const bool slow = self.world_.random.chance(0.1);
        say(self.workers_, self.host_, self.incarnation_,
            between(self.world_.random, {}, std::chrono::seconds(slow ? 20 : 1)),
            agent::StacksSaved{effect.round, positions_of(self.workers_, self.host_)});
    }

    void operator()(agent::CheckNode& /*effect*/) const {
        const Duration limit =
            std::min(self.world_.plan.health_check, self.world_.job.policy.shutdown_timeout);
        agent::NodeChecked checked;
        checked.fault =
            self.world_.second_random.chance(self.world_.plan.unhealthy) ? "its GPU is lost" : "";
        self.world_.note([&] { return self.node_ + " checks its health"; });
        say(self.workers_, self.host_, self.incarnation_,
            between(self.world_.second_random, {}, limit), checked);
    }

    void operator()(agent::KillWorker& effect) const {
        self.world_.note([&] {
            return self.node_ + " ends worker " + std::to_string(effect.local_rank) + ": " +
                   describe(effect.reason);
        });
        condemn_worker(self.workers_, self.host_, effect.local_rank);
    }

    void operator()(agent::TellAtWork& effect) const {
        self.world_.note([&] {
            return self.node_ + " waits for workers in user code, " + format_duration(effect.left) +
                   " at most";
        });
    }

    void operator()(agent::TellRecovery& effect) const {
        self.world_.note([&] { return self.node_ + ": " + describe(effect.incident); });
    }

    void operator()(agent::Quit& effect) const {
        self.world_.note([&] {
            return self.node_ + " ends with " + std::to_string(effect.exit_code) + ": " +
                   (effect.verdict ? describe(effect.verdict->reason) : text_of(effect.reason));
        });
        self.world_.trace.mix(static_cast<std::uint64_t>(effect.exit_code));
        orphan_workers(self.workers_, self.host_);  // Only workers that resist SIGKILL are left.
        self.quit_ = std::move(effect);
        self.end();
    }
};

void SimulatedAgent::apply(agent::AgentEffects effects) {
    for (agent::AgentEffect& effect : effects) {
        if (!core_) {
            return;
        }
        world_.tell([&](Checker& c) { c.on_agent_effect(world_.now, host_, *core_, effect); });
        std::visit(Hands{*this}, effect);
    }
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

void AgentLink::connect() {
    ++attempt;
    const Duration pause = between(world.random, kConnectMin, kConnectMax);
    world.queue.push(world.now + pause + world.network.draw_delay(), EventKind::connected, host,
                     attempt);
}

void AgentLink::close() {
    if (is_open()) {
        world.network.close_by_agent(world.now, std::exchange(connection, kNoConnection));
    }
}

void Warden::remember(const rendezvous::NodeReport& report, std::uint32_t endpoint) {
    last_.join.report = report;
    last_.endpoint = endpoint;
    last_.was_sent = true;
}

void Warden::on_killed() {
    if (last_.was_sent && world_.second_random.chance(0.8)) {
        on_the_way_.push_back(last_);
        world_.queue.push(world_.now + world_.network.draw_delay(), EventKind::last_word, host_);
    }
}

void Warden::on_arrival(const std::function<bool(std::uint32_t)>& is_up) {
    if (on_the_way_.empty()) {
        return;
    }
    const LastWord word = std::move(on_the_way_.front());
    on_the_way_.pop_front();
    if (!is_up(word.endpoint) || !world_.network.passable(host_)) {
        return;
    }
    world_.note([&] { return "the warden of " + word.join.node + " -> daemon  it was killed"; });
    const std::uint32_t connection = world_.network.open(host_, word.endpoint);
    world_.network.send(world_.now, connection, word.join);
    world_.network.send(world_.now, connection, rendezvous::Leave{"its agent was killed", true});
    world_.network.close_by_agent(world_.now, connection);
}

}  // namespace regroup::simulation
