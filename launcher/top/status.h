// SPDX-License-Identifier: Apache-2.0
//
// The part of a daemon's JSON status that commands show, as values. Texts are printable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/clock.h"

namespace regroup::launcher::top {

struct NodeRow {
    std::string name;
    std::string address;
    std::string place;
    std::string ranks;  ///< "0-7" or "-".
    std::optional<std::uint64_t> first_rank;
    std::string state;
    std::uint64_t step = 0;
    Duration silent{};
    std::string detail;
};

struct Incident {
    bool planned = false;
    std::string text;  ///< The next round, the time, the cause and the decision.
};

struct LastFailure {
    std::string time;
    std::string text;
    std::vector<std::string> last_output;
};

struct Job {
    std::string id;
    /// Of a closed job, how it ended: "failed"; "stalled", if no step comes any more.
    std::string phase;
    std::string text;  ///< Its activity, or its wait, in a sentence.
    std::string journal;
    std::uint64_t round = 0;
    std::uint64_t ranks = 0;
    std::uint64_t step = 0;
    std::uint64_t restarts = 0;
    double step_rate = 0;
    Duration age{};
    /// Productive time as a part of all time since the first round trained, from 0 to 1.
    std::optional<double> goodput;
    std::vector<NodeRow> nodes;
    std::uint64_t nodes_left_out = 0;
    std::size_t members = 0;
    std::vector<std::string> quarantined;
    std::string budgets;
    std::string recoveries;           ///< How many, and their time.
    std::vector<Incident> incidents;  ///< The newest first.
    std::optional<LastFailure> failure;
    std::vector<double> rates;  ///< Steps per second over the life of the job, oldest first.
    Duration rates_over{};      ///< Between two of them.
    std::string telemetry;      ///< The values that the program reports.
    std::string snapshots;      ///< The newest steps that are kept, and where.
};

struct Status {
    std::vector<Job> jobs;
    std::uint64_t jobs_left_out = 0;
};

/// Nothing if `json_text` is no status. Missing or malformed fields are empty.
[[nodiscard]] std::optional<Status> parse_status(const std::string& json_text);

/// "12.3", "250", or "-" if there is none.
[[nodiscard]] std::string rate_text(double rate);
/// "12345", or "-" if there is none: the program does not tell its steps, or not yet.
[[nodiscard]] std::string step_text(std::uint64_t step);
/// "98.7 %" or "-".
[[nodiscard]] std::string goodput_text(const std::optional<double>& goodput);

}  // namespace regroup::launcher::top
