// SPDX-License-Identifier: Apache-2.0
//
// The CPU time of a rendezvous state machine by itself, without sockets, codec and journal:
//
//     core_bench [NODES...]
//
// For each size: a complete rendezvous, a restart after one worker's failure, a minute of
// heartbeats and the drain of one node. Simulated nodes answer the core's messages. Only calls into
// the core count, in CPU time of the thread. They include next_deadline() after each event, as in
// the daemon. A second table counts the messages in both directions, and their bytes. Events are
// made in small batches, so that the core finds each in a cache, as after decoding. A scenario that
// takes too long is stopped, with a message.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <time.h>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rendezvous/core/rendezvous_core.h"
#include "rendezvous/protocol/codec.h"
#include "tests/bench/report.h"

namespace regroup::bench {
namespace {

using namespace rendezvous;

/// CPU seconds after which a scenario is stopped.
constexpr double kScenarioLimit = 60;
constexpr Duration kBeatSpan = std::chrono::minutes(1);
/// How often the nodes answer the core before a scenario counts as stuck.
constexpr int kTurnsMax = 64;
/// Events between two looks at the clock.
constexpr std::size_t kBatch = 64;
constexpr int kRounds = 9;
constexpr int kRoundsOfLarge = 3;
constexpr std::size_t kLargeSize = 2000;
constexpr std::size_t kHugeSize = 20000;
constexpr std::uint32_t kFailuresAllowed = 100;
constexpr std::uint16_t kStorePort = 2000;

double cpu_seconds() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

JobPolicy policy_of(std::size_t nodes_min, std::size_t nodes_max) {
    JobPolicy policy;
    policy.nodes_min = static_cast<std::uint32_t>(nodes_min);
    policy.nodes_max = static_cast<std::uint32_t>(nodes_max);
    policy.restarts_max = kFailuresAllowed;
    policy.program = "train";
    return policy;
}

/// The messages in both directions, and their bytes.
struct Traffic {
    std::size_t messages = 0;
    std::size_t bytes = 0;

    void add_event(const Event& event) {
        if (const auto* joined = std::get_if<NodeJoined>(&event)) {
            add(FromAgent(
                Join{"job", joined->node, joined->policy, joined->offer, joined->report}));
        } else if (const auto* reported = std::get_if<NodeReported>(&event)) {
            add(FromAgent(Report{reported->report}));
        } else if (const auto* left = std::get_if<NodeLeft>(&event)) {
            add(FromAgent(Leave{left->reason, left->killed}));
        }
    }
    template <class Message>
    void add(const Message& message) {
        ++messages;
        bytes += protocol::encode(message).size();
    }
};

/// A core, and nodes that obey at once.
class Fleet {
   public:
    Fleet(std::size_t size, const JobPolicy& policy, bool elastic)
        : policy_(policy), core_(policy), reports_(size) {
        for (std::size_t i = 0; i < size; ++i) {
            char name[16];
            std::snprintf(name, sizeof name, "node%05zu", i);
            names_.emplace_back(name);
            index_.emplace(name, i);
            reports_[i].store_port = kStorePort;
            reports_[i].elastic = elastic;
        }
    }

    void join() {
        for (std::size_t i = 0; i < names_.size(); ++i) {
            Offer offer;
            offer.name = names_[i];
            offer.address = "10.1." + std::to_string(i / 250) + "." + std::to_string(1 + i % 250);
            tell(NodeJoined{names_[i], policy_, std::move(offer), reports_[i]});
        }
        settle();
    }
    void fail(std::size_t node) {
        WorkerFailure failure;
        failure.node = names_[node];
        failure.exit_code = 1;
        reports_[node].state = NodeState::stopped;
        reports_[node].failure = failure;
        report(node);
        settle();
    }
    void drain(std::size_t node) {
        tell(DrainRequested{names_[node], "ops", "maintenance"});
        settle();
    }
    /// All nodes send heartbeats for a minute, in turn, each time with one more committed step.
    void beat() {
        counts_traffic_ = false;  // All heartbeats are alike, and there are millions.
        const Duration interval = policy_.heartbeat_timeout / 3;
        const auto gap = std::max(Duration(1), interval / static_cast<std::int64_t>(size()));
        const auto beats = static_cast<std::size_t>(kBeatSpan / interval);
        for (std::size_t beat = 0; beat < beats && !given_up_; ++beat) {
            const Instant turn = now_;
            for (std::size_t node = 0; node < size(); ++node) {
                ++reports_[node].step;
                reports_[node].held_step = reports_[node].step;
                report(node, gap);
            }
            deliver(gap);
            now_ = turn + interval;
            advance_if_due();
        }
        settle();
    }

