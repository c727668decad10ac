// SPDX-License-Identifier: Apache-2.0
#include "agent/agent.h"

#include <deque>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "agent/health/health_guard.h"
#include "agent/output/log_reader.h"
#include "agent/text/cause_text.h"
#include "agent/text/narrator.h"
#include "rendezvous/text/describe.h"

namespace regroup::agent {

namespace {

namespace asio = boost::asio;
using rendezvous::FromDaemon;

// Time for a lost daemon to be restarted at its old place.
constexpr Duration kHostGrace = std::chrono::seconds(5);
// A standby with a broken GPU costs the round that takes it a failure. A check of a driver that is
// in use takes a tenth of a second of one CPU.
constexpr Duration kRecheckInterval = std::chrono::minutes(5);

AgentOptions with_checks(AgentOptions options) {
    if (needs_process(options.health)) {
        options.core.health_limit = health::time_limit(
            options.health, HealthGuard::limit_after_failure(options.core.policy));
        options.core.first_check_limit = health::time_limit(options.health, HealthGuard::kLimit);
        options.core.recheck_interval = kRecheckInterval;
    }
    GpuReleaseOptions& gpus = options.group.gpus;
    gpus.wanted = gpus.limit > Duration::zero() && may_use_gpus(options.health);
    gpus.places = options.health.places;
    return options;
}

/// Feeds the core with one event after the other, and calls it at its deadlines. Events that
/// effects cause wait in a queue.
class CoreLoop {
   public:
    struct Handlers {
        std::function<void(const AgentEffect& effect)> act;
        std::function<std::uint64_t()> highest_step;
        std::function<void()> on_rest;  ///< No event is left.
    };

    CoreLoop(asio::io_context& io, const Clock& clock, AgentConfig config, Handlers handlers)
        : clock_(clock),
          core_(std::move(config), clock.now()),
          handlers_(std::move(handlers)),
          timer_(io) {}

    [[nodiscard]] const AgentCore& core() const noexcept { return core_; }

    void feed(AgentEvent event) {
        events_.push_back(std::move(event));
        if (!busy_) {
            run({});
        }
    }

   private:
    void run(const AgentEffects& effects) {
        busy_ = true;
        apply(effects);
        while (!events_.empty()) {
            const AgentEvent next = std::move(events_.front());
            events_.pop_front();
            note_steps();
            apply(core_.step(clock_.now(), next));
        }
        busy_ = false;
        handlers_.on_rest();
        arm();
    }

    // Call before any event that may lead to a report. The event has no effects of its own.
    void note_steps() {
        if (const std::uint64_t step = handlers_.highest_step(); step != core_.report().held_step) {
            apply(core_.step(clock_.now(), StepsCommitted{step}));
        }
    }

    void apply(const AgentEffects& effects) {
        for (const AgentEffect& effect : effects) {
            handlers_.act(effect);
        }
    }

    void arm() {
        const Instant next = core_.next_deadline();
        if (next == Instant::max()) {
            timer_.cancel();
            return;
        }
        timer_.expires_at(next);
        timer_.async_wait([this](boost::system::error_code error) {
            if (!error) {
                note_steps();
                run(core_.advance(clock_.now()));
            }
        });
    }

    const Clock& clock_;
    AgentCore core_;
    Handlers handlers_;
    std::deque<AgentEvent> events_;
    bool busy_ = false;
    asio::steady_timer timer_;
};

/// The facts that this node has seen of its job.
struct Experience {
    bool hears_daemon = false;  ///< On the present connection.
    Instant daemon_lost_at = Instant::min();
    bool was_standby = false;
    RoundId first_round = RoundId::none;  ///< None: no round has begun here.
    Instant first_began{};
    rendezvous::Goodput recoveries{};

    [[nodiscard]] bool has_run() const noexcept { return first_round != RoundId::none; }
    void round_begins(RoundId round, Instant now) {
        if (!has_run()) {
            first_round = round;
            first_began = now;
        }
    }
    // A new node also hears of the recovery that began before it came.
    void add(const rendezvous::Incident& incident) {
        if (has_run() && incident.round >= first_round) {
            recoveries.add(incident);
        }
    }
};

/// Calls a function each second.
class EachSecond {
   public:
    EachSecond(asio::io_context& io, std::function<void()> function)
        : timer_(io), function_(std::move(function)) {}
    void start() {
        timer_.expires_after(std::chrono::seconds(1));
        timer_.async_wait([this](boost::system::error_code error) {
            if (!error) {
                function_();
                start();
            }
        });
    }
    void stop() { timer_.cancel(); }

