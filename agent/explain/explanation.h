// SPDX-License-Identifier: Apache-2.0
//
// Why a round hangs: which collective is not complete, which ranks have entered it, which have not,
// and where those are. Concluded from HangFacts alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/explain/hang_facts.h"

namespace regroup::agent {

using Ranks = std::vector<std::uint32_t>;  ///< In ascending order.

/// Ranks that have entered the same collective and called different things.
struct Mismatch {
    std::string_view what;  ///< "operation", "elements", "type"
    struct Side {
        std::string value;
        Ranks ranks;
    };
    std::vector<Side> sides;  ///< The most common one first.
};

/// The first collective of a group that is not complete on all ranks that have entered it.
struct StuckCollective {
    Recorder recorder = Recorder::pytorch;
    std::string backend;
    std::string group;
    Ranks members;
    /// False: the record does not name the members, so these are the ranks that have used the
    /// group.
    bool members_are_known = true;
    std::uint64_t number = 0;
    std::string operation;
    std::string type;
    std::optional<std::uint64_t> elements;
    Ranks entered;      ///< Have called it, and it is not complete there.
    Ranks completed;    ///< It is complete there.
    Ranks not_entered;  ///< Have not called it.
    Ranks unknown;      ///< Have no flight record here.
    /// Of those that have entered, on which the back end has not begun it; empty if none has, since
    /// some back ends never say so.
    Ranks not_started;
    std::vector<Mismatch> mismatches;
    std::vector<std::string> frames;  ///< Where the program has called it, if a record says so.
};

/// A message that a rank has called and that is not complete.
struct StuckMessage {
    Recorder recorder = Recorder::pytorch;
    std::string group;
    std::uint32_t rank = 0;
    std::string operation;  ///< "send", "recv"
    std::uint64_t number = 0;
    std::optional<std::uint32_t> peer;  ///< The other rank.
};

enum class HangKind : std::uint8_t {
    mismatch,     ///< Ranks have called different collectives, or with different sizes.
    gone,         ///< Others wait for a rank whose process is gone.
    finished,     ///< The same, and its process has ended with exit code 0.
    not_entered,  ///< Others wait for ranks that are elsewhere.
    circle,       ///< All ranks that others wait for wait themselves, in other groups.
    not_started,  ///< All have called it; on some the back end has not begun it.
    all_entered,  ///< All have called it; it makes no progress.
    message,      ///< Only messages wait, and their peers are not known.
    older_step,   ///< No record helps; some ranks have committed fewer steps.
    stopped,      ///< No record helps; a process is stopped.
    nothing,      ///< Nothing that was saved says why.
};
[[nodiscard]] std::string_view to_string(HangKind kind) noexcept;

struct Explanation {
    HangKind kind = HangKind::nothing;
    /// The ranks to look at first.
    Ranks culprits;
    Ranks behind;                              ///< Have committed fewer steps than others.
    std::vector<StuckCollective> collectives;  ///< One for each group that is stuck.
    std::vector<StuckMessage> messages;        ///< The first one of each rank and group.
};

/// `facts.ranks` is in ascending order of the ranks.
[[nodiscard]] Explanation explain(const HangFacts& facts);

/// The explanation in sentences for people, not yet printable.
[[nodiscard]] std::vector<std::string> text_of(const HangFacts& facts,
                                               const Explanation& explanation);
/// The same as one JSON object.
[[nodiscard]] std::string json_of(const HangFacts& facts, const Explanation& explanation);

}  // namespace regroup::agent
