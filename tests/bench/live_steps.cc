// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/live_steps.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/support/program.h"

namespace regroup::bench {
namespace {

using chaos::Record;
using chaos::RecordKind;

std::int64_t ns_of(LiveSteps::Time time) {
    return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

}  // namespace

void LiveSteps::read() {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
        File& file = files_[entry.path()];
        std::ifstream stream(entry.path(), std::ios::binary);
        stream.seekg(static_cast<std::streamoff>(file.bytes));
        for (Record record; stream.read(reinterpret_cast<char*>(&record), sizeof record);) {
            file.records.push_back(record);
            file.bytes += sizeof record;
        }
    }
}

std::optional<LiveSteps::Time> LiveSteps::find_round(Time since, std::uint32_t world_size) const {
    /// By round and rank: when its first step was applied.
    std::map<std::uint64_t, std::map<std::uint32_t, std::int64_t>> firsts;
    std::map<std::uint64_t, std::uint32_t> worlds;
    for (const auto& [path, file] : files_) {
        std::optional<Record> round;
        for (const Record& record : file.records) {
            if (record.kind == RecordKind::round) {
                round = record.at > ns_of(since) ? std::optional(record) : std::nullopt;
            } else if (record.kind == RecordKind::step && round) {
                firsts[record.round].emplace(record.rank, record.at);
                worlds[record.round] = record.world_size;
                round.reset();
            }
        }
    }
    for (const auto& [round, ranks] : firsts) {
        const std::uint32_t world = worlds.at(round);
        if (ranks.size() == world && (world_size == 0 || world == world_size)) {
            std::int64_t last = 0;
            for (const auto& [rank, at] : ranks) {
                last = std::max(last, at);
            }
            return Time(std::chrono::nanoseconds(last));
        }
    }
    return std::nullopt;
}

std::optional<LiveSteps::Time> LiveSteps::await_round(Time since, std::uint32_t world_size,
                                                      std::chrono::milliseconds limit) {
    std::optional<Time> found;
    testing::eventually(
        [&] {
            read();
            found = find_round(since, world_size);
            return found.has_value();
        },
        limit);
    return found;
}

std::vector<std::int64_t> LiveSteps::times(Time from, Time to) {
    read();
    std::map<std::uint64_t, std::int64_t> firsts;  // By step.
    for (const auto& [path, file] : files_) {
        for (const Record& record : file.records) {
            if (record.kind == RecordKind::step) {
                const auto [entry, is_new] = firsts.emplace(record.step, record.at);
                entry->second = std::min(entry->second, record.at);
            }
        }
    }
    std::vector<std::int64_t> result;
    for (const auto& [step, at] : firsts) {
        if (at >= ns_of(from) && at < ns_of(to)) {
            result.push_back(at);
        }
    }
    std::sort(result.begin(), result.end());
    return result;
}

std::size_t LiveSteps::steps_between(Time from, Time to) {
    return times(from, to).size();
}

std::chrono::duration<double> LiveSteps::longest_pause(Time from, Time to) {
    std::int64_t last = ns_of(from);
    std::int64_t longest = 0;
    for (const std::int64_t at : times(from, to)) {
        longest = std::max(longest, at - last);
        last = at;
    }
    return std::chrono::nanoseconds(std::max(longest, ns_of(to) - last));
}

}  // namespace regroup::bench
