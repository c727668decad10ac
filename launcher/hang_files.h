// SPDX-License-Identifier: Apache-2.0
//
// The files of a hang: what StackSaver, RecordSaver and NodeWatch have written into a folder, and
// flight records that were saved in other ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/explain/hang_facts.h"

namespace regroup::launcher {

struct HangFiles {
    agent::HangFacts facts;
    std::size_t files = 0;                ///< Files that were read and understood.
    std::vector<std::string> complaints;  ///< One sentence for each that was not.
};

/// Reads `path`: a folder; a file in such a folder, which stands for the folder; or one flight
/// record, whose name ends with the rank. Reads at most 10 MiB of a file, and adds to `files`.
void read_hang(const std::string& path, HangFiles& files);

/// The part that a file has by its name: "node0.json", "rank3.txt", "rank3.nccl.pickle",
/// "nccl_trace_rank_3", "record_3".
struct HangFileName {
    enum class Kind : std::uint8_t { other, node, stacks, record };
    Kind kind = Kind::other;
    std::uint32_t rank = 0;
    bool is_ours = false;  ///< It is named as our agents name theirs.
};
[[nodiscard]] HangFileName read_name(std::string_view name);

}  // namespace regroup::launcher
