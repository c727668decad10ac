// SPDX-License-Identifier: Apache-2.0
//
// The log of a worker process of the chaos job: a file with one record for each round that it
// entered and each step that it applied, written at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/chaos/record_file.h"

namespace regroup::chaos {

enum class RecordKind : std::uint32_t {
    round,     ///< Entered `round` with `step` steps committed.
    step,      ///< Applied step number `step`.
    finished,  ///< Training is over.
    left,      ///< This node leaves.
};

/// One record.
struct Record {
    RecordKind kind = RecordKind::step;
    std::uint32_t rank = 0;
    std::uint32_t world_size = 0;
    std::uint32_t reserved = 0;
    std::uint64_t round = 0;
    std::uint64_t step = 0;
    std::uint64_t samples_begin = 0;
    std::uint64_t samples_end = 0;
    std::uint64_t digest = 0;  ///< Of the model after it.
    std::uint64_t floats = 0;  ///< Of the floats after it.
    std::int64_t at = 0;       ///< CLOCK_MONOTONIC, in ns.
};
static_assert(sizeof(Record) == 72);

/// Appends to a new file in `directory`. A failed write ends the process.
class StepLog {
   public:
    explicit StepLog(const std::string& directory);

    /// Fills in the time.
    void write(Record record);

   private:
    RecordFile file_;
};

/// One process and its records, in its order.
using ProcessLog = Records<Record>;

/// All logs in `directory`, by name. Incomplete records of killed processes are left out.
[[nodiscard]] std::vector<ProcessLog> read_step_logs(const std::string& directory);

}  // namespace regroup::chaos
