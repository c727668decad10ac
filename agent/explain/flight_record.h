// SPDX-License-Identifier: Apache-2.0
//
// The flight record of one process: the last operations of its groups. PyTorch's recorder and that
// of the SDK (regroup/flight_recorder.h) write the same fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::agent {

inline constexpr std::uint32_t kRanksMax = 1U << 17U;  ///< Of a record that is read.

struct RecordedOperation {
    std::uint64_t number = 0;  ///< In its group. Messages have numbers of their own.
    std::string name;          ///< "all_reduce"
    std::string type;          ///< Of the input's elements: "Float"; empty if the record has none.
    /// Elements of all inputs together; nothing if the record has no sizes.
    std::optional<std::uint64_t> elements;
    bool is_message = false;
    std::optional<std::uint32_t> peer;  ///< Of a message, in its group.
    bool started = false;               ///< Some back ends never say so.
    bool completed = false;
    /// The lines of the program that called it, innermost first; PyTorch's pickled records only.
    std::vector<std::string> frames;
};

struct RecordedGroup {
    std::string backend;               ///< "nccl", "gloo"; "cpu" of the SDK
    std::string name;                  ///< "default_pg"
    std::string id;                    ///< The number of the group; differs from rank to rank.
    std::uint64_t round = 0;           ///< 0: the record does not say.
    std::vector<std::uint32_t> ranks;  ///< Of the world; empty: the record does not say.
    std::vector<RecordedOperation> operations;  ///< The last ones, oldest first.
};

enum class Recorder : std::uint8_t {
    sdk,
    pytorch,
    agent,  ///< The agent, from the page in which NCCL's plugin or the SDK writes.
};
/// "the SDK", "PyTorch", "the agent"
[[nodiscard]] std::string_view to_string(Recorder recorder) noexcept;

struct FlightRecord {
    Recorder recorder = Recorder::pytorch;
    std::vector<RecordedGroup> groups{};
};

/// Operations of one group that are kept; the last ones.
inline constexpr std::size_t kOperationsKept = 512;

/// Reads a record, as JSON or as a pickle. Errors: invalid_argument.
[[nodiscard]] Result<FlightRecord> read_flight_record(std::string_view bytes);

/// The text, as the record has it, of a list of ranks: "[0, 1, 4-7]". Nothing else than numbers and
/// separators is expected; reading ends where something else stands.
[[nodiscard]] std::vector<std::uint32_t> read_ranks(std::string_view text);

}  // namespace regroup::agent