   private:
    asio::steady_timer timer_;
    std::function<void()> function_;
};

/// The address at which other nodes reach this one. `used`: that of the connection to the daemon.
std::string own_address(const rendezvous::Offer& offer, const std::string& used,
                        const Assignment& assignment) {
    const bool is_loopback = used.empty() || used.starts_with("127.") || used == "::1";
    if (offer.address_is_explicit || !is_loopback) {
        return offer.address_is_explicit ? offer.address : used;
    }
    // This node has the daemon: other nodes see another address of it.
    if (assignment.group_rank == 0 && !assignment.master_addr.empty()) {
        return assignment.master_addr;
    }
    return offer.other_addresses.empty() ? used : offer.other_addresses.front();
}

/// Workers get their channels for snapshots from `snapshots`.
WorkerGroupOptions group_options(const AgentOptions& options, SnapshotKeeper& snapshots,
                                 const RoundStore& store) {
    WorkerGroupOptions group = options.group;
    group.open_snapshots = [&snapshots] { return snapshots.open(); };
    if (options.announces) {
        group.has_store_clients = [&store] { return store.has_clients(); };
    }
    return group;
}

rendezvous::LogPart log_part(const rendezvous::ReadLog& asked, const Assignment& assignment,
                             const rendezvous::Offer& offer, const OutputRelay& output) {
    const std::uint32_t rank = asked.wish.rank;
    const std::uint32_t first = assignment.first_rank;
    if (assignment.round == RoundId::none || rank < first || rank - first >= offer.workers) {
        return {.ticket = asked.ticket,
                .trouble = "rank " + std::to_string(rank) + " is not here now"};
    }
    const bool is_stderr = asked.wish.stream == rendezvous::LogStream::err;
    return read_log(asked, offer.name, output.file(rank - first, is_stderr));
}

}  // namespace

struct Agent::Impl {
    Impl(asio::io_context& io, const Clock& clock_in, OutputRelay& output_in,
         AgentOptions options_in)
        : clock(clock_in),
          output(output_in),
          options(with_checks(std::move(options_in))),
          loop(io, clock, options.core,
               {.act =
                    [this](const AgentEffect& effect) {
                        std::visit([&](const auto& e) { act(e); }, effect);
                    },
                .highest_step = [this] { return workers.highest_step(); },
                .on_rest =
                    [this] {
                        if (core.draining()) {
                            workers.announce_drain();
                            snapshots.leave(Duration::max());
                        }
                        if (core.report().state == rendezvous::NodeState::stopping) {
                            watch.round_stops();
                        } else if (core.report().state != rendezvous::NodeState::running) {
                            watch.round_ended();
                            narrator.waits(clock.now());
                        }
                    }}),
          core(loop.core()),
          narrator(output_in, options.core, options.announces, clock.now()),
          launcher(io),
          snapshots(io, options.snapshots, options.store.mode, options.core.offer.name,
                    output.sayer()),
          workers(io, clock, launcher, output, options.core,
                  group_options(options, snapshots, store),
                  [this](const AgentEvent& event) {
                      if (const auto* exited = std::get_if<WorkerExited>(&event)) {
                          note(*exited);
                      }
                      loop.feed(event);
                  }),
          watch(io, clock, launcher, options.core, options.watch, watch_handlers()),
          store(io, options.store, output.sayer()),
          health(io, launcher, options.health, options.core.policy, options.core.offer,
                 output.sayer()),
          link(
              io, options.core, options.daemon, [this] { return workers.live(); },
              [this] { return snapshots.facts(); }, [this] { return watch.work_window(); },
              link_handlers()),
          each_second(io, [this] { narrator.progress(clock.now(), view(), watch.looks()); }) {}

    [[nodiscard]] AgentView view() const {
        return {core.report(),  core.assignment(), core.parting(),    core.give_up_at(),
                core.leaving(), core.draining(),   core.has_workers()};
    }

    void note(const WorkerExited& exited) {
        if (const auto failure = core.failure_in(exited)) {
            narrator.failed(view(), *failure, core.is_suspended(exited.local_rank));
        }
        // Where no check may find a fault, the core asks for none. A full disk may explain the
        // failure.
        if (exited.failure && !health.may_refuse()) {
            health.check_after_failure([](const std::string& /*fault*/) {});
        }
    }

    // ---- Effects.

    void act(const SendToDaemon& effect) { link.send(effect.message, core.report()); }

