// SPDX-License-Identifier: Apache-2.0
//
// The facts that the agents of a job have saved about a hanging round.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/explain/flight_record.h"
#include "rendezvous/base/result.h"

namespace regroup::agent {

enum class ProcessState : std::uint8_t {
    unknown,  ///< Its node has saved nothing here.
    running,
    stopped,  ///< By a signal or by a debugger.
    gone,
    finished,  ///< Gone, with exit code 0.
};
[[nodiscard]] std::string_view to_string(ProcessState state) noexcept;

struct RankFacts {
    std::uint32_t rank = 0;
    ProcessState state = ProcessState::unknown;
    std::string node;
    std::int64_t pid = 0;
    std::optional<std::uint64_t> step;        ///< Committed; only of an elastic worker.
    std::optional<std::uint64_t> operations;  ///< Issued in this round; only with the SDK.
    std::string doing;                        ///< Its section, or the collective it waits in.
    bool waiting = false;                     ///< In a collective, for others.
    std::uint64_t silent_ms = 0;      ///< Since its last output, if nothing else is known of it.
    std::vector<std::string> frames;  ///< Of its first thread, innermost first.
    std::vector<FlightRecord> records;
};

/// One node's part. It is written when the round hangs.
struct NodeFacts {
    std::string job;
    std::uint64_t round = 0;
    std::string reason;
    std::uint32_t world_size = 0;
    std::string node;
    std::vector<RankFacts> ranks;  ///< All of the node. Only what its agent knows is set.
};

struct HangFacts {
    std::string job;
    std::uint64_t round = 0;  ///< 0: unknown.
    std::string reason;
    std::uint32_t world_size = 0;  ///< 0: unknown.
    std::vector<RankFacts> ranks;  ///< By rank, without gaps up to the world size.
};

/// The content of the file of a node, as JSON with the version 1.
[[nodiscard]] std::string write_node_facts(const NodeFacts& facts);
/// Errors: invalid_argument.
[[nodiscard]] Result<NodeFacts> read_node_facts(std::string_view text);

/// Adds what a node has saved. The first reason counts.
void add(HangFacts& facts, const NodeFacts& node);
/// Null if `rank` is not there.
[[nodiscard]] const RankFacts* find_rank(const HangFacts& facts, std::uint32_t rank);
/// The facts about `rank`, which is added if it is not there.
[[nodiscard]] RankFacts& facts_of(HangFacts& facts, std::uint32_t rank);

}  // namespace regroup::agent
