// SPDX-License-Identifier: Apache-2.0
//
// Any messages of a daemon, and any behaviour of workers that the shell passes on, to an AgentCore.
// Each message that it sends decodes at the daemon, and it keeps the invariants of its workers.
#include "agent/core/agent_core.h"

#include <csignal>

#include "agent/text/cause_text.h"
#include "rendezvous/protocol/codec.h"
#include "tests/fuzz/values.h"
#include "tests/simulation/checker.h"

namespace regroup::fuzz_agent_core {
namespace {

using namespace regroup::agent;

constexpr int kEventsMax = 300;
constexpr int kTurnsMax = 16;

/// The part of WorkerGroup that decides which events there can be.
class Shell {
   public:
    explicit Shell(fuzz::Input& input, AgentConfig config)
        : input_(input), workers_(config.offer.workers), core_(std::move(config), now_) {
        checkers_.push_back(simulation::make_round_order_checker());
        for (const auto& checker : checkers_) {
            checker->on_agent_start(now_, 0);
        }
    }

    void run() {
        for (int events = 0; events < kEventsMax && !core_.done() && !input_.empty(); ++events) {
            now_ += std::chrono::milliseconds(input_.byte());
            one_event();
        }
    }

   private:
    struct Process {
        bool alive = false;
        RoundId launched_in = RoundId::none;
        bool attached = false;
    };

    void one_event() {
        const std::uint8_t kind = input_.byte();
        const auto local_rank = static_cast<std::uint32_t>(kind % workers_.size());
        Process& worker = workers_[local_rank];
        const fuzz::Near near{core_.report().round, core_.report().step, core_.report().alarm};
        switch (kind / 4 % 20) {
            case 0:
                step(LinkUp{});
                break;
            case 1:
                step(LinkDown{});
                break;
            case 2:
            case 3:
            case 4:
            case 5:
                if (const auto message =
                        fuzz::received(fuzz::make_order(input_, near, core_.report().store_port))) {
                    step(Received{*message});
                }
                break;
            case 6:
                if (worker.alive && kind >= 160) {
                    step(WorkerEnding{worker.launched_in, local_rank, fuzz::make_failure(input_)});
                } else if (worker.alive) {
                    end(local_rank);
                }
                break;
            case 7:
            case 8:
                if (worker.alive) {
                    worker.attached = true;
                    const std::uint8_t flags = input_.byte();
                    const bool elastic = (flags & 6U) != 0;
                    step(WorkerAttached{local_rank, elastic, (flags & 1U) != 0, !elastic});
                }
                break;
            case 9:
            case 10:
                if (worker.attached) {
                    step(WorkerSuspended{local_rank, fuzz::make_round(input_, near.round),
                                         input_.chance(128), make_step()});
                }
                break;
            case 11:
                if (worker.attached) {
                    rendezvous::Resumed resumed = fuzz::make_resumed(input_, near);
                    resumed.step = make_step();
                    resumed.ago = {};
                    step(WorkerResumed{local_rank, resumed});
                }
                break;
            case 12:
                if (worker.attached) {
                    step(WorkerLostPeer{local_rank, fuzz::make_round(input_, near.round),
                                        static_cast<std::uint32_t>(input_.number(UINT32_MAX)),
                                        input_.text(8)});
                }
                break;
            case 13:
                step(StepsCommitted{make_step()});
                break;
            case 14: {
                HangSuspected event{fuzz::make_round(input_, near.round), {}};
                if (input_.chance(192)) {
                    event.hang = rendezvous::Hang{0, input_.text(8), input_.chance(128),
                                                  fuzz::make_duration(input_)};
                }
                step(event);
                break;
            }
            case 15:
                step(WorkersAtWork{fuzz::make_round(input_, near.round),
                                   fuzz::make_duration(input_)});
                break;
            case 16:
                step(StacksSaved{fuzz::make_round(input_, near.round),
                                 {{0, make_step(), 1, false, input_.text(60), false,
                                   fuzz::make_duration(input_)}}});
                break;
            case 17:
                step(StoreOffered{static_cast<std::uint16_t>(2000 + input_.below(4))});
                break;
            case 18:
                if (std::exchange(is_checked_, false)) {
                    step(NodeChecked{input_.chance(64) ? input_.text(8) : ""});
                } else if (input_.chance(128)) {
                    step(QuitRequested{input_.one_of({SIGTERM, SIGINT, SIGHUP}), input_.text(8)});
                } else if (core_.may_serve_rendezvous(input_.chance(128))) {
                    step(RendezvousServed{input_.chance(128)});
                }
                break;
            default:
                pass();
        }
    }

    /// A number from a page, which the worker may have written in any way.
    std::uint64_t make_step() {
        return input_.chance(240) ? fuzz::make_step(input_, core_.report().step)
                                  : input_.number(UINT64_MAX);
    }

    void end(std::uint32_t local_rank) {
        WorkerExited exited{
            workers_[local_rank].launched_in, local_rank, {}, false, {}, make_step()};
        const std::uint8_t how = input_.byte();
        if ((how & 1U) != 0) {
            exited.failure = fuzz::make_failure(input_);
        } else if ((how & 2U) != 0) {
            exited.finished = true;
        } else if (workers_[local_rank].attached) {
            exited.unfinished = fuzz::make_failure(input_);
        }
        workers_[local_rank] = {};
        (void)core_.failure_in(exited);
        step(exited);
    }

