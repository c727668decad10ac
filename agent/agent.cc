// SPDX-License-Identifier: Apache-2.0
#include "agent/agent.h"

#include <deque>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/failure_text.h"
#include "agent/watch/node_watch.h"
#include "rendezvous/net/listen.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/framing.h"

namespace regroup::agent {

namespace {

namespace asio = boost::asio;
using rendezvous::FromDaemon;

constexpr Duration kGoodbyeLimit = std::chrono::seconds(1);
// The first failed attempts to reach the daemon are silent: it is often only a moment late.
constexpr Duration kTroubleFirst = std::chrono::milliseconds(500);
constexpr Duration kTroubleLimit = std::chrono::seconds(30);

std::string round_name(RoundId round) {
    return "round " + std::to_string(number(round));
}

std::string counted(std::size_t count, const std::string& what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

// "ended by SIGKILL", without the rank, which says nothing of a worker that has none.
std::string end_of(const WorkerFailure& failure) {
    return failure.signal != 0           ? "ended by " + rendezvous::signal_name(failure.signal)
           : failure.start_error.empty() ? "exited with code " + std::to_string(failure.exit_code)
                                         : "could not start: " + failure.start_error;
}

std::string rank_range(std::uint32_t first, std::uint32_t count) {
    return count == 1 ? "rank " + std::to_string(first)
                      : "ranks " + std::to_string(first) + "-" + std::to_string(first + count - 1);
}

store::StoreServer::Options store_options(const AgentOptions& options) {
    store::StoreServer::Options result;
    result.older_dialect = options.store_dialect;
    return result;
}

WorkerGroupOptions group_options(const AgentOptions& options) {
    WorkerGroupOptions group;
    group.job = options.core.job;
    group.node = options.core.offer.name;
    group.host = options.host;
    group.full_host = options.full_host;
    group.role = options.core.offer.role;
    group.workers = options.core.offer.workers;
    group.max_restarts = options.core.policy.restarts_max;
    group.command = options.command;
    group.output = options.output;
    group.on_event = options.on_event;
    return group;
}

NodeWatchOptions watch_options(const AgentOptions& options) {
    // Tools that read torchrun's folders find there what torchrun puts there, and nothing else.
    const bool keeps_ledger = options.output.layout != OutputLayout::torchrun;
    return {options.core.job, options.hangs, options.output.folder, options.search_path,
            keeps_ledger};
}

}  // namespace

struct Agent::Impl {
    Impl(asio::io_context& io_in, const Clock& clock_in, OutputRelay& output_in,
         AgentOptions options_in)
        : io(io_in),
          clock(clock_in),
          output(output_in),
          options(std::move(options_in)),
          core(options.core, clock.now()),
          workers(io_in, clock_in, output_in, group_options(options),
                  [this](const AgentEvent& event) {
                      const auto* exited = std::get_if<WorkerExited>(&event);
                      if (exited != nullptr && exited->failure) {
                          note_failure(*exited);
                      }
                      feed(event);
                      watch.attached();
                  }),
          watch(io_in, clock_in, workers.launcher(), watch_options(options), watch_handlers()),
          store(io_in, store_options(options)),
          timer(io_in),
          waiting_since(clock.now()) {}

    // ---- From events to effects. Effects may cause further events, which wait for their turn.

    void feed(AgentEvent event) {
        events.push_back(std::move(event));
        if (!busy) {
            run({});
        }
    }

    void run(AgentEffects effects) {
        busy = true;
        apply(effects);
        while (!events.empty()) {
            const AgentEvent next = std::move(events.front());
            events.pop_front();
            note_steps();
            apply(core.step(clock.now(), next));
        }
        busy = false;
        if (core.report().state != rendezvous::NodeState::running) {
            watch.round_ended();
        }
        arm();
    }

    // Ahead of whatever may lead to a report. It has no effects of its own.
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

    // ---- Effects.

    void act(const SendToDaemon& effect) {
        client->send(effect.message);
        update_last_word();
    }

    // As from an agent that comes back and leaves: the daemon need not guess from a connection that
    // broke.
    void update_last_word() {
        const auto daemon = rendezvous::Endpoint::parse(client->peer());
        if (!options.on_last_word || !daemon) {
            return;
        }
        using protocol::encode;
        using protocol::make_frame;
        const AgentConfig& own = options.core;
        const rendezvous::FromAgent join =
            rendezvous::Join{own.job, own.node, own.policy, own.offer, core.report()};
        const rendezvous::FromAgent leave = rendezvous::Leave{"its agent was killed", true};
        options.on_last_word(*daemon, make_frame(encode(join)) + make_frame(encode(leave)));
    }

    void act(const DropLink& /*effect*/) {
        output.say("the rendezvous at " + client->peer() + " has been silent for " +
                   format_duration(options.core.policy.heartbeat_timeout) + "; reconnecting");
        client->drop();
    }

    void act(const BeginRound& effect) {
        report_failure(effect.assignment.reason);
        announce(effect.assignment);
        watch.round_began(effect.assignment, options.core.offer.workers);
        if (effect.assignment.group_rank == 0) {
            serve_store();
        }
    }