    void act(const SendLeave& effect) {
        link.send(rendezvous::Leave{text_of(effect.reason)}, core.report());
    }

    void act(const DropLink& /*effect*/) {
        narrator.silent(link.peer());
        link.drop();
    }

    void act(const BeginRound& effect) {
        seen.round_begins(effect.assignment.round, clock.now());
        narrator.round_begins(effect.assignment);
        watch.round_began(effect.assignment);
        store.begin(effect.assignment);
        snapshots.begin_round(
            effect.assignment,
            own_address(options.core.offer, link.local_address(), effect.assignment));
        workers.use_relay(store.relay());
        if (const Result<void> next = offer_store(); !next) {
            output.say("cannot offer a store for the next round: " + next.error().detail);
        }
    }

    void act(const LaunchWorkers& effect) { workers.launch(effect, link.local_address()); }

    void act(const PrestartWorkers& effect) {
        workers.prestart(effect, link.local_address());
        narrator.started_ahead(effect);
    }

    void act(const AssignWorkers& effect) { workers.assign(effect.assignment, effect.local_ranks); }

    void act(const EndRound& effect) { workers.end_round(effect); }

    void act(const PauseWorkers& effect) {
        workers.pause(effect);
        narrator.pauses(view(), effect);
    }

    void act(const SignalWorkers& effect) {
        workers.end_by(effect.signal, effect.local_ranks);
        narrator.killed_late(effect);
    }

    void act(const SaveStacks& effect) { watch.save_stacks(effect); }

    void act(const CheckNode& effect) {
        if (!effect.waits) {
            health.check_after_failure(
                [this](const std::string& fault) { loop.feed(NodeChecked{fault}); });
            return;
        }
        health.check_while_waiting([this](const std::string& fault) {
            if (!fault.empty()) {
                loop.feed(NodeChecked{fault});
            }
        });
    }

    void act(const TellAtWork& effect) { narrator.waits_for_work(effect); }

    void act(const KillWorker& effect) {
        narrator.hangs(view(), effect);
        workers.kill(effect.local_rank, describe(effect.reason), effect.by_silence);
    }

    void act(const TellRecovery& effect) {
        seen.add(effect.incident);
        output.say_of_job(describe(effect.incident), "", "");
        watch.tell(effect);
    }

    void act(const Quit& effect) {
        each_second.stop();
        health.cancel();
        workers.kill_leftovers();
        narrator.quits(effect.verdict);
        output.close_all();
        const auto left = std::make_shared<int>(2);
        const auto one_is_done = [this, effect, left] {
            if (--*left == 0 && on_done) {
                std::exchange(on_done, nullptr)(effect);
            }
        };
        snapshots.finish(options.core.policy.shutdown_timeout, one_is_done);
        link.stop(one_is_done);
    }

    NodeWatch::Handlers watch_handlers() {
        return {
            .workers = [this] { return workers.live(); },
            .output = [this] { return output.bytes(options.core.offer.workers); },
            .finished = [this] { return core.report().finished; },
            .on_hang = [this](const HangSuspected& event) { loop.feed(event); },
            .on_work = [this](const WorkersAtWork& event) { loop.feed(event); },
            .on_stacks = [this](const StacksSaved& event) { loop.feed(event); },
            .say = output.sayer(),
            .on_event = options.group.on_event,
            .ask_for_records =
                [this](std::uint32_t local_rank, const std::string& prefix,
                       const RecordSaver::Answer& answer) {
                    workers.save_records(local_rank, prefix,
                                         [answer](const worker_link::RecordsSaved& saved) {
                                             answer(saved.files, saved.complaint);
                                         });
                },
        };
    }

    Result<void> offer_store() {
        const Result<std::uint16_t> port = store.offer();
        if (!port) {
            return port.error();
        }
        loop.feed(StoreOffered{*port});
        return {};
    }

    // ---- The daemon.

    DaemonLink::Handlers link_handlers() {
        DaemonLink::Handlers handlers;
        handlers.on_up = [this] {
            seen.hears_daemon = false;
            narrator.connected();
            loop.feed(LinkUp{});
            health.connected(link.local_address());
        };
        handlers.on_down = [this] {
            const bool was_heard = seen.hears_daemon;
            if (was_heard) {
                seen.daemon_lost_at = clock.now();
            }
            narrator.disconnected(view(), link.peer(), was_heard);
            seen.hears_daemon = was_heard && core.leaving();
            loop.feed(LinkDown{});
        };
        handlers.on_message = [this](const FromDaemon& message) {
            hear(message);
            loop.feed(Received{message});
        };
        handlers.on_trouble = [this](const std::string& reason, bool answered) {
            if (answered || !begin_hosting()) {
                narrator.trouble(clock.now(), view(), reason, answered);
            }
        };
        return handlers;
    }

