// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/evaluation.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace regroup {
namespace {

[[noreturn]] void refuse(const std::string& detail) {
    throw Error(Errc::invalid_argument, detail);
}

/// How many of the positions rank, rank + world_size, ... are below `count`.
std::uint64_t shard_count(std::uint64_t count, const ProcessGroup& group) {
    const std::uint64_t rank = group.rank();
    return count <= rank ? 0 : (count - rank - 1) / group.world_size() + 1;
}

std::uint64_t padded_shard_count(std::uint64_t count, const ProcessGroup& group) {
    return (count + group.world_size() - 1) / group.world_size();
}

std::string rank_of(const ProcessGroup& group) {
    return "rank " + std::to_string(group.rank());
}

}  // namespace

EvaluationResult::EvaluationResult(std::uint64_t sample_count, std::vector<std::string> figures,
                                   std::vector<double> sums)
    : sample_count_(sample_count), figures_(std::move(figures)), sums_(std::move(sums)) {}

double EvaluationResult::sum(std::string_view figure) const {
    const auto found = std::ranges::find(figures_, figure);
    if (found == figures_.end()) {
        refuse("evaluation: there is no figure '" + std::string(figure) + "'");
    }
    return sums_[static_cast<std::size_t>(found - figures_.begin())];
}

double EvaluationResult::mean(std::string_view figure) const {
    return sum(figure) / static_cast<double>(sample_count_);
}

Evaluator::Evaluator(ProcessGroup& group, std::uint64_t dataset_count,
                     std::vector<std::string> figures)
    : group_(group),
      dataset_count_(dataset_count),
      figures_(std::move(figures)),
      sums_(figures_.size() + 1) {
    if (dataset_count_ == 0 || figures_.empty()) {
        refuse(dataset_count_ == 0 ? "evaluation: the data set is empty"
                                   : "evaluation: no figure is named");
    }
}

bool Evaluator::add(std::span<const double> scores) {
    if (scores.size() != figures_.size()) {
        refuse("evaluation: " + std::to_string(scores.size()) + " scores for " +
               std::to_string(figures_.size()) + " figures");
    }
    if (added_count_ == padded_shard_count(dataset_count_, group_)) {
        refuse("evaluation: " + rank_of(group_) + " adds more than the " +
               std::to_string(added_count_) + " samples of its shard of " +
               std::to_string(dataset_count_));
    }
    const std::uint64_t position =
        group_.rank() + added_count_ * std::uint64_t{group_.world_size()};
    ++added_count_;
    if (position >= dataset_count_) {
        return false;
    }
    for (std::size_t i = 0; i < scores.size(); ++i) {
        sums_[i].add(scores[i]);
    }
    sums_.back().add(1.0);
    return true;
}

EvaluationResult Evaluator::finish() {
    std::vector<ExactSum> sums = std::exchange(sums_, std::vector<ExactSum>(sums_.size()));
    added_count_ = 0;
    sum_over_ranks(group_, sums);
    const auto scored_count = static_cast<std::uint64_t>(sums.back().value());
    if (scored_count != dataset_count_) {
        refuse("evaluation: only " + std::to_string(scored_count) + " of the " +
               std::to_string(dataset_count_) + " samples were scored");
    }
    std::vector<double> values(figures_.size());
    std::transform(sums.begin(), sums.end() - 1, values.begin(),
                   [](const ExactSum& sum) { return sum.value(); });
    return {dataset_count_, figures_, std::move(values)};
}

void gather_in_order(ProcessGroup& group, ConstTensorView mine, const SampleRows& rows,
                     TensorView output, std::optional<std::uint32_t> root) {
    const std::uint64_t exact = shard_count(rows.dataset_count, group);
    const std::uint64_t padded = padded_shard_count(rows.dataset_count, group);
    if (mine.count != exact * rows.width && mine.count != padded * rows.width) {
        refuse("gather_in_order: " + rank_of(group) + " has " + std::to_string(mine.count) +
               " elements; its " + std::to_string(exact) + " rows of " +
               std::to_string(rows.width) + " (" + std::to_string(padded) + " with padding) need " +
               std::to_string(exact * rows.width));
    }
    const bool takes_output = !root || *root == group.rank();
    const std::size_t total = rows.dataset_count * rows.width;
    if (takes_output && (output.count != total || output.dtype != mine.dtype)) {
        refuse("gather_in_order: the output has " + std::to_string(output.count) + " elements of " +
               std::string(to_string(output.dtype)) + "; it needs " + std::to_string(total) +
               " of " + std::string(to_string(mine.dtype)));
    }
    if (mine.device.kind != DeviceKind::cpu ||
        (takes_output && output.device.kind != DeviceKind::cpu)) {
        refuse("gather_in_order: it works on buffers in host memory only");
    }
    const std::size_t row_bytes = rows.width * item_bytes(mine.dtype);
    const std::size_t shard_bytes = padded * row_bytes;
    std::vector<std::byte> shard(shard_bytes);
    if (exact != 0) {
        std::memcpy(shard.data(), mine.data, exact * row_bytes);
    }
    std::vector<std::byte> shards(takes_output ? shard_bytes * group.world_size() : 0);
    const ConstTensorView input(shard.data(), padded * rows.width, mine.dtype);
    const TensorView all(shards.data(), shards.size() / item_bytes(mine.dtype), mine.dtype);
    (root ? group.gather(input, all, *root) : group.all_gather(input, all)).wait();
    if (!takes_output) {
        return;
    }
    auto* const out = static_cast<std::byte*>(output.data);
    for (std::uint64_t position = 0; row_bytes != 0 && position < rows.dataset_count; ++position) {
        const std::uint64_t owner = position % group.world_size();
        const std::uint64_t row = position / group.world_size();
        std::memcpy(out + position * row_bytes,
                    shards.data() + owner * shard_bytes + row * row_bytes, row_bytes);
    }
}

}  // namespace regroup
