// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/node_barrier.h"

#include <algorithm>
#include <utility>

#include "worker_sdk/src/cpu/futex.h"

namespace regroup::cpu {
namespace {

/// A wake-up that `stop` sends just before a thread falls asleep is lost; the thread checks again
/// after this time.
constexpr Duration kLongestSleep = std::chrono::milliseconds(50);

}  // namespace

NodeBarrier::NodeBarrier(BarrierWords& words, std::uint32_t world_size, bool crowded,
                         std::function<bool()> hopeless, std::uint32_t arrived)
    : words_(words),
      world_size_(world_size),
      spin_policy_(crowded),
      hopeless_(std::move(hopeless)),
      arrived_(arrived) {}

bool NodeBarrier::all_there() const noexcept {
    return static_cast<std::int32_t>(words_.passages.load() - arrived_) >= 0;
}

NodeBarrier::Outcome NodeBarrier::pass(Instant deadline) {
    if (stopped_) {
        return Outcome::stopped;
    }
    ++arrived_;
    if (words_.arrivals.fetch_add(1) + 1 == arrived_ * world_size_) {
        words_.passages.store(arrived_);
        if (words_.sleepers.load() != 0) {
            wake_all(words_.passages);
        }
        return Outcome::passed;
    }
    if (spin_policy_.is_worth_it() && spin()) {
        return Outcome::passed;
    }
    while (true) {
        const std::uint32_t seen = words_.passages.load();
        if (all_there()) {
            return Outcome::passed;
        }
        if (stopped_) {
            return Outcome::stopped;
        }
        if (hopeless_()) {
            return Outcome::hopeless;
        }
        const Instant now = SteadyClock().now();
        if (now >= deadline) {
            return Outcome::expired;
        }
        words_.sleepers.fetch_add(1);
        sleep_on(words_.passages, seen, std::min<Duration>(deadline - now, kLongestSleep));
        words_.sleepers.fetch_sub(1);
    }
}

bool NodeBarrier::spin() noexcept {
    const Instant began = SteadyClock().now();
    Duration waited{};
    for (unsigned looks = 1; waited < SpinPolicy::kLimit && !all_there(); ++looks) {
        spin_policy_.pause();
        if (looks % SpinPolicy::kLooksPerTime == 0) {
            waited = SteadyClock().now() - began;
        }
    }
    spin_policy_.report(SteadyClock().now() - began);
    return all_there();
}

void NodeBarrier::stop() noexcept {
    stopped_ = true;
    stir();
}

void NodeBarrier::stir() noexcept {
    wake_all(words_.passages);
}

}  // namespace regroup::cpu
