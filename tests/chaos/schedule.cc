// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/schedule.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "rendezvous/base/random.h"

namespace regroup::chaos {
namespace {

/// How one kind is dealt out.
struct Habit {
    FaultKind kind;
    std::string_view name;
    const char* text;  ///< %s: the node; %u: `other`; %s: the other node; %lld: `strength`.
    int weight;
    milliseconds lasts_min;
    milliseconds lasts_max;
    std::int64_t strength_min = 0;
    std::int64_t strength_max = 0;
};

using F = FaultKind;
using Ms = milliseconds;

constexpr std::array<Habit, kFaultKinds> kHabits{{
    {F::kill_worker, "kill-worker", "a worker is killed", 6, Ms(0), Ms(0)},
    {F::kill_agent, "kill-agent", "the agent is killed", 3, Ms(200), Ms(4000)},
    {F::kill_warden, "kill-warden", "the warden is killed", 1, Ms(200), Ms(4000)},
    {F::kill_node, "kill-node", "all processes of the node are killed", 3, Ms(200), Ms(4000)},
    {F::drain_node, "drain-node", "the node is told to go (SIGTERM)", 3, Ms(1000), Ms(4000)},
    {F::drain_by_word, "drain-by-word", "the node is drained (regroup drain)", 2, Ms(1000),
     Ms(4000)},
    {F::stop_worker, "stop-worker", "a worker is stopped", 2, Ms(100), Ms(6000)},
    {F::stop_agent, "stop-agent", "the agent is stopped", 2, Ms(100), Ms(6000)},
    {F::kill_daemon, "kill-daemon", "the daemon is killed", 3, Ms(50), Ms(4000)},
    {F::stop_daemon, "stop-daemon", "the daemon is stopped", 2, Ms(100), Ms(5000)},
    {F::cut_link, "cut-link", "the cable is pulled", 3, Ms(300), Ms(6000)},
    {F::lossy_link, "lossy-link", "the cable loses packets, per cent", 2, Ms(500), Ms(4000), 3, 30},
    {F::deaf_node, "deaf-node", "the node hears nothing", 1, Ms(300), Ms(5000)},
    {F::mute_node, "mute-node", "nobody hears the node", 1, Ms(300), Ms(5000)},
    {F::part_pair, "part-pair", "the node cannot reach node", 1, Ms(300), Ms(4000)},
    {F::reset_pair, "reset-pair", "connections are reset, with node", 2, Ms(100), Ms(2000)},
    {F::slow_line, "slow-line", "the line is slow, by ms", 2, Ms(500), Ms(4000), 2, 200},
    {F::jump_clock, "jump-clock", "the wall clock is off, minutes", 1, Ms(500), Ms(5000), -600,
     600},
    {F::jump_daemon_clock, "jump-daemon-clock", "the wall clock is off, minutes", 1, Ms(500),
     Ms(5000), -600, 600},
    {F::fill_disk, "fill-disk", "the disk is full", 1, Ms(300), Ms(4000)},
    {F::fill_daemon_disk, "fill-daemon-disk", "the disk is full", 1, Ms(300), Ms(4000)},
}};

const Habit& habit_of(FaultKind kind) {
    return *std::find_if(kHabits.begin(), kHabits.end(),
                         [&](const Habit& habit) { return habit.kind == kind; });
}

/// Of `nodes`, those that may be hit by a fault during [from, to]. The pair that is left in peace
/// moves on by one node every so often; during the moments before it does, so does the next pair.
std::vector<std::uint32_t> targets(std::uint32_t nodes, milliseconds from, milliseconds to) {
    constexpr milliseconds kPeace(10000);
    constexpr milliseconds kBefore(4000);
    std::vector<std::uint32_t> result;
    for (std::uint32_t node = 0; node < nodes; ++node) {
        const auto in_peace = [&](std::int64_t period) {
            const auto first = static_cast<std::uint32_t>(period % nodes);
            return node == first || node == (first + 1) % nodes;
        };
        bool spared = false;
        for (std::int64_t period = from / kPeace; period <= (to + kBefore) / kPeace; ++period) {
            spared = spared || in_peace(period);
        }
        if (!spared) {
            result.push_back(node);
        }
    }
    return result;
}

bool is_of_pair(FaultKind kind) {
    return kind == F::part_pair || kind == F::reset_pair;
}

std::int64_t between(Random& random, std::int64_t least, std::int64_t most) {
    return least +
           static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most - least) + 1));
}

milliseconds between(Random& random, milliseconds least, milliseconds most) {
    return milliseconds(between(random, least.count(), most.count()));
}