    [[nodiscard]] std::size_t size() const { return names_.size(); }
    [[nodiscard]] double cpu() const { return cpu_; }
    [[nodiscard]] std::size_t delivered() const { return delivered_; }
    [[nodiscard]] const Traffic& traffic() const { return traffic_; }
    [[nodiscard]] bool gave_up() const { return given_up_; }
    /// True if `nodes` nodes run the core's round.
    [[nodiscard]] bool runs(std::size_t nodes) const {
        const auto running = [&](const NodeReport& report) {
            return report.state == NodeState::running && report.round == core_.round();
        };
        return core_.phase() == Phase::training &&
               static_cast<std::size_t>(std::count_if(reports_.begin(), reports_.end(), running)) ==
                   nodes;
    }
    void begin_scenario() {
        cpu_ = 0;
        delivered_ = 0;
        traffic_ = {};
        counts_traffic_ = true;
    }

   private:
    void report(std::size_t node, Duration gap = Duration::zero()) {
        tell(NodeReported{names_[node], reports_[node]}, gap);
    }
    void tell(Event event, Duration gap = Duration::zero()) {
        events_.push_back(std::move(event));
        if (events_.size() == kBatch) {
            deliver(gap);
        }
    }

    /// Delivers messages until there are none, even after the core's next deadlines.
    void settle() {
        for (int turn = 0; turn < kTurnsMax && !given_up_; ++turn) {
            if (!events_.empty()) {
                deliver(Duration::zero());
            } else if (core_.phase() == Phase::training) {
                return;
            } else {
                now_ = std::min(std::max(now_, core_.next_deadline()), now_ + policy_.last_call);
                advance_if_due();
            }
            answer();
        }
    }

    /// `gap`: the time before each event.
    void deliver(Duration gap) {
        outcomes_.clear();
        const double begin = cpu_seconds();
        for (const Event& event : events_) {
            now_ += gap;
            outcomes_.push_back(core_.step(now_, event));
            if (core_.next_deadline() <= now_) {
                outcomes_.push_back(core_.advance(now_));
            }
        }
        cpu_ += cpu_seconds() - begin;
        delivered_ += events_.size();
        given_up_ = cpu_ > kScenarioLimit;
        if (counts_traffic_) {
            std::ranges::for_each(events_,
                                  [this](const Event& event) { traffic_.add_event(event); });
        }
        events_.clear();
        take_outcomes();
    }
    void advance_if_due() {
        outcomes_.clear();
        const double begin = cpu_seconds();
        if (core_.next_deadline() <= now_) {
            outcomes_.push_back(core_.advance(now_));
        }
        cpu_ += cpu_seconds() - begin;
        take_outcomes();
    }
    void take_outcomes() {
        for (Effects& effects : outcomes_) {
            if (counts_traffic_) {
                std::ranges::for_each(effects,
                                      [this](const Send& send) { traffic_.add(send.message); });
            }
            sent_.insert(sent_.end(), std::make_move_iterator(effects.begin()),
                         std::make_move_iterator(effects.end()));
        }
    }

    void answer() {
        const std::vector<Send> sent = std::exchange(sent_, {});
        for (const Send& send : sent) {
            const std::size_t node = index_.at(send.node);
            std::visit([&](const auto& message) { obey(node, message); }, send.message);
        }
    }
    void obey(std::size_t node, const Assign& assign) {
        NodeReport& own = reports_[node];
        if (own.round == assign.assignment.round) {
            return;
        }
        own.round = assign.assignment.round;
        own.state = NodeState::running;
        own.failure.reset();
        report(node);
        if (own.elastic && assign.assignment.group_rank == 0) {
            tell(NodeResumed{names_[node], {own.round, own.step + 1}});
        }
    }
    void obey(std::size_t node, const Stop& stop) {
        if (reports_[node].round == stop.round && reports_[node].state == NodeState::running) {
            reports_[node].state = NodeState::stopping;
            report(node);
            reports_[node].state = NodeState::stopped;
            report(node);
        }
    }
    void obey(std::size_t node, const Prepare& prepare) {
        if (reports_[node].state != NodeState::running) {
            return;
        }
        reports_[node].state = NodeState::stopped;
        if (prepare.leave) {
            tell(NodeLeft{names_[node], "drained", false});
        } else {
            report(node);
        }
    }
    template <class Other>
    void obey(std::size_t /*node*/, const Other& /*message*/) {}

