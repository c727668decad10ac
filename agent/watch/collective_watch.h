// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/explain/flight_record.h"
#include "agent/watch/progress_watch.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/worker_link/collectives_page.h"

namespace regroup::agent {

/// A group of a worker at one instant.
struct GroupLook {
    rendezvous::GroupPosition position{};
    /// The longest time in a collective like the present one; zero if there was none.
    Duration longest{};
    /// Changes with each event of the group.
    std::uint64_t events = 0;
    std::string backend{};                        ///< "nccl"
    std::string name{};                           ///< Given by the program.
    std::vector<RecordedOperation> operations{};  ///< Those of `position.called`.
};

/// The groups in a page that a worker may be writing, or may have filled with anything. The ones in
/// which the worker is longest come first. Any thread.
[[nodiscard]] std::vector<GroupLook> look_at(const worker_link::CollectivesPage& page, Instant now);

/// The same groups as a flight record, with the collectives that `position` tells.
[[nodiscard]] FlightRecord record_of(const std::vector<GroupLook>& groups);

/// The groups of one worker.
struct WorkerGroups {
    std::uint32_t local_rank = 0;
    std::uint32_t rank = 0;
    std::int64_t pid = 0;
    std::vector<GroupLook> groups{};
};

/// Finds the worker of a node that is in a collective for longer than is usual, from looks at all
/// workers. A long collective is no hang yet: see rendezvous::Hang::in_collective. Pure.
///
/// The limit is a multiple of the longest time in a collective like it, as ProgressWatch has it,
/// and at least HangLimits::floor; six times that for the first collectives of a group. Time in
/// which this process itself did not run does not count.
class CollectiveWatch {
   public:
    /// `interval`: the time from one look to the next.
    CollectiveWatch(HangLimits limits, Duration interval) : limits_(limits), interval_(interval) {}

    [[nodiscard]] std::optional<rendezvous::Hang> look(Instant now,
                                                       std::span<const WorkerGroups> workers);

   private:
    struct Known {
        std::uint64_t events = 0;
        Duration still{};  ///< Time without an event.
    };
    [[nodiscard]] Duration limit_of(const GroupLook& group) const;

    HangLimits limits_;
    Duration interval_;
    std::optional<Instant> looked_at_;
    /// By process and group. Those of the last look.
    std::map<std::pair<std::int64_t, std::uint64_t>, Known> known_;
};

}  // namespace regroup::agent
