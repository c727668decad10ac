// SPDX-License-Identifier: Apache-2.0
//
// Compares the records that regroup writes of a run with the logs of the workers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/chaos/history.h"

namespace regroup::chaos {

/// One line of a recoveries.jsonl.
struct LedgerEntry {
    std::uint64_t round = 0;
    std::uint64_t next_round = 0;
    bool planned = false;
    double total_ms = 0;
    std::string cause;
};

/// All lines of all ledgers below `folder`, in the order of rounds, without duplicates. Each node
/// writes a ledger while it has group rank 0.
[[nodiscard]] std::vector<LedgerEntry> read_ledger(const std::string& folder);

/// From and to, in ns of CLOCK_MONOTONIC.
struct Interval {
    std::int64_t from = 0;
    std::int64_t to = 0;
};

/// Returns a sentence for each round with steps, after the first, that no entry leads to. Two kinds
/// of rounds may be missing: those that began in one of `excused`, and the last round of a daemon
/// that died in one of `deaths` and lost its journal.
[[nodiscard]] std::vector<std::string> check_ledger(const History& history,
                                                    const std::vector<LedgerEntry>& entries,
                                                    const std::vector<Interval>& excused = {},
                                                    const std::vector<Interval>& deaths = {});

/// Runs `regroup replay` over the daemon's journal of that job. Returns its complaints.
[[nodiscard]] std::vector<std::string> replay(const std::string& regroup,
                                              const std::string& state_folder,
                                              const std::string& job);

}  // namespace regroup::chaos
