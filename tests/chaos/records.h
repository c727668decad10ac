// SPDX-License-Identifier: Apache-2.0
//
// What the product itself writes down of a run, compared with what the workers saw.
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

/// All lines of all ledgers below `folder`: each node has written what happened while it had group
/// rank 0. In the order of rounds, each once.
[[nodiscard]] std::vector<LedgerEntry> read_ledger(const std::string& folder);

/// From and to, in ns of CLOCK_MONOTONIC.
struct Interval {
    std::int64_t from = 0;
    std::int64_t to = 0;
};

/// A sentence for each round in which steps were applied, after the first, that no entry leads to,
/// unless it began in one of `excused`; or in one of `deaths`, of the daemon, and was the last that
/// its successor, which had lost the journal, has not heard of.
[[nodiscard]] std::vector<std::string> check_ledger(const History& history,
                                                    const std::vector<LedgerEntry>& entries,
                                                    const std::vector<Interval>& excused = {},
                                                    const std::vector<Interval>& deaths = {});

/// Runs `regroup replay` over the daemon's journal of that job; what it objects to.
[[nodiscard]] std::vector<std::string> replay(const std::string& regroup,
                                              const std::string& state_folder,
                                              const std::string& job);

}  // namespace regroup::chaos