    JobPolicy policy_;
    RendezvousCore core_;
    Instant now_ = Instant{} + std::chrono::hours(1);
    std::vector<std::string> names_;
    std::unordered_map<std::string, std::size_t> index_;
    std::vector<NodeReport> reports_;
    std::vector<Event> events_;      // Not delivered yet.
    std::vector<Effects> outcomes_;  // Of the last batch.
    std::vector<Send> sent_;         // Not obeyed yet.
    double cpu_ = 0;                 // In the core, in this scenario.
    std::size_t delivered_ = 0;      // Events, in this scenario.
    Traffic traffic_;                // In this scenario.
    bool counts_traffic_ = true;
    bool given_up_ = false;
};

constexpr const char* kScenarios[] = {
    "rendezvous: all join, all confirm", "restart: one worker fails, all confirm the next round",
    "a minute of heartbeats", "drain of one node, all others confirm the next round"};
constexpr std::size_t kScenariosCount = std::size(kScenarios);

/// For each node.
struct Costs {
    double cpu_us = 0;
    double messages = 0;
    double bytes = 0;
};
/// By scenario, or nothing if it was stopped.
using Row = std::vector<std::optional<Costs>>;

/// False, after a message, if the core did not reach the expected state or the scenario was
/// stopped.
bool measure(Fleet& fleet, std::size_t scenario, std::size_t running, Row& row,
             const std::function<void()>& act) {
    fleet.begin_scenario();
    act();
    if (fleet.gave_up()) {
        std::printf("  %zu nodes, %s: given up after %s s of CPU and %zu events\n", fleet.size(),
                    kScenarios[scenario], fixed(fleet.cpu(), 1).c_str(), fleet.delivered());
        return false;
    }
    if (!fleet.runs(running)) {
        std::fprintf(stderr, "core_bench: %zu nodes, %s: %zu nodes do not run\n", fleet.size(),
                     kScenarios[scenario], running);
        std::exit(1);
    }
    const auto nodes = static_cast<double>(fleet.size());
    row[scenario] = {fleet.cpu() * 1e6 / nodes,
                     static_cast<double>(fleet.traffic().messages) / nodes,
                     static_cast<double>(fleet.traffic().bytes) / nodes};
    return true;
}

Row measure_once(std::size_t size) {
    Row row(kScenariosCount);
    {
        Fleet fleet(size, policy_of(size, size), false);
        if (!measure(fleet, 0, size, row, [&] { fleet.join(); }) ||
            !measure(fleet, 1, size, row, [&] { fleet.fail(size / 2); })) {
            return row;
        }
    }
    // The job needs one node less, otherwise the drain would end it.
    Fleet fleet(size, policy_of(size - 1, size), true);
    fleet.join();
    if (fleet.gave_up()) {
        return row;
    }
    if (measure(fleet, 2, size, row, [&] { fleet.beat(); })) {
        (void)measure(fleet, 3, size - 1, row, [&] { fleet.drain(size / 2); });
    }
    return row;
}

/// The medians of the times of some rounds; of one round if a scenario is stopped.
Row measure_all(std::size_t size) {
    std::vector<std::vector<double>> samples(kScenariosCount);
    const int rounds = size > kHugeSize ? 1 : size > kLargeSize ? kRoundsOfLarge : kRounds;
    Row all(kScenariosCount);
    bool complete = true;
    for (int round = 0; round < rounds && complete; ++round) {
        const Row row = measure_once(size);
        for (std::size_t scenario = 0; scenario < kScenariosCount; ++scenario) {
            complete = complete && row[scenario];
            if (row[scenario]) {
                all[scenario] = row[scenario];
                samples[scenario].push_back(row[scenario]->cpu_us);
            }
        }
    }
    for (std::size_t scenario = 0; scenario < kScenariosCount; ++scenario) {
        if (all[scenario]) {
            all[scenario]->cpu_us = summarize(samples[scenario]).median;
        }
    }
    return all;
}

void print_table(const std::string& what, const std::vector<std::size_t>& sizes,
                 const std::vector<Row>& rows, double Costs::* cost, int decimals) {
    std::vector<std::string> header{what};
    for (const std::size_t size : sizes) {
        header.push_back(std::to_string(size) + " nodes");
    }
    Table table(header);
    for (std::size_t scenario = 0; scenario < kScenariosCount; ++scenario) {
        std::vector<std::string> line{kScenarios[scenario]};
        for (const Row& row : rows) {
            const bool is_known = row[scenario] && (*row[scenario]).*cost > 0;
            line.push_back(is_known ? fixed((*row[scenario]).*cost, decimals) : "-");
        }
        table.add(line);
    }
    table.print();
}

int run(const std::vector<std::size_t>& sizes) {
    print_head("core: the rendezvous' state machine alone, for each node");
    std::vector<Row> rows;
    for (const std::size_t size : sizes) {
        rows.push_back(measure_all(size));
    }
    print_table("CPU us", sizes, rows, &Costs::cpu_us, 2);
    std::printf("\n");
    print_table("messages", sizes, rows, &Costs::messages, 2);
    std::printf("\n");
    print_table("bytes", sizes, rows, &Costs::bytes, 0);
    return 0;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    std::vector<std::size_t> sizes;
    for (int i = 1; i < argc; ++i) {
        sizes.push_back(std::strtoul(argv[i], nullptr, 10));
        if (sizes.back() < 2) {
            std::fprintf(stderr, "usage: core_bench [NODES...], each at least 2\n");
            return 2;
        }
    }
    return regroup::bench::run(sizes.empty() ? std::vector<std::size_t>{10, 1000, 10000, 100000}
                                             : sizes);
}
