// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/records.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>

#include <nlohmann/json.hpp>

#include "tests/support/program.h"

namespace regroup::chaos {

std::vector<LedgerEntry> read_ledger(const std::string& folder) {
    std::map<std::uint64_t, LedgerEntry> entries;
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
        if (file.path().filename() != "recoveries.jsonl") {
            continue;
        }
        for (const std::string& line : testing::lines_of(testing::read_file(file.path()))) {
            const auto json = nlohmann::json::parse(line, nullptr, false);
            if (!json.is_object()) {
                continue;
            }
            LedgerEntry entry;
            entry.round = json.value("round", std::uint64_t{0});
            entry.next_round = json.value("next_round", std::uint64_t{0});
            entry.planned = json.value("planned", false);
            entry.total_ms = json.value("total_ms", 0.0);
            entry.cause = json.value("cause", std::string());
            entries[entry.next_round] = entry;
        }
    }
    std::vector<LedgerEntry> result;
    for (auto& [round, entry] : entries) {
        result.push_back(std::move(entry));
    }
    return result;
}

std::vector<std::string> check_ledger(const History& history,
                                      const std::vector<LedgerEntry>& entries,
                                      const std::vector<Interval>& excused,
                                      const std::vector<Interval>& deaths) {
    // A daemon that lost its journal knows no earlier round, and leaves a gap in the numbers.
    constexpr std::uint64_t kGap = 90;
    const auto is_within = [](const std::vector<Interval>& times, std::int64_t at) {
        return std::any_of(times.begin(), times.end(),
                           [&](const Interval& when) { return when.from <= at && at <= when.to; });
    };
    std::vector<std::string> result;
    std::uint64_t last = 0;
    for (auto it = history.rounds.begin(); it != history.rounds.end(); ++it) {
        const auto& [round, seen] = *it;
        const auto next = std::next(it);
        const bool first = last == 0 || round - last > kGap;
        const bool forgotten = next != history.rounds.end() && next->first - round > kGap &&
                               is_within(deaths, seen.first_at);
        last = round;
        const bool is_told =
            std::any_of(entries.begin(), entries.end(), [&, number = round](const auto& entry) {
                return entry.next_round == number && !entry.cause.empty();
            });
        if (!first && !forgotten && !is_told && !is_within(excused, seen.first_at)) {
            result.push_back("nothing leads to round " + std::to_string(round) +
                             ", which did steps " + std::to_string(seen.first_step) + " to " +
                             std::to_string(seen.last_step));
        }
    }
    return result;
}

std::vector<std::string> replay(const std::string& regroup, const std::string& state_folder,
                                const std::string& job) {
    constexpr std::chrono::seconds kLimit(120);
    std::string file;
    std::string put_aside;  // A journal that a daemon abandoned when its disk was full.
    for (const auto& entry : std::filesystem::recursive_directory_iterator(state_folder)) {
        const std::string extension = entry.path().extension();
        if (extension == ".sqlite" || extension == ".db" || extension == ".sqlite3") {
            file = entry.path();
        } else if (extension == ".broken") {
            put_aside = entry.path();
        }
    }
    file = file.empty() ? put_aside : file;
    if (file.empty()) {
        return {"there is no journal in " + state_folder};
    }
    testing::Program program({{regroup, "replay", "--job=" + job, file}, {}, ""});
    const auto code = program.wait(kLimit);
    if (code == 0) {
        return {};
    }
    std::vector<std::string> lines = testing::lines_of(program.output());
    constexpr std::size_t kLines = 10;
    lines.erase(lines.begin(),
                lines.end() - static_cast<std::ptrdiff_t>(std::min(lines.size(), kLines)));
    lines.insert(lines.begin(), code ? "exit code " + std::to_string(*code) : "it did not end");
    return lines;
}

}  // namespace regroup::chaos