    void hear(const FromDaemon& message) {
        const auto* refused = std::get_if<rendezvous::Refused>(&message);
        if (refused != nullptr && core.waits_out(*refused)) {
            const bool is_full = refused->code == Errc::overloaded;
            narrator.trouble(
                clock.now(), view(),
                link.peer() +
                    (is_full ? " has no room for this node now: " : " refuses this node: ") +
                    describe(refused->reason),
                true);
        } else {
            seen.hears_daemon = true;
            narrator.received(clock.now(), view(), message, link.peer());
        }
        if (const auto* assign = std::get_if<rendezvous::Assign>(&message)) {
            health.heard_time(assign->now_ms);
        } else if (const auto* waiting = std::get_if<rendezvous::Waiting>(&message)) {
            health.heard_time(waiting->now_ms);
            seen.was_standby = seen.was_standby || waiting->standby;
        } else if (const auto* asked = std::get_if<rendezvous::ReadLog>(&message)) {
            link.send(log_part(*asked, core.assignment(), options.core.offer, output),
                      core.report());
        }
    }

    // True if this process has started a daemon.
    bool begin_hosting() {
        if (!options.host_rendezvous || !core.may_serve_rendezvous(options.daemon_remembers) ||
            clock.now() < after(seen.daemon_lost_at, kHostGrace)) {
            return false;
        }
        std::optional<AgentConfig> config = options.host_rendezvous();
        if (!config) {
            return false;
        }
        options.core = std::move(*config);
        loop.feed(RendezvousServed{options.core.offer.ends_with_daemon});
        return true;
    }

    const Clock& clock;
    OutputRelay& output;
    AgentOptions options;
    CoreLoop loop;
    const AgentCore& core;
    Narrator narrator;
    LinuxLauncher launcher;
    SnapshotKeeper snapshots;
    WorkerGroup workers;
    NodeWatch watch;
    RoundStore store;
    HealthGuard health;
    DaemonLink link;
    EachSecond each_second;
    Experience seen;
    std::function<void(const Quit&)> on_done;
};

Agent::Agent(asio::io_context& io, const Clock& clock, OutputRelay& output, AgentOptions options)
    : impl_(std::make_unique<Impl>(io, clock, output, std::move(options))) {}

Agent::~Agent() = default;

Result<void> Agent::start(std::function<void(const Quit&)> on_done) {
    impl_->on_done = std::move(on_done);
    if (const Result<void> linked = impl_->workers.open(); !linked) {
        impl_->output.say("workers cannot keep their processes over rounds: " +
                          linked.error().detail);
    }
    if (Result<void> offered = impl_->offer_store(); !offered) {
        return offered;
    }
    impl_->each_second.start();
    impl_->health.check_before_joining([impl = impl_.get()](const std::string& fault) {
        impl->loop.feed(NodeChecked{fault});
        if (!impl->core.done()) {
            impl->link.start();
        }
    });
    return {};
}

void Agent::request_quit(int signal) {
    impl_->snapshots.leave(impl_->options.core.policy.shutdown_timeout);
    impl_->loop.feed(QuitRequested{signal, text_of(AskedBySignal{signal})});
}

void Agent::forward(int signal) {
    impl_->workers.forward(signal);
}

bool Agent::would_only_end_workers(int signal) const {
    return impl_->workers.would_only_end(signal);
}

bool Agent::would_drain() const {
    return impl_->core.would_drain();
}

bool Agent::holds_state() const {
    return impl_->core.holds_state();
}

bool Agent::hears_daemon() const {
    return impl_->seen.hears_daemon;
}

bool Agent::was_standby() const {
    return impl_->seen.was_standby;
}

AgentCore::Part Agent::part() const {
    return impl_->core.part();
}

bool Agent::has_run() const {
    return impl_->seen.has_run();
}

rendezvous::Goodput Agent::goodput() const {
    rendezvous::Goodput goodput = impl_->seen.recoveries;
    if (impl_->seen.has_run()) {
        goodput.lasted = impl_->clock.now() - impl_->seen.first_began;
    }
    return goodput;
}

void Agent::adopt_store_client(asio::ip::tcp::socket socket, std::string_view first_bytes) {
    impl_->store.adopt(std::move(socket), first_bytes);
}

}  // namespace regroup::agent
