// SPDX-License-Identifier: Apache-2.0
//
// Any sequence of events that a daemon can receive, honest or not, to a RendezvousCore with a
// journal. Its effects decode at their receivers, and keep the invariants that do not depend on
// honest nodes. The records alone lead to the same decisions and to the same state.
#include <map>

#include "rendezvous/journal/journal.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/text/describe.h"
#include "tests/fuzz/values.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/job_log.h"

namespace regroup::fuzz_rendezvous_core {
namespace {

using namespace regroup::rendezvous;

constexpr int kEventsMax = 300;
/// Decisions at one instant, after which a timer would spin.
constexpr int kTurnsMax = 16;

/// Everything that two equal cores say. How often waiting nodes hear of refused joins depends on
/// earlier ones, which are not kept.
std::string shown(const Effects& effects) {
    std::string text;
    for (const Send& effect : effects) {
        const auto* waiting = std::get_if<Waiting>(&effect.message);
        if (waiting != nullptr && waiting->detail.kind == Situation::Kind::refused) {
            continue;
        }
        text += effect.node + ' ' + protocol::encode(effect.message) + '\n';
    }
    return text;
}

std::string shown(const RendezvousCore& core, Instant now) {
    std::string text = std::string(to_string(core.phase())) + ' ' +
                       std::to_string(number(core.round())) + ' ' + describe(core.situation(now)) +
                       ' ' + std::to_string(core.next_deadline().time_since_epoch().count());
    for (const JobStatus::Node& node : core.status(now).nodes) {
        text += '\n' + node.id + ' ' + std::string(to_string(node.place)) + ' ' +
                std::to_string(node.held_step) + ' ' + std::to_string(node.silent.count());
    }
    return text;
}

/// As JobTable and SimulatedDaemon: routine heartbeats are folded, reports that decide nothing and
/// refused joins are no records of their own.
class Daemon {
   public:
    explicit Daemon(const JobPolicy& policy) : core_(policy), log_core_(policy) {
        checkers_.push_back(simulation::make_wire_checker());
        checkers_.push_back(simulation::make_closed_checker());
        checkers_.push_back(simulation::make_ranks_checker());
    }

    [[nodiscard]] const RendezvousCore& core() const { return core_; }

    Effects step(Instant now, std::optional<Event> event) {
        journal::Entry entry{now, 0, std::move(event), {}};
        const bool routine = entry.event && core_.is_routine(*entry.event);
        const auto before = std::pair(core_.phase(), core_.round());
        Effects effects = journal::apply(core_, entry);
        const bool refused = entry.event && journal::is_refusal(*entry.event, effects);
        if (entry.event && !refused) {
            tell([&](simulation::Checker& c) { c.on_daemon_event(now, *entry.event); });
        }
        tell([&](simulation::Checker& c) { c.on_daemon_effects(now, core_, effects); });
        if (routine) {
            fold_.add(std::move(entry));
        } else if (entry.event && before == std::pair(core_.phase(), core_.round()) &&
                   journal::is_only_noted(*entry.event, effects)) {
            hold(std::move(entry));
        } else if (!refused) {
            entry.assigned = journal::assignments_of(effects);
            hold(std::move(entry));
            const std::string told = shown(effects);
            if (const std::string replayed = shown(record()); told != replayed) {
                fuzz::fail("the records lead to other effects:\n" + told + "replayed:\n" +
                           replayed);
            }
        }
        return effects;
    }

    /// A daemon that has only the records takes over.
    void restart() {
        fold_.clear();
        held_.clear();
        core_ = log_core_;
    }

    void finish(Instant now) {
        for (simulation::Record& record : fold_.take()) {
            held_.push_back(std::move(record.entry));
        }
        (void)record();
        const std::string state = shown(core_, now);
        const std::string replayed = shown(log_core_, now);
        if (state != replayed) {
            fuzz::fail("the records lead to another state:\n" + state + "\nreplayed:\n" + replayed);
        }
    }

   private:
    void hold(journal::Entry entry) {
        for (simulation::Record& record : fold_.take()) {
            held_.push_back(std::move(record.entry));
        }
        held_.push_back(std::move(entry));
    }

    /// Writes and reads all that is held, and returns the effects of the last entry.
    Effects record() {
        Effects effects;
        for (const std::string& record : journal::to_records(std::exchange(held_, {}))) {
            const Result<std::vector<journal::Entry>> entries = journal::decode_record(record);
            if (!entries) {
                fuzz::fail("a record cannot be read: " + entries.error().detail);
            }
            for (const journal::Entry& entry : *entries) {
                effects = journal::apply(log_core_, entry);
            }
        }
        return effects;
    }

    template <class Tell>
    void tell(const Tell& tell) {
        for (const auto& checker : checkers_) {
            tell(*checker);
            if (checker->violation()) {
                fuzz::fail(*checker->violation());
            }
        }
    }

    RendezvousCore core_;
    RendezvousCore log_core_;  // Gets only the records.
    simulation::RoutineFold fold_;
    std::vector<journal::Entry> held_;
    simulation::Checkers checkers_;
};

class Story {
   public:
    Story(fuzz::Input& input, const JobPolicy& policy)
        : input_(input), policy_(policy), daemon_(policy) {}

