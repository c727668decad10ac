// SPDX-License-Identifier: Apache-2.0
#include "agent/agent.h"

#include <deque>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/health_guard.h"
#include "agent/last_words.h"
#include "agent/narrator.h"
#include "agent/output/log_reader.h"
#include "agent/text/cause_text.h"
#include "agent/watch/telemetry.h"
#include "rendezvous/text/describe.h"

namespace regroup::agent {

namespace {

namespace asio = boost::asio;
using rendezvous::FromDaemon;

constexpr Duration kGoodbyeLimit = std::chrono::seconds(1);
// Time for a lost daemon to be restarted at its old place.
constexpr Duration kHostGrace = std::chrono::seconds(5);
// A standby with a broken GPU costs the round that takes it a failure. A check of a driver that is
// in use takes a tenth of a second of one CPU.
constexpr Duration kRecheckInterval = std::chrono::minutes(5);

}  // namespace

struct Agent::Impl {
    Impl(asio::io_context& io_in, const Clock& clock_in, OutputRelay& output_in,
         AgentOptions options_in)
        : io(io_in),
          clock(clock_in),
          output(output_in),
          options(with_checks(std::move(options_in))),
          core(options.core, clock.now()),
          narrator(clock_in, output_in, options, core),
          workers(io_in, clock_in, output_in, options.core, options.group,
                  [this](const AgentEvent& event) {
                      if (const auto* exited = std::get_if<WorkerExited>(&event)) {
                          narrator.exited(*exited);
                          look_for_warnings(*exited);
                      }
                      feed(event);
                      watch.attached();
                  }),
          watch(io_in, clock_in, workers.launcher(), options.core, options.watch, watch_handlers()),
          store(io_in, options.store, say()),
          health(io_in, workers.launcher(), options.health, options.core, say()),
          timer(io_in),
          progress_timer(io_in) {}

    [[nodiscard]] std::function<void(const std::string&)> say() {
        return [this](const std::string& line) { output.say(line); };
    }

    // ---- Events and effects. Events that effects cause wait in a queue.

    void feed(AgentEvent event) {
        events.push_back(std::move(event));
        if (!busy) {
            run({});
        }
    }

    void run(const AgentEffects& effects) {
        busy = true;
        apply(effects);
        while (!events.empty()) {
            const AgentEvent next = std::move(events.front());
            events.pop_front();
            note_steps();
            apply(core.step(clock.now(), next));
        }
        busy = false;
        if (core.draining()) {
            workers.announce_drain();
        }
        if (core.report().state == rendezvous::NodeState::stopping) {
            watch.round_stops();
        } else if (core.report().state != rendezvous::NodeState::running) {
            watch.round_ended();
            narrator.waits();
        }
        arm();
    }

    // Call before any event that may lead to a report. The event has no effects of its own.
    void note_steps() {
        if (const std::uint64_t step = workers.highest_step(); step != core.report().held_step) {
            apply(core.step(clock.now(), StepsCommitted{step}));
        }
    }

    void apply(const AgentEffects& effects) {
        for (const AgentEffect& effect : effects) {
            std::visit([&](const auto& e) { act(e); }, effect);
        }
    }

    void arm() {
        const Instant next = core.next_deadline();
        if (next == Instant::max()) {
            timer.cancel();
            return;
        }
        timer.expires_at(next);
        timer.async_wait([this](boost::system::error_code error) {
            if (!error) {
                note_steps();
                run(core.advance(clock.now()));
            }
        });
    }

    void tell_progress() {
        progress_timer.expires_after(std::chrono::seconds(1));
        progress_timer.async_wait([this](boost::system::error_code error) {
            if (!error) {
                narrator.progress(watch.looks());
                tell_progress();
            }
        });
    }

    // ---- Effects.

    void act(const SendToDaemon& effect) {
        if (const auto report = last_words.before(effect.message, core.report())) {
            send(*report);
        }
        if (const auto* report = std::get_if<rendezvous::Report>(&effect.message)) {
            send(report->report);
        } else {
            client->send(effect.message);
        }
        update_last_word();
    }

    void send(const rendezvous::NodeReport& report) {
        client->send(rendezvous::Report{report, telemetry.news(report.round, workers.live())});
    }

    void act(const SendLeave& effect) {
        act(SendToDaemon{rendezvous::Leave{text_of(effect.reason)}});
    }

    void update_last_word() {
        const auto daemon = rendezvous::Endpoint::parse(client->peer());
        if (!options.on_last_word || !daemon) {
            return;
        }
        options.on_last_word(*daemon, client->daemon_host(),
                             words_if_killed(options.core, core.report()));
    }

    void act(const DropLink& /*effect*/) {
        narrator.silent(client->peer());
        client->drop();
    }