/// Cards of all kinds, of each as many as it weighs; none twice before all have been dealt, so that
/// a long run has every kind. What has no place at the moment stays in the deck.
class Deck {
   public:
    explicit Deck(const std::vector<FaultKind>& kinds) {
        for (const Habit& habit : kHabits) {
            if (kinds.empty() || std::count(kinds.begin(), kinds.end(), habit.kind) > 0) {
                all_.insert(all_.end(), static_cast<std::size_t>(habit.weight), &habit);
            }
        }
    }
    /// Deals cards by chance until `take` takes one; false if it takes none of them.
    template <class Take>
    bool deal(Random& random, const Take& take) {
        if (left_.empty()) {
            left_ = all_;
        }
        for (std::size_t tried = 0; tried < left_.size(); ++tried) {
            std::swap(left_[tried], left_[tried + random.below(left_.size() - tried)]);
            if (take(*left_[tried])) {
                left_.erase(left_.begin() + static_cast<std::ptrdiff_t>(tried));
                return true;
            }
        }
        return false;
    }

   private:
    std::vector<const Habit*> all_;
    std::vector<const Habit*> left_;
};

}  // namespace

std::string_view to_string(FaultKind kind) noexcept {
    return habit_of(kind).name;
}

bool hits_node(FaultKind kind) noexcept {
    return kind != F::kill_daemon && kind != F::stop_daemon && kind != F::jump_daemon_clock &&
           kind != F::fill_daemon_disk;
}

bool ends_node(FaultKind kind) noexcept {
    return kind == F::kill_agent || kind == F::kill_warden || kind == F::kill_node ||
           kind == F::drain_node || kind == F::drain_by_word;
}

std::string node_name(std::uint32_t node) {
    return {static_cast<char>('a' + node)};
}

std::string describe(const Fault& fault) {
    const Habit& habit = habit_of(fault.kind);
    std::array<char, 64> time{};
    std::snprintf(time.data(), time.size(), "%7.3f s  %-18s",
                  static_cast<double>(fault.at.count()) / 1000,
                  hits_node(fault.kind) ? ("node " + node_name(fault.node)).c_str() : "daemon");
    std::string text = time.data();
    text += habit.text;
    if (fault.kind == F::kill_worker || fault.kind == F::stop_worker) {
        text += " (number " + std::to_string(fault.other) + ")";
    } else if (is_of_pair(fault.kind)) {
        text += " " + node_name(fault.other);
    } else if (habit.strength_max != 0) {
        text += ": " + std::to_string(fault.strength);
    }
    if (fault.lasts > milliseconds(0)) {
        text += ", for " + std::to_string(fault.lasts.count()) + " ms";
    }
    return text;
}

std::vector<Fault> make_schedule(const SchedulePlan& plan) {
    Random random(plan.seed);
    Deck deck(plan.kinds);
    std::vector<Fault> result;
    std::vector<milliseconds> busy(plan.nodes);  // Until when each node has a fault.
    milliseconds daemon_busy{};
    milliseconds at = plan.first;
    const auto place = [&](const Habit& habit) {
        Fault fault{.at = at,
                    .lasts = between(random, habit.lasts_min, habit.lasts_max),
                    .kind = habit.kind};
        fault.lasts = std::min(fault.lasts, plan.lasts - plan.calm - at);
        fault.strength = between(random, habit.strength_min, habit.strength_max);
        if (!hits_node(habit.kind)) {
            if (daemon_busy > at) {
                return false;
            }
            daemon_busy = at + fault.lasts;
            result.push_back(fault);
            return true;
        }
        if (habit.kind == F::drain_by_word && daemon_busy > at) {
            return false;  // There is nobody to hear the word.
        }
        std::vector<std::uint32_t> nodes = targets(plan.nodes, at, at + fault.lasts);
        std::erase_if(nodes, [&](std::uint32_t node) {
            return busy[node] > at || (habit.kind == F::slow_line && node != plan.nodes - 1);
        });
        if (nodes.empty()) {
            return false;
        }
        fault.node = nodes.at(random.below(nodes.size()));
        fault.other = static_cast<std::uint32_t>(random.below(plan.workers));
        if (is_of_pair(habit.kind)) {
            fault.other = static_cast<std::uint32_t>(
                (fault.node + 1 + random.below(plan.nodes - 1)) % plan.nodes);
        }
        busy[fault.node] = at + fault.lasts;
        result.push_back(fault);
        return true;
    };
    for (; at < plan.lasts - plan.calm; at += between(random, plan.gap_min, plan.gap_max)) {
        deck.deal(random, place);
    }
    return result;
}

}  // namespace regroup::chaos
