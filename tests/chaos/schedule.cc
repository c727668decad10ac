// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/schedule.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "rendezvous/base/random.h"

namespace regroup::chaos {
namespace {

/// How often and how long one kind of fault occurs.
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

// A stream of its own, so that further draws do not change the schedule.
constexpr std::uint64_t kTraitsStream = 0x7472'6169'7473;
constexpr std::uint64_t kFollowersStream = 0x666f'6c6c'6f77;

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
    {F::kill_standby_worker, "kill-standby-worker", "a worker that was started ahead is killed", 2,
     Ms(0), Ms(0)},
    {F::kill_taker, "kill-taker", "the agent is killed as it takes a lost node's place", 3, Ms(200),
     Ms(4000)},
    {F::kill_workers, "kill-workers", "all workers are killed", 4, Ms(0), Ms(0)},
}};

const Habit& habit_of(FaultKind kind) {
    return *std::find_if(kHabits.begin(), kHabits.end(),
                         [&](const Habit& habit) { return habit.kind == kind; });
}

/// The nodes that may be hit by a fault during [from, to]. The undisturbed pair moves on by one
/// node at intervals. Shortly before that, the next pair is undisturbed as well.
std::vector<std::uint32_t> targets(const SchedulePlan& plan, milliseconds from, milliseconds to) {
    constexpr milliseconds kPeace(10000);
    constexpr milliseconds kBefore(4000);
    const std::uint32_t peaceful = std::max(2U, plan.standbys + 1);
    std::vector<std::uint32_t> result;
    for (std::uint32_t node = 0; node < plan.nodes; ++node) {
        const auto in_peace = [&](std::int64_t period) {
            const auto first = static_cast<std::uint32_t>(period % plan.nodes);
            return (node + plan.nodes - first) % plan.nodes < peaceful;
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

/// A deck of cards, with as many cards of each kind as its weight. All cards are dealt before any
/// comes again, so that a long run has every kind. A fault that is impossible at the moment stays
/// in the deck.
class Deck {
   public:
    explicit Deck(const SchedulePlan& plan) {
        for (const Habit& habit : kHabits) {
            if (may_have(plan, habit.kind)) {
                all_.insert(all_.end(), static_cast<std::size_t>(habit.weight), &habit);
            }
        }
    }
    /// Deals random cards until `take` accepts one; false if it accepts none.
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
           kind == F::drain_node || kind == F::drain_by_word || kind == F::kill_taker;
}

bool aims_at_standby(FaultKind kind) noexcept {
    return kind == F::kill_standby_worker || kind == F::kill_taker;
}

bool may_have(const SchedulePlan& plan, FaultKind kind) {
    const bool is_asked_for =
        plan.kinds.empty() || std::count(plan.kinds.begin(), plan.kinds.end(), kind) > 0;
    return is_asked_for && (plan.ahead || kind != F::kill_standby_worker) &&
           (plan.snapshots || kind != F::kill_workers);
}

std::string_view to_string(JobForm form) noexcept {
    switch (form) {
        case JobForm::in_place:
            return "in-place";
        case JobForm::restarted:
            return "restarted";
        case JobForm::slow_end:
            return "slow-end";
        case JobForm::snapshots:
            return "snapshots";
    }
    return "unknown";
}

JobTraits draw_traits(std::uint64_t seed) {
    constexpr std::array kForms{JobForm::in_place, JobForm::in_place, JobForm::restarted,
                                JobForm::slow_end, JobForm::slow_end, JobForm::snapshots,
                                JobForm::snapshots};
    constexpr std::uint64_t kIntervalMax = 3;
    Random random(seed ^ kTraitsStream);
    JobTraits traits;
    traits.form = kForms.at(random.below(kForms.size()));
    traits.standbys = static_cast<std::uint32_t>(random.below(2));
    traits.save_interval = 1 + random.below(kIntervalMax);
    traits.has_snapshot_folder = random.below(2) == 0;
    return traits;
}

std::string node_name(std::uint32_t node) {
    return {static_cast<char>('a' + node)};
}

std::string describe(const Fault& fault) {
    const Habit& habit = habit_of(fault.kind);
    const std::string whom = !hits_node(fault.kind)          ? "daemon"
                             : fault.node == Fault::kStandby ? "a standby"
                                                             : "node " + node_name(fault.node);
    std::array<char, 64> time{};
    std::snprintf(time.data(), time.size(), "%7.3f s  %-18s",
                  static_cast<double>(fault.at.count()) / 1000, whom.c_str());
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

namespace {

/// Places faults in time.
class Scheduler {
   public:
    explicit Scheduler(const SchedulePlan& plan)
        : plan_(plan),
          random_(plan.seed),
          followers_(plan.seed ^ kFollowersStream),
          busy_(plan.nodes) {}

    std::vector<Fault> run() {
        Deck deck(plan_);
        const milliseconds end = plan_.lasts - plan_.calm;
        for (at_ = plan_.first; at_ < end; at_ += between(random_, plan_.gap_min, plan_.gap_max)) {
            deck.deal(random_, [&](const Habit& habit) { return place(habit); });
        }
        return std::move(result_);
    }

   private:
    void add(const Fault& fault) {
        const auto later = [](const Fault& a, const Fault& b) { return a.at < b.at; };
        result_.insert(std::upper_bound(result_.begin(), result_.end(), fault, later), fault);
    }
    Fault draw(const Habit& habit, milliseconds at, Random& random) const {
        Fault fault{.at = at,
                    .lasts = between(random, habit.lasts_min, habit.lasts_max),
                    .kind = habit.kind};
        fault.lasts = std::min(fault.lasts, plan_.lasts - plan_.calm - at);
        fault.strength = between(random, habit.strength_min, habit.strength_max);
        return fault;
    }
    bool place(const Habit& habit) {
        Fault fault = draw(habit, at_, random_);
        if (!hits_node(habit.kind)) {
            if (daemon_busy_ > at_) {
                return false;
            }
            daemon_busy_ = at_ + fault.lasts;
            add(fault);
            return true;
        }
        const bool needs_daemon = habit.kind == F::drain_by_word || aims_at_standby(habit.kind);
        if (needs_daemon && daemon_busy_ > at_) {
            return false;  // Without the daemon there is no drain, and the standby is not known.
        }
        if (habit.kind == F::kill_standby_worker) {
            fault.node = Fault::kStandby;
            fault.other = any_worker(random_);
            add(fault);
            return true;
        }
        if (habit.kind == F::kill_taker) {
            return place_taker(fault);
        }
        if (!aim(fault, random_)) {
            return false;
        }
        follow(fault);
        return true;
    }
    /// Chooses a node that the fault may hit.
    bool aim(Fault& fault, Random& random) {
        std::vector<std::uint32_t> nodes = targets(plan_, fault.at, fault.at + fault.lasts);
        std::erase_if(nodes, [&](std::uint32_t node) {
            return busy_[node] > at_ || (fault.kind == F::slow_line && node != plan_.nodes - 1);
        });
        if (nodes.empty()) {
            return false;
        }
        fault.node = nodes.at(random.below(nodes.size()));
        fault.other = any_worker(random);
        if (is_of_pair(fault.kind)) {
            fault.other = static_cast<std::uint32_t>(
                (fault.node + 1 + random.below(plan_.nodes - 1)) % plan_.nodes);
        }
        busy_[fault.node] = fault.at + fault.lasts;
        add(fault);
        return true;
    }
    /// A node is lost, and at once the standby that replaces it.
    bool place_taker(Fault taker) {
        constexpr milliseconds kLater(300);
        Fault first =
            draw(habit_of(random_.below(2) == 0 ? F::kill_node : F::kill_agent), at_, random_);
        if (!aim(first, random_)) {
            return false;
        }
        taker.node = Fault::kStandby;
        taker.at += between(random_, milliseconds(0), kLater);
        taker.lasts = std::min(taker.lasts, plan_.lasts - plan_.calm - taker.at);
        if (taker.lasts > milliseconds(0)) {
            add(taker);
        }
        return true;
    }
    /// Another worker is killed while the round of the first one ends, or another node is lost with
    /// the first one.
    void follow(const Fault& first) {
        if (plan_.snapshots && first.kind == F::kill_node && followers_.below(2) == 0) {
            Fault other = first;
            aim(other, followers_);
            return;
        }
        constexpr milliseconds kSoonest(20);
        constexpr milliseconds kLatest(1500);
        if (first.kind != F::kill_worker || followers_.below(2) == 0) {
            return;
        }
        Fault second = first;
        second.at += between(followers_, kSoonest, kLatest);
        if (second.at < plan_.lasts - plan_.calm) {
            aim(second, followers_);
        }
    }
    /// A node may have the same number of workers that are starting or ending.
    static std::uint32_t any_worker(Random& random) {
        constexpr std::uint64_t kMany = 60;
        return static_cast<std::uint32_t>(random.below(kMany));
    }

    const SchedulePlan& plan_;
    Random random_;
    Random followers_;
    std::vector<milliseconds> busy_;  ///< Until when each node has a fault.
    milliseconds daemon_busy_{};
    milliseconds at_{};
    std::vector<Fault> result_;
};

}  // namespace

std::vector<Fault> make_schedule(const SchedulePlan& plan) {
    return Scheduler(plan).run();
}

}  // namespace regroup::chaos
