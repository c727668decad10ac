// SPDX-License-Identifier: Apache-2.0
// Evaluates a data set on all ranks with the results of a single process.
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
    /// Over all samples, each counted once. Throws Error `invalid_argument` if there is no such
    /// figure.
    [[nodiscard]] double sum(std::string_view figure) const;
    [[nodiscard]] double mean(std::string_view figure) const;

   private:
    std::uint64_t sample_count_;
    std::vector<std::string> figures_;
    std::vector<double> sums_;
};

/// Adds up figures over the samples of a data set, each rank on its shard: a loss, the number of
/// correct predictions, or any other sum over samples.
///
///     regroup::Evaluator evaluator(group, 1000, {"loss", "correct"});
///     const regroup::DistributedSampler sampler({.dataset_count = 1000,
///                                                .rank = group.rank(),
///                                                .world_size = group.world_size(),
///                                                .shuffle = false});
///     for (const std::uint64_t sample : sampler.indices()) {
///         const double loss = 1.0 / static_cast<double>(sample + 1);  // The model's.
///         evaluator.add({loss, loss < 0.5 ? 1.0 : 0.0});
///     }
///     std::printf("accuracy: %.3f\n", evaluator.finish().mean("correct"));
///
/// The figures equal those of a single process to the last bit, for any number of ranks: samples
/// that the sampler repeats as padding are left out, and sums are exact (ExactSum). The mean of the
/// means of the ranks has neither property. The model must give a sample the same score in any
/// batch, so it must not normalise over the batch.
///
/// One all-reduce of 568 bytes per figure. Used by the thread that issues the group's operations.
class Evaluator {
   public:
    /// `group` outlives the evaluator, and works on host memory (beside an "nccl" group, create a
    /// "cpu" group). Throws Error `invalid_argument` if there is no sample or no figure.
    Evaluator(ProcessGroup& group, std::uint64_t dataset_count, std::vector<std::string> figures);

    /// Adds the scores of this rank's next sample, one per figure. Call i is for position rank + i
    /// * world_size of the data set, as in DistributedSampler. A position beyond the end is
    /// padding: the call ignores it and returns false. Throws Error `invalid_argument` if the
    /// number of scores is wrong, or if there are more samples than a padded shard holds.
    bool add(std::span<const double> scores);
    bool add(std::initializer_list<double> scores) {
        return add(std::span(scores.begin(), scores.size()));
    }

    /// Collective: waits until all ranks have called it, and resets the evaluator. Throws Error on
    /// all ranks: `invalid_argument` if a sample was not scored; otherwise as the group.
    [[nodiscard]] EvaluationResult finish();

   private:
    ProcessGroup& group_;
    const std::uint64_t dataset_count_;
    const std::vector<std::string> figures_;
    std::uint64_t added_count_ = 0;
    std::vector<ExactSum> sums_;  // By figure; the last one counts the samples.
};

/// A row of `width` elements for each sample of a data set.
struct SampleRows {
    std::uint64_t dataset_count = 0;
    std::size_t width = 1;
};

/// Collects the rows of all ranks, predictions for instance, in the order of the data set: `output`
/// = [dataset_count, width] on every rank. With a `root`, only that rank gets them, and the
/// `output` of other ranks is ignored.
///
/// `mine` holds this rank's rows: row i is for position rank + i * world_size, the order of
/// DistributedSampler without shuffling. Rows that only pad the shards to equal length are
/// optional.
///
/// Called by every rank with the same `rows`; blocks. Needs memory for a second copy of the output.
/// Host memory only. Throws Error: `invalid_argument` naming the wrong count; otherwise as the
/// group.
void gather_in_order(ProcessGroup& group, ConstTensorView mine, const SampleRows& rows,
                     TensorView output, std::optional<std::uint32_t> root = std::nullopt);

}  // namespace regroup