    void act(const BeginRound& effect) {
        if (!std::exchange(has_run, true)) {
            first_round = effect.assignment.round;
            first_began = clock.now();
        }
        narrator.round_begins(effect.assignment);
        watch.round_began(effect.assignment);
        begin_store(effect.assignment);
    }

    void act(const LaunchWorkers& effect) { workers.launch(effect, client->local_address()); }

    void act(const PrestartWorkers& effect) {
        workers.prestart(effect, client->local_address());
        narrator.started_ahead(effect);
    }

    void act(const AssignWorkers& effect) { workers.assign(effect.assignment, effect.local_ranks); }

    void act(const EndRound& effect) { workers.end_round(effect); }

    void act(const PauseWorkers& effect) {
        workers.pause(effect);
        narrator.pauses(effect);
    }

    void act(const SignalWorkers& effect) {
        workers.end_by(effect.signal, effect.local_ranks);
        narrator.killed_late(effect);
    }

    void act(const SaveStacks& effect) { watch.save_stacks(effect); }

    void act(const CheckNode& effect) {
        if (!effect.waits) {
            health.check_after_failure(
                [this](const std::string& fault) { feed(NodeChecked{fault}); });
            return;
        }
        health.check_while_waiting([this](const std::string& fault) {
            if (!fault.empty()) {
                feed(NodeChecked{fault});
            }
        });
    }

    void act(const TellAtWork& effect) { narrator.waits_for_work(effect); }

    void act(const KillWorker& effect) {
        narrator.hangs(effect);
        workers.kill(effect.local_rank, describe(effect.reason), effect.by_silence);
    }

    void act(const TellRecovery& effect) {
        // A new node also hears of the recovery that began before it came.
        if (has_run && effect.incident.round >= first_round) {
            goodput.add(effect.incident);
        }
        output.say_of_job(describe(effect.incident));
        watch.tell(effect);
    }

    void act(const Quit& effect) {
        timer.cancel();
        progress_timer.cancel();
        health.cancel();
        workers.kill_leftovers();
        narrator.quits(effect.verdict);
        output.close_all();
        client->stop(kGoodbyeLimit, [this, effect] {
            if (on_done) {
                std::exchange(on_done, nullptr)(effect);
            }
        });
    }