    void pass() {
        if (core_.next_deadline() != Instant::max()) {
            now_ = std::max(now_, core_.next_deadline());
        }
        for (int turns = 0; core_.next_deadline() <= now_; ++turns) {
            fuzz::require(turns < kTurnsMax, "a deadline passes");
            apply(core_.advance(now_));
        }
    }

    void step(const AgentEvent& event) {
        note_forbidden(event);
        for (const auto& checker : checkers_) {
            checker->on_agent_event(now_, 0, event);
        }
        apply(core_.step(now_, event));
    }

    /// An assignment over an older connection does not count any more, so a daemon that then fences
    /// the node may name its round again.
    void note_forbidden(const AgentEvent& event) {
        if (std::holds_alternative<LinkUp>(event)) {
            assigned_ = RoundId::none;
        }
        const auto* received = std::get_if<Received>(&event);
        if (received == nullptr) {
            return;
        }
        if (const auto* assign = std::get_if<rendezvous::Assign>(&received->message)) {
            assigned_ = std::max(assigned_, assign->assignment.round);
        } else if (const auto* stop = std::get_if<rendezvous::Stop>(&received->message)) {
            forbidden_ = std::max(forbidden_, stop->round);
        } else if (std::holds_alternative<rendezvous::Fenced>(received->message)) {
            forbidden_ = std::max(forbidden_, assigned_);
        }
    }

    void apply(const AgentEffects& effects) {
        for (const AgentEffect& effect : effects) {
            std::visit([&](const auto& e) { act(e); }, effect);
            for (const auto& checker : checkers_) {
                checker->on_agent_effect(now_, 0, core_, effect);
                if (checker->violation()) {
                    fuzz::fail(*checker->violation());
                }
            }
        }
    }

    static void send(const rendezvous::FromAgent& message) {
        const Result<rendezvous::FromAgent> decoded =
            protocol::decode_from_agent(protocol::encode(message));
        if (!decoded) {
            fuzz::fail("the daemon cannot decode a message: " + decoded.error().detail);
        }
    }
    void act(const SendToDaemon& effect) { send(effect.message); }
    void act(const SendLeave& effect) { send(rendezvous::Leave{text_of(effect.reason)}); }
    void act(const BeginRound& effect) const {
        fuzz::require(effect.assignment.round > forbidden_,
                      "no round begins after the node was fenced from it or told to stop it");
    }
    void act(const LaunchWorkers& effect) { launch(effect.local_ranks, effect.assignment.round); }
    void act(const PrestartWorkers& effect) { launch(effect.local_ranks, RoundId::none); }
    void act(const AssignWorkers& effect) {
        for (const std::uint32_t local_rank : effect.local_ranks) {
            fuzz::require(workers_.at(local_rank).alive, "only a live worker is assigned");
        }
    }
    void act(const SignalWorkers& effect) { require_known(effect.local_ranks); }
    void act(const EndRound& effect) {
        require_known(effect.local_ranks);
        (void)text_of(effect.cause);
    }
    void act(const KillWorker& effect) {
        fuzz::require(workers_.at(effect.local_rank).alive, "only a live worker is killed");
    }
    void act(const CheckNode& /*effect*/) { is_checked_ = true; }
    void act(const Quit& effect) {
        (void)text_of(effect.reason);
        const bool any_alive = std::any_of(workers_.begin(), workers_.end(),
                                           [](const Process& worker) { return worker.alive; });
        fuzz::require(!any_alive || effect.reason.cause == QuitCause::workers_unkillable,
                      "an agent that quits leaves no worker behind");
        fuzz::require(effect.exit_code >= 0 && effect.exit_code <= 255, "an exit code is one");
    }
    template <class Effect>
    void act(const Effect& /*effect*/) {}

    void launch(const std::vector<std::uint32_t>& local_ranks, RoundId round) {
        for (const std::uint32_t local_rank : local_ranks) {
            fuzz::require(!workers_.at(local_rank).alive, "no worker is started twice");
            workers_[local_rank] = {true, round, false};
        }
    }
    void require_known(const std::vector<std::uint32_t>& local_ranks) const {
        for (const std::uint32_t local_rank : local_ranks) {
            fuzz::require(local_rank < workers_.size(), "a local rank is one");
        }
    }

    fuzz::Input& input_;
    Instant now_ = Instant(std::chrono::seconds(1));
    std::vector<Process> workers_;
    bool is_checked_ = false;            // The core awaits the result.
    RoundId assigned_ = RoundId::none;   // The highest one since the connection is up.
    RoundId forbidden_ = RoundId::none;  // The highest one that must not begin any more.
    AgentCore core_;
    simulation::Checkers checkers_;
};

std::vector<std::string> seeds() {
    return fuzz::random_seeds();
}

void test(const std::uint8_t* bytes, std::size_t count) {
    fuzz::Input input(bytes, count);
    AgentConfig config;
    config.job = "job";
    config.node = "a";
    config.policy = fuzz::make_policy(input);
    config.offer.name = "a";
    config.offer.workers = 1 + static_cast<std::uint32_t>(input.below(3));
    config.join_timeout = fuzz::make_duration(input);
    config.stays_until_closed = input.chance(64);
    if (config.offer.workers == 2) {
        config.health_limit = std::chrono::seconds(10);
    }
    if (validate(config.policy)) {
        Shell(input, config).run();
    }
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_agent_core
