// SPDX-License-Identifier: Apache-2.0
#include "agent/agent.h"

#include <csignal>
#include <ctime>
#include <deque>
#include <filesystem>
#include <map>
#include <set>
#include <unistd.h>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/error_file.h"
#include "agent/failure_text.h"
#include "agent/process/child_process.h"
#include "agent/process/linux_launcher.h"
#include "agent/process/oom_evidence.h"
#include "agent/process/orphan_reaper.h"
#include "agent/process/process_tree.h"
#include "agent/template_text.h"
#include "agent/worker_environment.h"
#include "rendezvous/net/listen.h"

namespace regroup::agent {

namespace {

namespace asio = boost::asio;
using rendezvous::FromDaemon;

// How long descendants that left their group may resist SIGKILL before the round is given over.
constexpr Duration kTreeLimit = std::chrono::seconds(5);
constexpr Duration kGoodbyeLimit = std::chrono::seconds(1);
// The first failed attempts to reach the daemon are silent: it is often only a moment late.
constexpr Duration kTroubleFirst = std::chrono::milliseconds(500);
constexpr Duration kTroubleLimit = std::chrono::seconds(30);

std::string wall_clock_time() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    ::localtime_r(&now, &local);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
    return text;
}

std::string round_name(RoundId round) {
    return "round " + std::to_string(number(round));
}

std::string rank_range(std::uint32_t first, std::uint32_t count) {
    return count == 1 ? "rank " + std::to_string(first)
                      : "ranks " + std::to_string(first) + "-" + std::to_string(first + count - 1);
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
          launcher(io_in),
          reaper(io_in, launcher),
          store(io_in),
          timer(io_in),
          waiting_since(clock.now()) {}

    // ---- From events to effects. Effects may cause further events, which wait for their turn.

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
            apply(core.step(clock.now(), next));
        }
        busy = false;
        arm();
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
                run(core.advance(clock.now()));
            }
        });
    }

    // ---- Effects.

    void act(const SendToDaemon& effect) { client->send(effect.message); }

    void act(const DropLink& /*effect*/) {
        output.say("the rendezvous at " + client->peer() + " has been silent for " +
                   format_duration(options.core.policy.heartbeat_timeout) + "; reconnecting");
        client->drop();
    }

    void act(const LaunchWorkers& effect) {
        const Assignment& assignment = effect.assignment;
        report_failure(assignment.reason);
        output.close_all();
        children.clear();
        announce(assignment);
        if (assignment.group_rank == 0) {
            serve_store();
        }
        for (std::uint32_t i = 0; i < options.core.offer.workers; ++i) {
            start_worker(assignment, i);
        }
        output.open_files();
        killed_by_us = false;
        oom_watch.emplace();
    }

    void act(const SignalWorkers& effect) {
        for (auto& [local_rank, child] : children) {
            child.signal_group(effect.signal);
            // A stopped process cannot answer SIGTERM.
            child.signal_group(SIGCONT);
        }
        killed_by_us = killed_by_us || effect.force();
        if (effect.force()) {
            output.say("killing the workers of " + round_name(effect.round) +
                       " that have not ended in time");
        }
    }

    void act(const Quit& effect) {
        timer.cancel();
        kill_leftovers();
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

    // ---- Workers.

    void start_worker(const Assignment& assignment, std::uint32_t local_rank) {
        WorkerIdentity identity = identity_of(assignment, local_rank);
        const WorkerOutput plan =
            plan_output(options.output, identity, options.core.offer.name, options.host);
        make_folder(worker_folder(options.output, identity));
        error_files[local_rank] = identity.error_file = plan.error_file;
        if (!plan.error_file.empty()) {
            ::unlink(plan.error_file.c_str());  // An earlier run's error would be taken for ours.
        }
        Result<OutputRelay::Pipes> pipes = output.open(local_rank, plan.out, plan.err);
        if (!pipes) {
            feed(WorkerExited{assignment.round, local_rank,
                              start_failure(assignment, local_rank, pipes.error())});
            return;
        }
        ProcessSpec spec;
        spec.executable = options.command.executable;
        spec.arguments = options.command.arguments;
        for (std::size_t i = options.command.templates_begin; i < spec.arguments.size(); ++i) {
            spec.arguments[i] =
                substitute(spec.arguments[i], {{"local_rank", std::to_string(local_rank)}});
        }
        if (local_rank < options.command.placements.size()) {
            const RankPlacement& place = options.command.placements[local_rank];
            spec.cpus = place.cpus;
            spec.memory_nodes = place.numa_nodes;
        }
        spec.environment = worker_environment(options.command.environment, identity);
        spec.stdout_fd = pipes->stdout_fd.get();
        spec.stderr_fd = pipes->stderr_fd.get();
        Result<ChildProcess> child = launcher.launch(spec);
        if (!child) {
            feed(WorkerExited{assignment.round, local_rank,
                              start_failure(assignment, local_rank, child.error())});
            return;
        }
        ChildProcess& running = children.emplace(local_rank, std::move(*child)).first->second;
        running.async_wait([this, assignment, local_rank](ExitStatus status) {
            exited(assignment, local_rank, status);
        });
        record(WorkerEvent::State::started, assignment, local_rank, running.pid(), 0);
    }

    [[nodiscard]] WorkerIdentity identity_of(const Assignment& assignment,
                                             std::uint32_t local_rank) const {
        WorkerIdentity identity;
        identity.job = options.core.job;
        identity.assignment = assignment;
        identity.role = options.core.offer.role;
        identity.local_rank = local_rank;
        identity.local_world_size = options.core.offer.workers;
        identity.max_restarts = options.core.policy.restarts_max;
        identity.signals_to_handle = options.command.signals_to_handle;
        identity.virtual_local_rank = options.command.virtual_local_rank;
        if (options.command.sets_threads) {
            identity.threads = static_cast<std::uint32_t>(
                options.command.placements.at(local_rank).thread_count);
        }
        return identity;
    }

    // A folder that cannot be made shows when the first file is opened in it.
    void make_folder(const std::filesystem::path& folder) {
        if (!folder.empty() && folder != made_folder) {
            std::error_code ignored;
            std::filesystem::create_directories(folder, ignored);
            made_folder = folder;
        }
    }

    void record(WorkerEvent::State state, const Assignment& assignment, std::uint32_t local_rank,
                pid_t pid, int exit_code) {
        if (options.on_event) {
            options.on_event(WorkerEvent{state, assignment, local_rank, pid, exit_code});
        }
    }

    void exited(const Assignment& assignment, std::uint32_t local_rank, ExitStatus status) {
        output.drain(local_rank);
        std::optional<WorkerFailure> ended_badly;
        if (!status.success()) {
            ended_badly = failure_of(assignment, local_rank);
            ended_badly->exit_code = status.exit_code;
            ended_badly->signal = status.signal;
            ended_badly->core_dumped = status.core_dumped;
            if (status.signal == SIGKILL && !killed_by_us && oom_watch) {
                ended_badly->evidence = oom_watch->evidence(static_cast<pid_t>(ended_badly->pid));
            }
            note_failure(*ended_badly);
        }
        record_end(assignment, local_rank, status);
        children.erase(local_rank);
        if (children.empty()) {
            // Whatever the workers left behind must be gone before the next round may begin.
            kill_leftovers();
        }
        feed(WorkerExited{assignment.round, local_rank, std::move(ended_badly)});
    }

    void record_end(const Assignment& assignment, std::uint32_t local_rank, ExitStatus status) {
        const bool asked = core.report().state != rendezvous::NodeState::running;
        record(status.success() ? WorkerEvent::State::succeeded
               : asked          ? WorkerEvent::State::terminated
                                : WorkerEvent::State::failed,
               assignment, local_rank, children.at(local_rank).pid(),
               status.signal != 0 ? -status.signal : status.exit_code);
    }

    void kill_leftovers() {
        const TreeKill result =
            kill_descendants(clock, after(clock.now(), kTreeLimit), launcher.children());
        if (!result.survivors.empty()) {
            output.say("cannot end " + describe(result.survivors) + ", left behind by a worker");
        }
    }

    // The first failure is news; what follows from it, or from our stopping, is not.
    void note_failure(const WorkerFailure& ended_badly) {
        if (!failure && core.report().state == rendezvous::NodeState::running) {
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

    WorkerFailure failure_of(const Assignment& assignment, std::uint32_t local_rank) {
        WorkerFailure result;
        result.rank = assignment.first_rank + local_rank;
        result.local_rank = local_rank;
        result.node = options.core.offer.name;
        result.host = options.host;
        result.time = wall_clock_time();
        result.last_output = output.last_output(local_rank);
        result.log_file = output.last_output_file(local_rank);
        read_error_file(error_files[local_rank], result);
        if (const auto child = children.find(local_rank); child != children.end()) {
            result.pid = child->second.pid();
        }
        return result;
    }

    WorkerFailure start_failure(const Assignment& assignment, std::uint32_t local_rank,
                                const Failure& why) {
        WorkerFailure not_started = failure_of(assignment, local_rank);
        not_started.start_error = why.detail;
        note_failure(not_started);
        return not_started;
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
            feed(LinkUp{});
        };
        handlers.on_down = [this] {
            if (!core.leaving()) {
                output.say("lost the connection to the rendezvous at " + client->peer() +
                           "; reconnecting" +
                           (core.has_workers() ? ", the workers go on meanwhile" : ""));
            }
            feed(LinkDown{});
        };
        handlers.on_message = [this](const FromDaemon& message) {
            narrate(message);
            feed(Received{message});
        };
        handlers.on_trouble = [this](const std::string& reason, bool answered) {
            trouble(reason, answered);
        };
        client =
            std::make_unique<rendezvous::ControlClient>(io, options.endpoint, std::move(handlers));
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
    LinuxLauncher launcher;
    OrphanReaper reaper;
    store::StoreServer store;
    std::unique_ptr<asio::ip::tcp::acceptor> offered;
    std::unique_ptr<rendezvous::ControlClient> client;
    std::map<std::uint32_t, ChildProcess> children;
    std::map<std::uint32_t, std::string> error_files;  ///< By local rank; of the last round.
    std::filesystem::path made_folder;
    std::optional<OomWatch> oom_watch;  ///< Since the last round was launched.
    bool killed_by_us = false;
    asio::steady_timer timer;
    std::deque<AgentEvent> events;
    bool busy = false;
    bool has_run = false;
    std::optional<WorkerFailure> failure;  ///< The first of a round, not yet reported in full.
    RoundId failure_round = RoundId::none;
    std::function<void(const Quit&)> on_done;

    Instant waiting_since;
    int trouble_count = 0;
    Instant trouble_since{};
    Instant trouble_at{};
    Duration trouble_interval{};
};

Agent::Agent(asio::io_context& io, const Clock& clock, OutputRelay& output, AgentOptions options)
    : impl_(std::make_unique<Impl>(io, clock, output, std::move(options))) {}

Agent::~Agent() = default;

Result<void> Agent::start(std::function<void(const Quit&)> on_done) {
    impl_->on_done = std::move(on_done);
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
    for (auto& [local_rank, child] : impl_->children) {
        child.signal_group(signal);
    }
}

bool Agent::has_run() const {
    return impl_->has_run;
}

store::StoreServer& Agent::store() {
    return impl_->store;
}

}  // namespace regroup::agent