    NodeWatch::Handlers watch_handlers() {
        return {
            .workers = [this] { return workers.live(); },
            .output = [this] { return written(); },
            .finished = [this] { return core.report().finished; },
            .on_hang = [this](const HangSuspected& event) { feed(event); },
            .on_work = [this](const WorkersAtWork& event) { feed(event); },
            .on_stacks = [this](const StacksSaved& event) { feed(event); },
            .say = say(),
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

    [[nodiscard]] std::optional<std::vector<std::uint64_t>> written() const {
        if (!output.relays()) {
            return std::nullopt;
        }
        std::vector<std::uint64_t> bytes;
        for (std::uint32_t rank = 0; rank < options.core.offer.workers; ++rank) {
            bytes.push_back(output.bytes(rank));
        }
        return bytes;
    }

    // ---- The store.

    Result<void> offer_store() {
        const Result<std::uint16_t> port = store.offer();
        if (!port) {
            return port.error();
        }
        if (std::exchange(offered_port, *port) != *port) {
            feed(StoreOffered{*port});
        }
        return {};
    }

    void begin_store(const rendezvous::Assignment& assignment) {
        store.begin(assignment);
        workers.use_relay(store.relay());
        if (const Result<void> next = offer_store(); !next) {
            output.say("cannot offer a store for the next round: " + next.error().detail);
        }
    }

    // ---- Health.

    static AgentOptions with_checks(AgentOptions options) {
        if (needs_process(options.health)) {
            options.core.health_limit = health::time_limit(
                options.health, HealthGuard::limit_after_failure(options.core.policy));
            options.core.first_check_limit =
                health::time_limit(options.health, HealthGuard::kLimit);
            options.core.recheck_interval = kRecheckInterval;
        }
        return options;
    }

    // Where no check may find a fault, the core asks for none. A full disk may explain the failure.
    void look_for_warnings(const WorkerExited& exited) {
        if (exited.failure && !health.may_refuse()) {
            health.check_after_failure([](const std::string& /*fault*/) {});
        }
    }

    void join_if_healthy() {
        health.check_before_joining([this](const std::string& fault) {
            feed(NodeChecked{fault});
            if (!core.done()) {
                client->start();
            }
        });
    }

    // ---- The daemon.

    void prepare_client() {
        rendezvous::ControlClient::Handlers handlers;
        handlers.on_up = [this] {
            narrator.connected();
            telemetry.forget_sent();
            feed(LinkUp{});
            health.connected(client->local_address());
        };
        handlers.on_down = [this] {
            if (narrator.hears_daemon()) {
                may_host_at = after(clock.now(), kHostGrace);
            }
            narrator.disconnected(client->peer());
            feed(LinkDown{});
        };
        handlers.on_message = [this](const FromDaemon& message) {
            const auto* refused = std::get_if<rendezvous::Refused>(&message);
            if (refused != nullptr && core.waits_out(*refused)) {
                const bool is_full = refused->code == Errc::overloaded;
                narrator.trouble(
                    client->peer() +
                        (is_full ? " has no room for this node now: " : " refuses this node: ") +
                        describe(refused->reason),
                    true);
            } else {
                narrator.received(message, client->peer());
            }
            if (const auto* assign = std::get_if<rendezvous::Assign>(&message)) {
                health.heard_time(assign->now_ms);
            } else if (const auto* waiting = std::get_if<rendezvous::Waiting>(&message)) {
                health.heard_time(waiting->now_ms);
            }
            if (const auto* asked = std::get_if<rendezvous::ReadLog>(&message)) {
                client->send(log_part(*asked));
            }
            feed(Received{message});
        };
        handlers.on_trouble = [this](const std::string& reason, bool answered) {
            if (answered || !begin_hosting()) {
                narrator.trouble(reason, answered);
            }
        };
        client = std::make_unique<rendezvous::ControlClient>(
            io, options.endpoints, std::move(handlers), options.core.policy.heartbeat_timeout,
            security::Identity{options.credentials, {security::Role::node, options.core.job}});
    }

    [[nodiscard]] rendezvous::LogPart log_part(const rendezvous::ReadLog& asked) const {
        const std::uint32_t rank = asked.wish.rank;
        const std::uint32_t first = core.assignment().first_rank;
        if (!has_run || rank < first || rank - first >= options.core.offer.workers) {
            return {.ticket = asked.ticket,
                    .trouble = "rank " + std::to_string(rank) + " is not here now"};
        }
        const bool is_stderr = asked.wish.stream == rendezvous::LogStream::err;
        return read_log(asked, options.core.offer.name, output.file(rank - first, is_stderr));
    }

    // True if this process has started a daemon.
    bool begin_hosting() {
        if (!options.host_rendezvous || !core.may_serve_rendezvous(options.daemon_remembers) ||
            clock.now() < may_host_at) {
            return false;
        }
        std::optional<AgentConfig> config = options.host_rendezvous();
        if (!config) {
            return false;
        }
        options.core = std::move(*config);
        feed(RendezvousServed{options.core.offer.ends_with_daemon});
        return true;
    }

    asio::io_context& io;
    const Clock& clock;
    OutputRelay& output;
    AgentOptions options;
    AgentCore core;
    Narrator narrator;
    WorkerGroup workers;
    NodeWatch watch;
    TelemetrySource telemetry;
    RoundStore store;
    HealthGuard health;
    std::uint16_t offered_port = 0;
    LastWords last_words;
    std::unique_ptr<rendezvous::ControlClient> client;
    asio::steady_timer timer;
    asio::steady_timer progress_timer;
    std::deque<AgentEvent> events;
    bool busy = false;
    bool has_run = false;
    Instant may_host_at = Instant::min();
    RoundId first_round = RoundId::none;
    Instant first_began{};
    rendezvous::Goodput goodput;  ///< Of the recoveries that this node knows of.
    std::function<void(const Quit&)> on_done;
};

Agent::Agent(asio::io_context& io, const Clock& clock, OutputRelay& output, AgentOptions options)
    : impl_(std::make_unique<Impl>(io, clock, output, std::move(options))) {}

Agent::~Agent() = default;

Result<void> Agent::start(std::function<void(const Quit&)> on_done) {
    impl_->on_done = std::move(on_done);
    if (const Result<void> linked = impl_->workers.open_link(); !linked) {
        impl_->output.say("workers cannot keep their processes over rounds: " +
                          linked.error().detail);
    }
    impl_->workers.start_fork_server();
    if (Result<void> offered = impl_->offer_store(); !offered) {
        return offered;
    }
    impl_->prepare_client();
    impl_->tell_progress();
    impl_->join_if_healthy();
    return {};
}

void Agent::request_quit(int signal) {
    impl_->feed(QuitRequested{signal, text_of(AskedBySignal{signal})});
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
    return impl_->narrator.hears_daemon();
}

bool Agent::was_standby() const {
    return impl_->narrator.was_standby();
}

AgentCore::Part Agent::part() const {
    return impl_->core.part();
}

bool Agent::has_run() const {
    return impl_->has_run;
}

rendezvous::Goodput Agent::goodput() const {
    rendezvous::Goodput seen = impl_->goodput;
    seen.lasted = impl_->has_run ? impl_->clock.now() - impl_->first_began : Duration::zero();
    return seen;
}

void Agent::adopt_store_client(asio::ip::tcp::socket socket, std::string_view first_bytes) {
    impl_->store.adopt(std::move(socket), first_bytes);
}

}  // namespace regroup::agent