    void run() {
        for (int events = 0; events < kEventsMax && !input_.empty(); ++events) {
            now_ += std::chrono::microseconds(input_.byte() * 1000);
            one_event();
        }
        daemon_.finish(now_);
    }

   private:
    struct Node {
        NodeReport report{};
        std::optional<FromDaemon> word{};
    };

    void one_event() {
        const std::uint8_t kind = input_.byte();
        const std::string name = fuzz::node_name(kind);
        Node& node = nodes_[name];
        const RoundId round = daemon_.core().round();
        fuzz::Near near{round, step_, 0};
        if (node.word) {
            if (const auto* save = std::get_if<SaveStacks>(&*node.word)) {
                near.alarm = save->alarm;
            }
        }
        switch (kind / 6 % 16) {
            case 0:
            case 1: {
                JobPolicy policy = policy_;
                if (input_.chance(16)) {
                    policy = fuzz::make_policy(input_);
                }
                const Offer offer = fuzz::make_offer(input_, name);
                const NodeReport report = fuzz::make_report(input_, near, node.report);
                hear(name, Join{"job", name, policy, offer, report});
                break;
            }
            case 2:
            case 3:
            case 4:
                hear(name, Report{fuzz::make_report(input_, near, node.report)});
                break;
            case 5:
            case 6:
                hear(name, Report{node.word ? fuzz::obeyed(*node.word, node.report) : node.report});
                break;
            case 7:
                for (auto& [other, its] : nodes_) {
                    hear(other,
                         Report{its.word ? fuzz::obeyed(*its.word, its.report) : its.report});
                }
                break;
            case 8:
                give(NodeDisconnected{name});
                break;
            case 9:
                hear(name, Leave{input_.text(4), input_.chance(64)});
                break;
            case 10:
                hear(name, fuzz::make_resumed(input_, near));
                break;
            case 11:
                if (input_.chance(224)) {
                    Operate wish;
                    wish.action = Operate::Action::drain;
                    wish.node = input_.chance(32) ? "host" : name;
                    wish.reason = input_.text(4);
                    const auto heard = fuzz::received(wish);
                    give(DrainRequested{wish.node, "ops", std::get<Operate>(*heard).reason});
                    if (input_.chance(64)) {
                        give(ReleaseRequested{wish.node, "ops", "repaired"});
                    }
                } else {
                    give(StopRequested{"ops", "regroup stop"});
                }
                break;
            case 12:
                if (input_.chance(64)) {
                    daemon_.restart();
                    give(Restarted{});
                }
                break;
            case 13:
                now_ = after(
                    now_, std::min<Duration>(fuzz::make_duration(input_), std::chrono::hours(24)));
                pass();
                break;
            default:
                if (daemon_.core().next_deadline() != Instant::max()) {
                    now_ = std::max(now_, daemon_.core().next_deadline());
                }
                pass();
        }
    }

    /// The daemon's timer at `now_`.
    void pass() {
        for (int turns = 0; daemon_.core().next_deadline() <= now_; ++turns) {
            fuzz::require(turns < kTurnsMax, "a deadline passes");
            keep(daemon_.step(now_, std::nullopt));
        }
    }

    void hear(const std::string& name, const FromAgent& sent) {
        std::optional<FromAgent> message = fuzz::received(sent);
        if (!message) {
            return;
        }
        if (auto* join = std::get_if<Join>(&*message)) {
            nodes_[name].report = join->report;
            give(NodeJoined{name, join->policy, join->offer, join->report});
        } else if (auto* report = std::get_if<Report>(&*message)) {
            nodes_[name].report = report->report;
            step_ = std::max(step_, std::min(report->report.step, step_ + 4));
            give(NodeReported{name, report->report});
        } else if (auto* leave = std::get_if<Leave>(&*message)) {
            give(NodeLeft{name, leave->reason, leave->killed});
        } else if (auto* resumed = std::get_if<Resumed>(&*message)) {
            give(NodeResumed{name, *resumed});
        }
    }

    void give(Event event) { keep(daemon_.step(now_, std::move(event))); }
    void keep(const Effects& effects) {
        for (const Send& effect : effects) {
            nodes_[effect.node].word = effect.message;
        }
    }

    fuzz::Input& input_;
    const JobPolicy policy_;
    Daemon daemon_;
    Instant now_ = Instant(std::chrono::seconds(1));
    std::map<std::string, Node> nodes_;
    std::uint64_t step_ = 0;
};

std::vector<std::string> seeds() {
    return fuzz::random_seeds();
}

void test(const std::uint8_t* bytes, std::size_t count) {
    fuzz::Input input(bytes, count);
    const auto hello = fuzz::received(
        Join{"job", "a", fuzz::make_policy(input), fuzz::make_offer(input, "a"), {}});
    if (hello) {
        Story(input, std::get<Join>(*hello).policy).run();
    }
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_rendezvous_core
