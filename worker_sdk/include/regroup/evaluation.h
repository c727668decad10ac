// SPDX-License-Identifier: Apache-2.0
// Scoring and predicting a data set with all ranks, as if with one.
#pragma once

#include <regroup/exact_sum.h>
#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// The figures of a whole data set, the same on every rank.
class EvaluationResult {
   public:
    EvaluationResult(std::uint64_t sample_count, std::vector<std::string> figures,
                     std::vector<double> sums);

    [[nodiscard]] std::uint64_t sample_count() const noexcept { return sample_count_; }
    /// Over all samples, each counted once. Throw Error `invalid_argument` if there is no such
    /// figure.
    [[nodiscard]] double sum(std::string_view figure) const;
    [[nodiscard]] double mean(std::string_view figure) const;

   private:
    std::uint64_t sample_count_;
    std::vector<std::string> figures_;
    std::vector<double> sums_;
};

/// Adds up what the ranks find, each on its shard of a data set: a loss, the number of right
/// guesses, or whatever else is a sum over samples.
///
///     Evaluator evaluator(group, dataset_count, {"loss", "correct"});
///     for (const auto sample : sampler.indices()) {  // rank, rank + world_size, ...
///         evaluator.add({loss_of(sample), is_right(sample) ? 1.0 : 0.0});
///     }
///     const double accuracy = evaluator.finish().mean("correct");
///
/// The figures are those of a single process, to the last bit, whatever the number of ranks:
/// samples that the sampler repeats to give every rank equally many are left out, and sums are
/// exact (ExactSum). Averaging the ranks' averages is neither. It takes a model that scores a
/// sample alike in any batch: not one that normalises over its batch.
///
/// One all-reduce of 568 bytes per figure. Used by the thread that issues the group's operations.
class Evaluator {
   public:
    /// `group` outlives the evaluator, and works on host memory (beside an "nccl" group, make a
    /// "cpu" one). Throws Error `invalid_argument` if there is no sample or no figure.
    Evaluator(ProcessGroup& group, std::uint64_t dataset_count, std::vector<std::string> figures);

    /// The scores of this rank's next sample, one per figure. Call i is for position rank + i *
    /// world_size of the data set: DistributedSampler's order. A position beyond the end is
    /// padding: it is left out, and false returned. Throws Error `invalid_argument` if the number
    /// of scores is wrong, or if there are more samples than a padded shard holds.
    bool add(std::span<const double> scores);
    bool add(std::initializer_list<double> scores) {
        return add(std::span(scores.begin(), scores.size()));
    }

    /// Collective: waits until all ranks have come, and starts anew. Throws Error, on all ranks:
    /// `invalid_argument` if not every sample was scored; otherwise as the group.
    [[nodiscard]] EvaluationResult finish();

   private:
    ProcessGroup& group_;
    const std::uint64_t dataset_count_;
    const std::vector<std::string> figures_;
    std::uint64_t added_count_ = 0;
    std::vector<ExactSum> sums_;  // by figure, then the number of samples
};

/// What each sample of a data set has become: `width` elements.
struct SampleRows {
    std::uint64_t dataset_count = 0;
    std::size_t width = 1;
};

/// Collects what the ranks made of their shards, predictions for instance, in the order of the data
/// set: `output` = [dataset_count, width] on every rank, or, given a `root`, on that rank alone,
/// when the others' `output` is not looked at.
///
/// `mine` holds this rank's rows: row i is for position rank + i * world_size, DistributedSampler's
/// order without shuffling. Rows that only pad the shards to equal length may be there or not.
///
/// Called by every rank with the same `rows`; blocks. Costs a second copy of the output while it
/// runs. Host memory only. Throws Error: `invalid_argument` naming the count that is wrong;
/// otherwise as the group.
void gather_in_order(ProcessGroup& group, ConstTensorView mine, const SampleRows& rows,
                     TensorView output, std::optional<std::uint32_t> root = std::nullopt);

}  // namespace regroup
