// SPDX-License-Identifier: Apache-2.0
#include "agent/watch/work_windows.h"

#include <algorithm>
#include <utility>

namespace regroup::agent {

using rendezvous::kWorkWindow;
using rendezvous::WorkWindow;

TimeInCollectives time_in_collectives(const worker_link::CollectivesPage& page) {
    // The worker can write anything: larger times are none.
    constexpr Duration kMost = std::chrono::hours(24 * 365);
    TimeInCollectives result;
    result.pid = page.pid.load();
    for (const worker_link::CollectiveGroup& group : page.used()) {
        const bool is_used = group.state.load() == worker_link::CollectiveGroup::kInUse;
        if (is_used && group.knows_ends.load() != 0 && group.completed.load() > 0) {
            result.is_known = true;
            result.spent += std::clamp(Duration(group.spent.load()), Duration::zero(), kMost);
        }
    }
    return result;
}

void WorkWindows::begin_round(Instant now) {
    began_ = now;
    number_ = 0;
}

std::optional<WorkWindow> WorkWindows::look(Instant now,
                                            const std::vector<TimeInCollectives>& workers) {
    const auto number = static_cast<std::uint64_t>((now - began_) / kWorkWindow) + 1;
    if (number == number_) {
        return std::nullopt;
    }
    const bool follows = number == number_ + 1;
    const Instant since = std::exchange(since_, now);
    const std::vector<TimeInCollectives> before = std::exchange(before_, workers);
    WorkWindow window;
    window.number = std::exchange(number_, number);
    if (!follows || window.number == 0 || before.size() != workers.size() || workers.empty() ||
        now <= since) {
        return std::nullopt;
    }
    for (std::size_t i = 0; i < workers.size(); ++i) {
        const Duration spent = workers[i].spent - before[i].spent;
        const bool is_same = workers[i].pid == before[i].pid && before[i].is_known;
        if (!is_same || spent < Duration::zero()) {  // A group has ended.
            return std::nullopt;
        }
        // Looks are not exactly at the ends of windows.
        const double part =
            static_cast<double>(spent.count()) / static_cast<double>((now - since).count());
        const double work = static_cast<double>(kWorkWindow.count()) * std::clamp(1 - part, 0., 1.);
        window.work.push_back({Duration(static_cast<Duration::rep>(work))});
    }
    return window;
}

}  // namespace regroup::agent
