// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/snapshot_history.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "tests/chaos/history.h"

namespace regroup::chaos {
namespace {

constexpr const char* kSnapshotExtension = ".snapshots";

/// The events of a round.
struct LoadRound {
    std::uint32_t world_size = 0;
    std::uint32_t nodes = 0;
    std::int64_t begun_at = std::numeric_limits<std::int64_t>::max();
    std::map<std::uint32_t, std::int64_t> agents;            ///< By group rank.
    std::map<std::uint64_t, std::set<std::uint32_t>> saved;  ///< Ranks, by step.
    std::uint64_t folder_step = kNoStep;
    std::uint64_t loaded_step = kNoStep;

    /// The agent with the copies of what that node has saved; 0 if it is not known.
    [[nodiscard]] std::int64_t holder(std::uint32_t node) const {
        const auto found = agents.find((node + nodes / 2) % nodes);
        return found != agents.end() ? found->second : 0;
    }
    /// Whether all ranks have saved the step.
    [[nodiscard]] bool has(std::uint64_t step) const {
        const auto found = saved.find(step);
        return found != saved.end() && found->second.size() == world_size;
    }
    [[nodiscard]] std::optional<std::uint64_t> newest_of_all() const {
        for (auto step = saved.rbegin(); step != saved.rend(); ++step) {
            if (has(step->first)) {
                return step->first;
            }
        }
        return std::nullopt;
    }
};
using LoadRounds = std::map<std::uint64_t, LoadRound>;

/// A step that was there in a round.
struct Known {
    std::uint64_t round = 0;
    std::uint64_t step = 0;
};

std::string text_of(std::uint64_t step) {
    return step == kNoStep ? "nothing" : "step " + std::to_string(step);
}

class LoadJudge {
   public:
    explicit LoadJudge(std::uint64_t interval) : interval_(interval) {}

    SnapshotHistory run(const std::vector<Records<SnapshotRecord>>& logs) {
        for (const auto& log : logs) {
            records_.insert(records_.end(), log.records.begin(), log.records.end());
        }
        std::sort(records_.begin(), records_.end(),
                  [](const SnapshotRecord& a, const SnapshotRecord& b) { return a.at < b.at; });
        for (const SnapshotRecord& record : records_) {
            if (record.event == SnapshotEvent::begun) {
                begin(record);
            }
        }
        for (const auto& [number, round] : rounds_) {
            hear_until(round.begun_at);
            if (const auto step = loaded_in(number, round)) {
                check(number, round, *step);
            }
        }
        return std::move(result_);
    }

   private:
    static void wrong(std::vector<std::string>& wrongs, const std::string& text) {
        if (wrongs.size() < kWrongsMax) {
            wrongs.push_back(text);
        }
    }

    void begin(const SnapshotRecord& record) {
        LoadRound& round = rounds_[record.round];
        round.world_size = record.world_size;
        round.nodes = record.nodes;
        round.begun_at = std::min(round.begun_at, record.at);
        round.agents[record.node] = record.agent;
        if (round.folder_step == kNoStep || round.begun_at == record.at) {
            round.folder_step = record.folder_step;
        }
    }

    /// Takes in all that was told before `at`.
    void hear_until(std::int64_t at) {
        for (; heard_ < records_.size() && records_[heard_].at < at; ++heard_) {
            const SnapshotRecord& record = records_[heard_];
            const auto newer = [&](const std::optional<Known>& known) {
                return !known ||
                       std::pair(record.round, record.step) > std::pair(known->round, known->step);
            };
            LoadRound& round = rounds_[record.round];
            if (record.event == SnapshotEvent::saved) {
                round.saved[record.step].insert(record.rank);
            }
            if (record.round < since_) {
                continue;  // Before a loss: it does not bind any more.
            }
            if (record.event == SnapshotEvent::kept && newer(kept_)) {
                kept_ = Known{record.round, record.step};
            }
            if (record.event == SnapshotEvent::loaded) {
                round.loaded_step = record.step;
            }
            // The loaded version is where it was before, and maybe nowhere else.
            const bool is_new = record.step != round.loaded_step;
            const bool is_whole = (record.event == SnapshotEvent::whole && is_new) ||
                                  (record.event == SnapshotEvent::saved && round.has(record.step));
            if (is_whole && newer(whole_)) {
                whole_ = Known{record.round, record.step};
            }
        }
    }

    /// The step that the ranks of a round have loaded; none if no rank has come so far.
    std::optional<std::uint64_t> loaded_in(std::uint64_t number, const LoadRound& round) {
        std::optional<std::uint64_t> step;
        for (const SnapshotRecord& record : records_) {
            if (record.event != SnapshotEvent::loaded || record.round != number) {
                continue;
            }
            const std::string rank =
                "rank " + std::to_string(record.rank) + " in round " + std::to_string(number);
            if (step && *step != record.step) {
                wrong(result_.different,
                      rank + " loaded " + text_of(record.step) + ", another one " + text_of(*step));
            }
            if (record.is_intact == 0) {
                wrong(result_.different, rank + " loaded " + text_of(record.step) +
                                             ", which has values of another one");
            }
            step = record.step;
        }
        result_.loads += step && round.world_size > 0 ? 1 : 0;
        return step;
    }

