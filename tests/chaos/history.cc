// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/history.h"

#include <regroup/distributed_sampler.h>

#include <algorithm>
#include <optional>
#include <set>

#include "tests/chaos/model.h"

namespace regroup::chaos {
namespace {

class Judge {
   public:
    Judge(const std::vector<std::uint64_t>& digests, bool may_go_back)
        : digests_(digests), may_go_back_(may_go_back) {}

    History run(const std::vector<ProcessLog>& logs) {
        for (const ProcessLog& log : logs) {
            read(log);
        }
        check_rounds(logs);
        check_end(logs);
        result_.processes = logs.size();
        result_.steps = steps_of(logs);
        return std::move(result_);
    }

   private:
    void wrong(const std::string& text) {
        if (result_.wrongs.size() < kWrongsMax) {
            result_.wrongs.push_back(text);
        }
    }
    static std::string place(const Record& record) {
        return "step " + std::to_string(record.step) + " by rank " + std::to_string(record.rank) +
               " in round " + std::to_string(record.round);
    }

    void read(const ProcessLog& log) {
        std::optional<std::uint64_t> last;
        std::uint64_t round = 0;
        for (const Record& record : log.records) {
            if (record.round < round) {
                wrong("process " + log.name + " went back to round " +
                      std::to_string(record.round));
            }
            round = record.round;
            if (record.kind != RecordKind::step) {
                continue;
            }
            check_step(record);
            if (last && record.step <= *last) {
                wrong(place(record) + ": its process had applied step " + std::to_string(*last));
            }
            last = record.step;
            ++result_.applications;
            RoundHistory& seen = result_.rounds[record.round];
            if (ranks_[record.round].empty() || record.step < seen.first_step) {
                seen.first_step = record.step;
            }
            if (ranks_[record.round].empty() || record.at < seen.first_at) {
                seen.first_at = record.at;
            }
            seen.last_step = std::max(seen.last_step, record.step);
            seen.last_at = std::max(seen.last_at, record.at);
            if (seen.world_size != 0 && seen.world_size != record.world_size) {
                wrong(place(record) + ": the world has two sizes");
            }
            seen.world_size = record.world_size;
            if (!ranks_[record.round][record.step].insert(record.rank).second) {
                wrong(place(record) + ": twice");
            }
        }
    }
    void check_step(const Record& record) {
        if (record.step >= digests_.size() || record.digest != digests_[record.step]) {
            wrong(place(record) + ": the parameters differ from the undisturbed run's");
        }
        if (record.samples_begin != record.step * kBatch ||
            record.samples_end != (record.step + 1) * kBatch) {
            wrong(place(record) + ": samples " + std::to_string(record.samples_begin) + " to " +
                  std::to_string(record.samples_end));
        }
    }
    void check_rounds(const std::vector<ProcessLog>& logs) {
        for (const auto& [round, steps] : ranks_) {
            const RoundHistory& seen = result_.rounds[round];
            for (std::uint64_t step = seen.first_step; step < seen.last_step; ++step) {
                const auto found = steps.find(step);
                const std::size_t count = found != steps.end() ? found->second.size() : 0;
                if (count != seen.world_size) {
                    wrong("step " + std::to_string(step) + " in round " + std::to_string(round) +
                          " was applied by " + std::to_string(count) + " of " +
                          std::to_string(seen.world_size) + " ranks");
                }
            }
        }
        // A round must not begin before a step that its workers have applied.
        for (const ProcessLog& log : logs) {
            std::optional<Record> last;
            for (const Record& record : log.records) {
                const auto now = result_.rounds.find(record.round);
                if (last && record.round != last->round && now != result_.rounds.end() &&
                    now->second.first_step <= last->step) {
                    wrong("round " + std::to_string(record.round) + " began with step " +
                          std::to_string(now->second.first_step) + ", though its rank " +
                          std::to_string(record.rank) + " had applied step " +
                          std::to_string(last->step));
                }
                if (record.kind == RecordKind::step) {
                    last = record;
                }
            }
        }
        check_no_loss();
    }
    /// Each round starts where the last one ended, or repeats a last step that only lost ranks
    /// applied.
    void check_no_loss() {
        std::optional<std::uint64_t> most;
        for (const auto& [round, seen] : result_.rounds) {
            const std::uint64_t next = most ? *most + 1 : 0;
            if (seen.first_step > next || (seen.first_step + 1 < next && !may_go_back_)) {
                wrong("round " + std::to_string(round) + " began with step " +
                      std::to_string(seen.first_step) + ", after step " +
                      (most ? std::to_string(*most) : "none"));
            }
            most = std::max(most.value_or(0), seen.last_step);
        }
    }
    /// A rank ends after all steps. It may end before the last one if only lost ranks applied it,
    /// and the round that would repeat it ended before. A rank that applied it ends after it.
    [[nodiscard]] bool is_end(const ProcessLog& log, std::uint64_t steps) const {
        const Record& end = log.records.back();
        if (end.step == steps) {
            return true;
        }
        const bool knew_more =
            std::any_of(log.records.begin(), log.records.end(), [&](const Record& record) {
                return record.kind == RecordKind::step && record.step >= end.step;
            });
        return end.step + 1 == steps && end.round > result_.rounds.rbegin()->first && !knew_more;
    }
    void check_end(const std::vector<ProcessLog>& logs) {
        const std::uint64_t steps = may_go_back_ && !result_.rounds.empty()
                                        ? result_.rounds.rbegin()->second.last_step + 1
                                        : steps_of(logs);
        std::set<std::uint32_t> ranks;
        std::set<std::uint64_t> ends;
        std::uint32_t world_size = 0;
        for (const ProcessLog& log : logs) {
            if (log.records.empty() || log.records.back().kind != RecordKind::finished) {
                continue;
            }
            const Record& end = log.records.back();
            ranks.insert(end.rank);
            ends.insert(end.step);
            world_size = end.world_size;
            result_.digest = end.digest;
            if (!is_end(log, steps) || (end.step > 0 && end.digest != digests_.at(end.step - 1))) {
                wrong("rank " + std::to_string(end.rank) + " finished after " +
                      std::to_string(end.step) + " steps of " + std::to_string(steps) +
                      ", or with other parameters");
            }
        }
        if (ends.size() > 1) {
            wrong("ranks finished after " + std::to_string(*ends.begin()) + " steps and after " +
                  std::to_string(*ends.rbegin()));
        }
        if (ranks.empty() || ranks.size() != world_size) {
            wrong(std::to_string(ranks.size()) + " of " + std::to_string(world_size) +
                  " ranks said that training is over");
        }
    }

