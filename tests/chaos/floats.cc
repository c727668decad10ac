// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/floats.h"

#include <regroup/distributed_sampler.h>
#include <regroup/error.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <memory>
#include <thread>

#include "tests/chaos/model.h"

namespace regroup::chaos {
namespace {

constexpr std::size_t kSmall = 64;
constexpr std::uint64_t kAllEvery = 8;
constexpr std::chrono::minutes kPatience(5);

/// Values of both signs and of very different magnitudes, so that the order of summation matters.
float pull(std::uint64_t mixed) noexcept {
    constexpr unsigned kMantissa = 24;
    constexpr unsigned kMagnitudes = 20;
    const auto value = static_cast<float>(mixed & ((1U << kMantissa) - 1)) / (1U << kMantissa);
    const auto scale = static_cast<float>(1U << ((mixed >> kMantissa) % kMagnitudes));
    return (mixed >> 63U) != 0 ? -value * scale : value * scale;
}

/// The undisturbed job: its states after the last steps. A round may repeat the last step.
class Undisturbed {
   public:
    Undisturbed(std::size_t count, std::uint32_t workers) : count_(count), workers_(workers) {}

    /// The digests after the steps of a round, by step. Empty if the round does not start from one
    /// of the stored states.
    std::map<std::uint64_t, std::uint64_t> run(const RoundHistory& round) {
        if (round.first_step > 0 && states_.count(round.first_step - 1) == 0) {
            return {};
        }
        const FloatModel begin =
            round.first_step > 0 ? states_.at(round.first_step - 1) : FloatModel(count_);
        std::map<std::uint64_t, FloatModel> states;
        std::map<std::uint64_t, std::uint64_t> digests;
        const auto& groups = groups_of(round.world_size);
        std::vector<std::jthread> threads;
        for (std::uint32_t rank = 0; rank < round.world_size; ++rank) {
            threads.emplace_back([&, rank] {
                FloatModel model = begin;
                for (std::uint64_t step = round.first_step; step <= round.last_step; ++step) {
                    take_step(model, step, *groups[rank]);
                    if (rank == 0) {
                        digests[step] = model.digest();
                    }
                    if (rank == 0 && step + 1 >= round.last_step) {
                        states.emplace(step, model);
                    }
                }
            });
        }
        threads.clear();
        if (round.first_step == round.last_step && round.first_step > 0) {
            states.emplace(round.first_step - 1, begin);
        }
        states_ = std::move(states);
        return digests;
    }

    /// The digest after so many steps; 0 if that state is not stored.
    [[nodiscard]] std::uint64_t digest_after(std::uint64_t steps) const {
        const auto found = states_.find(steps - 1);
        return found != states_.end() ? found->second.digest() : 0;
    }

   private:
    using Groups = std::vector<std::unique_ptr<ProcessGroup>>;

    static void take_step(FloatModel& model, std::uint64_t step, ProcessGroup& group) {
        const DistributedSampler sampler(
            {.dataset_count = kDataset, .rank = group.rank(), .world_size = group.world_size()});
        model.compute(step, group.rank(), sampler.shard({step * kBatch, (step + 1) * kBatch}),
                      group);
        model.apply(step);
    }

    const Groups& groups_of(std::uint32_t world_size) {
        Groups& groups = groups_[world_size];
        if (groups.empty()) {
            groups.resize(world_size);
            const auto store = make_local_store(kPatience);
            std::vector<std::jthread> threads;
            for (std::uint32_t rank = 0; rank < world_size; ++rank) {
                threads.emplace_back([&, rank] {
                    Context context = place(rank, world_size, workers_);
                    context.use_store(store);
                    groups[rank] = ProcessGroup::create("cpu", context, {.timeout = kPatience});
                });
            }
        }
        return groups;
    }

    std::size_t count_;
    std::uint32_t workers_;
    std::map<std::uint64_t, FloatModel> states_;  ///< By their last step.
    std::map<std::uint32_t, Groups> groups_;      ///< By their size.
};

}  // namespace

std::size_t FloatModel::count_at(std::uint64_t step) const noexcept {
    return step % kAllEvery == 0 ? values_.size() : std::min(kSmall, values_.size());
}

void FloatModel::compute(std::uint64_t step, std::uint32_t rank,
                         std::span<const std::uint64_t> samples, ProcessGroup& group) {
    const std::span<float> gradient = std::span(gradient_).first(count_at(step));
    std::fill(gradient.begin(), gradient.end(), 0.0F);
    for (const std::uint64_t sample : samples) {
        const std::uint64_t seed = mix(sample ^ mix(rank));
        for (std::size_t i = 0; i < gradient.size(); ++i) {
            gradient[i] +=
                pull(mix(seed ^ mix(i ^ std::uint64_t{std::bit_cast<std::uint32_t>(values_[i])})));
        }
    }
    group.all_reduce(TensorView(gradient), ReduceOp::sum).wait();
}

void FloatModel::apply(std::uint64_t step) noexcept {
    constexpr float kDecay = 0.5F;
    for (std::size_t i = 0; i < count_at(step); ++i) {
        values_[i] = values_[i] * kDecay + gradient_[i];
    }
}

std::uint64_t FloatModel::digest() const noexcept {
    std::uint64_t result = values_.size();
    for (const float value : values_) {
        result = mix(result ^ std::bit_cast<std::uint32_t>(value));
    }
    return result;
}

Context place(std::uint32_t rank, std::uint32_t world_size, std::uint32_t workers) {
    Context context;
    context.rank = rank;
    context.world_size = world_size;
    context.group_rank = rank / workers;
    context.group_world_size = (world_size + workers - 1) / workers;
    context.local_rank = rank % workers;
    context.local_world_size = std::min(workers, world_size - context.group_rank * workers);
    return context;
}

std::vector<std::string> check_floats(const std::vector<ProcessLog>& logs, const History& history,
                                      std::size_t count, std::uint32_t workers) {
    std::vector<std::string> result;
    const auto compare = [&](const Record& record, std::uint64_t floats) {
        if (record.floats != floats && result.size() < kWrongsMax) {
            result.push_back((record.kind == RecordKind::step ? "step " : "after step ") +
                             std::to_string(record.step) + " by rank " +
                             std::to_string(record.rank) + " of " +
                             std::to_string(record.world_size) + " in round " +
                             std::to_string(record.round) + ": the floats have other bits");
        }
    };
    std::map<std::uint64_t, std::vector<Record>> applied;
    std::vector<Record> ends;
    for (const ProcessLog& log : logs) {
        for (const Record& record : log.records) {
            if (record.kind == RecordKind::step) {
                applied[record.round].push_back(record);
            } else if (record.kind == RecordKind::finished && record.step > 0) {
                ends.push_back(record);
            }
        }
    }
    Undisturbed job(count, workers);
    for (const auto& [round, seen] : history.rounds) {
        const auto digests = job.run(seen);
        for (const Record& record : applied[round]) {
            const auto found = digests.find(record.step);
            compare(record, found != digests.end() ? found->second : 0);
        }
    }
    for (const Record& end : ends) {
        compare(end, job.digest_after(end.step));
    }
    return result;
}

}  // namespace regroup::chaos