    enum class Left : std::uint8_t { all, copies, too_little };
    /// How much the agents of `round` still have from the rounds from `first` on.
    [[nodiscard]] Left left_in(std::uint64_t first, std::uint64_t number,
                               const LoadRound& round) const {
        std::set<std::int64_t> present;
        for (const auto& [node, agent] : round.agents) {
            present.insert(agent);
        }
        Left left = Left::all;
        for (auto before = rounds_.lower_bound(first);
             before != rounds_.end() && before->first < number; ++before) {
            for (const auto& [node, agent] : before->second.agents) {
                if (present.contains(agent)) {
                    continue;
                }
                if (!present.contains(before->second.holder(node))) {
                    return Left::too_little;
                }
                left = Left::copies;
            }
        }
        return left;
    }

    void check(std::uint64_t number, const LoadRound& round, std::uint64_t step) {
        const auto is_older = [step](std::uint64_t wanted) {
            return step == kNoStep || step < wanted;
        };
        const std::string what = "round " + std::to_string(number) + " loaded " + text_of(step);
        const auto since = [](const Known& known) {
            return " " + std::to_string(known.step) + " of round " + std::to_string(known.round);
        };
        if (kept_) {
            const Left left = left_in(kept_->round, number, round);
            result_.bound += left != Left::too_little ? 1 : 0;
            result_.excused += left == Left::too_little ? 1 : 0;
            result_.from_other_memory += left == Left::copies ? 1 : 0;
            if (left != Left::too_little && is_older(kept_->step)) {
                wrong(result_.lost, what + ", although step" + since(*kept_) + " was kept");
            }
        }
        if (whole_) {
            const Left left = left_in(whole_->round, number, round);
            const std::uint64_t lost = left == Left::all ? 0 : interval_;
            const std::uint64_t least = whole_->step - std::min(lost, whole_->step);
            if (left != Left::too_little && least > 0 && is_older(least)) {
                wrong(result_.too_old, what + ", although all ranks had saved step" +
                                           since(*whole_) +
                                           (lost == 0 ? "" : ", and a node was lost since"));
            }
        }
        if (round.folder_step != kNoStep && is_older(round.folder_step)) {
            wrong(result_.behind_folder, what + ", although step " +
                                             std::to_string(round.folder_step) +
                                             " was in the folder");
        }
        if ((kept_ && is_older(kept_->step)) || (whole_ && is_older(whole_->step))) {
            since_ = number;
            kept_ = kept_ && is_older(kept_->step) ? std::nullopt : kept_;
            whole_.reset();
        }
    }

    const std::uint64_t interval_;
    std::vector<SnapshotRecord> records_;
    std::size_t heard_ = 0;
    LoadRounds rounds_;
    std::uint64_t since_ = 0;
    std::optional<Known> kept_;
    std::optional<Known> whole_;
    SnapshotHistory result_;
};

}  // namespace

SnapshotLog::SnapshotLog(const std::string& folder) : file_(folder, kSnapshotExtension) {}

void SnapshotLog::write(SnapshotRecord record) {
    record.at = monotonic_ns();
    file_.append(std::as_bytes(std::span(&record, 1)));
}

std::vector<Records<SnapshotRecord>> read_snapshot_logs(const std::string& folder) {
    return read_records<SnapshotRecord>(folder, kSnapshotExtension);
}

std::uint64_t newest_in_folder(const std::string& folder) {
    std::string newest;
    std::error_code error;
    for (std::filesystem::directory_iterator at(folder + "/state", error), end; !error && at != end;
         at.increment(error)) {
        std::error_code absent;
        if (std::filesystem::exists(at->path() / "snapshot.json", absent)) {
            newest = std::max(newest, at->path().filename().string());
        }
    }
    // HISTORY-ROUND-STEP, each with zeros in front.
    return newest.empty()
               ? kNoStep
               : std::strtoull(newest.substr(newest.rfind('-') + 1).c_str(), nullptr, 10);
}

SnapshotHistory judge_snapshots(const std::vector<Records<SnapshotRecord>>& logs,
                                std::uint64_t interval) {
    return LoadJudge(interval).run(logs);
}

std::optional<std::uint64_t> last_saved_by_all(const std::vector<Records<SnapshotRecord>>& logs) {
    LoadRounds rounds;
    for (const auto& log : logs) {
        for (const SnapshotRecord& record : log.records) {
            if (record.event == SnapshotEvent::saved) {
                LoadRound& round = rounds[record.round];
                round.world_size = record.world_size;
                round.saved[record.step].insert(record.rank);
            }
        }
    }
    for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
        if (const auto step = round->second.newest_of_all()) {
            return step;
        }
    }
    return std::nullopt;
}

}  // namespace regroup::chaos