    const std::vector<std::uint64_t>& digests_;
    const bool may_go_back_;
    History result_;
    /// Ranks that applied a step, by round and step.
    std::map<std::uint64_t, std::map<std::uint64_t, std::set<std::uint32_t>>> ranks_;
};

}  // namespace

History judge(const std::vector<ProcessLog>& logs, const std::vector<std::uint64_t>& digests,
              bool may_go_back) {
    return Judge(digests, may_go_back).run(logs);
}

std::uint64_t steps_of(const std::vector<ProcessLog>& logs) {
    std::uint64_t result = 0;
    for (const ProcessLog& log : logs) {
        for (const Record& record : log.records) {
            if (record.kind == RecordKind::step) {
                result = std::max(result, record.step + 1);
            }
        }
    }
    return result;
}

std::vector<std::uint64_t> undisturbed(std::uint64_t steps, std::size_t weights) {
    Model model(weights);
    const DistributedSampler sampler({.dataset_count = kDataset});
    std::vector<std::int64_t> gradient(weights);
    std::vector<std::uint64_t> result;
    for (std::uint64_t step = 0; step < steps; ++step) {
        std::fill(gradient.begin(), gradient.end(), 0);
        for (std::uint64_t position = step * kBatch; position < (step + 1) * kBatch; ++position) {
            model.add_gradient(sampler.index_at(position), gradient);
        }
        model.apply(gradient);
        result.push_back(model.digest());
    }
    return result;
}

}  // namespace regroup::chaos
