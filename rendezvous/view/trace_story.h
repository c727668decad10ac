// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace regroup::rendezvous {

/// Microseconds on the job's timeline.
using TraceTime = std::int64_t;

/// An event of a job, as its line tells it.
struct TracedEvent {
    TraceTime at = 0;
    std::string kind;
    std::uint64_t round = 0;
    std::uint64_t step = 0;
    std::string node;
    std::uint32_t first_rank = 0;
    std::uint32_t workers = 0;
    bool has_rank = false;
    std::uint32_t rank = 0;
    std::string text;
    // Of an incident.
    bool planned = false;
    bool cut_short = false;
    std::uint64_t next_round = 0;
    std::vector<TraceTime> stages;  ///< By kStageNames, without the total.
};

/// A node of a round, with the ranks [first_rank, first_rank + workers).
struct TracedNode {
    std::size_t process = 0;  ///< Its index in TraceStory::nodes.
    std::uint32_t first_rank = 0;
    std::uint32_t workers = 0;
};

struct TracedRound {
    std::uint64_t number = 0;
    std::string cause;
    TraceTime assigned = 0;
    TraceTime running = -1;  ///< Negative: never.
    TraceTime end = -1;      ///< Negative: it goes on.
    std::vector<TracedNode> nodes;
    std::map<std::uint32_t, TraceTime> dead;  ///< By rank; those that ended before the round.

    /// When the rank ended; `now` if it did not.
    [[nodiscard]] TraceTime end_of(std::uint32_t rank, TraceTime now) const;
    /// The node that has the rank; null if none has.
    [[nodiscard]] const TracedNode* node_of(std::uint32_t rank) const;
};

/// The nodes and rounds of a job, from its events.
struct TraceStory {
    std::vector<std::string> nodes;  ///< Names, each once. Two of one name have a number.
    std::vector<TracedRound> rounds;
    std::vector<TracedEvent> events;
    TraceTime last = 0;

    void read(std::string_view line);
    /// The node's index; it is added if need be.
    std::size_t process_of(const std::string& name);

   private:
    void follow(const TracedEvent& event);

    std::map<std::string, std::size_t> indexes_;
};

}  // namespace regroup::rendezvous