    void act(const LaunchWorkers& effect) { workers.launch(effect, client->local_address()); }

    void act(const PrestartWorkers& effect) {
        workers.prestart(effect, client->local_address());
        if (options.announces) {
            output.say(counted(effect.local_ranks.size(), "worker") +
                       " started ahead, to take a place at once");
        }
    }

    void act(const AssignWorkers& effect) { workers.assign(effect.assignment, effect.local_ranks); }

    void act(const EndRound& effect) { workers.end_round(effect); }

    void act(const PauseWorkers& effect) {
        workers.pause(effect);
        const bool trains = core.report().state == rendezvous::NodeState::running;
        output.say((effect.leave ? "leaving " : "changing ") + round_name(effect.round) +
                   (trains ? " at the next step boundary: " : " with its state saved: ") +
                   effect.reason);
    }

    void act(const ReleasePlaces& effect) {
        workers.release(effect.local_ranks);
        if (options.announces) {
            output.say("the next workers start while " +
                       counted(effect.local_ranks.size(), "worker") + " of " +
                       round_name(effect.round) +
                       (effect.local_ranks.size() == 1 ? " is" : " are") + " still ending");
        }
    }

    void act(const SignalWorkers& effect) {
        if (effect.released) {
            workers.end_released(effect.signal, effect.local_ranks);
        } else {
            workers.end_by(effect.signal, effect.local_ranks);
        }
        if (effect.overlaps) {
            look_for_room(effect.round);
        }
        if (effect.force() && !effect.waiting) {
            output.say("killing the workers of " + round_name(effect.round) +
                       (effect.hurried ? " at once" : " that have not ended in time"));
        }
    }

    void look_for_room(RoundId round) {
        const MemoryRoom room = workers.room_for_successors();
        if (room.is_enough()) {
            feed(RoomForSuccessors{round});
        } else if (options.core.overlap_restart) {
            output.say("the new workers wait for the old ones: " + room.text());
        }
    }

    void act(const SaveStacks& effect) { watch.save_stacks(effect); }

    void act(const KillWorker& effect) {
        output.say("killing rank " +
                   std::to_string(core.assignment().first_rank + effect.local_rank) +
                   ", on which the round hangs: " + effect.reason);
        workers.kill(effect.local_rank, effect.reason);
    }

    void act(const TellRecovery& effect) { watch.tell(effect); }

    void act(const Quit& effect) {
        timer.cancel();
        workers.kill_leftovers();
        if (failure && (!effect.verdict || !effect.verdict->failure)) {
            report_failure(describe(*failure));
        }
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
            .output =
                [this] { return output.relays() ? std::optional(output.bytes()) : std::nullopt; },
            .on_hang = [this](const HangSuspected& event) { feed(event); },
            .on_stacks = [this](const StacksSaved& event) { feed(event); },
            .say = [this](const std::string& line) { output.say(line); },
        };
    }

    // ---- Failures.

    // The first failure is news; what follows from it, or from our stopping, is not.
    void note_failure(const WorkerExited& exited) {
        const WorkerFailure& ended_badly = *exited.failure;
        if (core.is_outgoing(exited)) {
            return;
        }
        if (core.is_parked(exited.local_rank) && !core.leaving()) {
            output.say("a worker that waited for a round is gone: local rank " +
                       std::to_string(exited.local_rank) + ", pid " +
                       std::to_string(ended_badly.pid) + ", " + end_of(ended_badly));
        } else if (!failure && (core.report().state == rendezvous::NodeState::running ||
                                (ended_badly.announced && !core.leaving()))) {
            output.say(describe(ended_badly) +
                       (ended_badly.pid != 0 ? ", pid " + std::to_string(ended_badly.pid) : ""));
            failure = ended_badly;
            failure_round = core.report().round;
        }
    }

    // In full once the daemon has settled on `cause`, if that is our failure; what merely followed
    // from another node's is one line. A verdict is told by the launcher.
    void report_failure(const std::string& cause) {
        if (!failure) {
            return;
        }
        if (cause == describe(*failure)) {
            output.say_text("regroup: failure report of " + round_name(failure_round) + ":\n" +
                            failure_text(*failure));
        } else {
            output.say("that " + describe(*failure) + " followed from: " + cause);
        }
        failure.reset();
    }

    // ---- The store. The socket that was offered serves this round; a new one is offered next.

    Result<void> offer_store() {
        if (options.fixed_store_port != 0) {
            feed(StoreOffered{options.fixed_store_port});
            return {};
        }
        Result<asio::ip::tcp::acceptor> socket = net::listen_on(io, "", 0);
        if (!socket) {
            return socket.error();
        }
        offered = std::make_unique<asio::ip::tcp::acceptor>(std::move(*socket));
        feed(StoreOffered{offered->local_endpoint().port()});
        return {};
    }

    void serve_store() {
        store.reset();
        if (options.fixed_store_port != 0 || !offered) {
            return;
        }
        store.serve(std::move(*offered));
        offered.reset();
        if (const Result<void> next = offer_store(); !next) {
            output.say("cannot offer a store for the next round: " + next.error().detail);
        }
    }

    // ---- The daemon, and what people should know.

    void connect() {
        rendezvous::ControlClient::Handlers handlers;
        handlers.on_up = [this] {
            trouble_count = 0;
            heard = false;
            feed(LinkUp{});
        };
        handlers.on_down = [this] {
            // One that was not the daemon's, or not the leading one's, is told as trouble.
            if (!core.leaving() && heard) {
                output.say("lost the connection to the rendezvous at " + client->peer() +
                           "; reconnecting" +
                           (core.has_workers() ? ", the workers go on meanwhile" : ""));
                lost = true;
            }
            feed(LinkDown{});
        };
        handlers.on_message = [this](const FromDaemon& message) {
            heard = true;
            if (std::exchange(lost, false) && !core.leaving()) {
                output.say("the rendezvous is back at " + client->peer());
            }
            narrate(message);
            feed(Received{message});
        };
        handlers.on_trouble = [this](const std::string& reason, bool answered) {
            trouble(reason, answered);
        };
        client = std::make_unique<rendezvous::ControlClient>(
            io, options.endpoints, std::move(handlers), options.core.policy.heartbeat_timeout);
        client->start();
    }

    void trouble(const std::string& reason, bool answered) {
        const Instant now = clock.now();
        if (trouble_count++ == 0) {
            trouble_since = now;
            trouble_interval = kTroubleFirst;
            trouble_at = after(now, trouble_interval);
        }
        if (answered || now >= trouble_at) {
            output.say(reason + "; trying again for " +
                       format_duration(std::max(
                           Duration::zero(), options.core.join_timeout - (now - trouble_since))) +
                       " (--join-timeout)");
            trouble_interval = std::min(trouble_interval * 2, kTroubleLimit);
            trouble_at = after(now, trouble_interval);
        }
    }

    void narrate(const FromDaemon& message) {
        if (const auto* waiting = std::get_if<rendezvous::Waiting>(&message)) {
            std::string names;
            for (const std::string& name : waiting->joined) {
                names += (names.empty() ? "" : ", ") + name;
            }
            const Duration left = options.core.join_timeout - (clock.now() - waiting_since);
            output.say(waiting->spare
                           ? "waiting as a spare: " + waiting->detail
                           : "waiting: " + waiting->detail + " (here: " + names + "; at " +
                                 client->peer() + "; for up to " +
                                 format_duration(std::max(Duration::zero(), left)) + ")");
        } else if (const auto* stop = std::get_if<rendezvous::Stop>(&message)) {
            if (core.report().state == rendezvous::NodeState::running) {
                output.say("stopping " + round_name(stop->round) + ": " + stop->reason);
            }
        } else if (const auto* fenced = std::get_if<rendezvous::Fenced>(&message)) {
            output.say("fenced by the rendezvous: " + fenced->reason + "; joining again");
        }
    }

    void announce(const Assignment& a) {
        has_run = true;
        waiting_since = clock.now();
        if (!options.announces) {
            return;
        }
        output.say(round_name(a.round) + ": " +
                   rank_range(a.first_rank, options.core.offer.workers) + " of " +
                   std::to_string(a.world_size) + " on node " + options.core.offer.name +
                   " (group rank " + std::to_string(a.group_rank) + " of " +
                   std::to_string(a.group_world_size) + "), master " +
                   rendezvous::Endpoint{a.master_addr, a.master_port}.text() + ": " + a.reason);
    }

    asio::io_context& io;
    const Clock& clock;
    OutputRelay& output;
    AgentOptions options;
    AgentCore core;
    WorkerGroup workers;
    NodeWatch watch;
    store::StoreServer store;
    std::unique_ptr<asio::ip::tcp::acceptor> offered;
    std::unique_ptr<rendezvous::ControlClient> client;
    asio::steady_timer timer;
    std::deque<AgentEvent> events;
    bool busy = false;
    bool has_run = false;
    std::optional<WorkerFailure> failure;  ///< The first of a round, not yet reported in full.
    RoundId failure_round = RoundId::none;
    std::function<void(const Quit&)> on_done;

    Instant waiting_since;
    int trouble_count = 0;
    bool heard = false;  ///< On this connection.
    bool lost = false;   ///< It was there, and has not been heard since.
    Instant trouble_since{};
    Instant trouble_at{};
    Duration trouble_interval{};
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
    if (Result<void> offered = impl_->offer_store(); !offered) {
        return offered;
    }
    impl_->connect();
    return {};
}

void Agent::request_quit(int signal) {
    impl_->feed(QuitRequested{signal});
}

void Agent::forward(int signal) {
    impl_->workers.forward(signal);
}

bool Agent::would_drain() const {
    return impl_->core.would_drain();
}

bool Agent::has_run() const {
    return impl_->has_run;
}

store::StoreServer& Agent::store() {
    return impl_->store;
}

}  // namespace regroup::agent
