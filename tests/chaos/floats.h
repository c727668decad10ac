// SPDX-License-Identifier: Apache-2.0
//
// What the chaos job trains besides its integers: floats, whose last bits tell in which order the
// ranks were summed, at this step and at all before it.
#pragma once

#include <regroup/process_group.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/chaos/history.h"
#include "tests/chaos/step_log.h"

namespace regroup::chaos {

class FloatModel {
   public:
    explicit FloatModel(std::size_t count) : values_(count, 1), gradient_(count, 0) {}

    [[nodiscard]] bool empty() const noexcept { return values_.empty(); }
    [[nodiscard]] std::span<float> values() noexcept { return values_; }

    /// Computes what `rank` of `world_size` wants to change at that step, and sums it over all.
    void compute(std::uint64_t step, std::uint32_t rank, std::span<const std::uint64_t> samples,
                 ProcessGroup& group);
    /// The optimizer's step.
    void apply(std::uint64_t step) noexcept;
    [[nodiscard]] std::uint64_t digest() const noexcept;

   private:
    /// A small tensor at most steps and all of it at some: they are summed in different ways.
    [[nodiscard]] std::size_t count_at(std::uint64_t step) const noexcept;

    std::vector<float> values_;
    std::vector<float> gradient_;
};

/// A sentence for each step of which the floats' bits are not those that a job has which nobody
/// disturbs, and whose rounds have the same numbers of ranks at the same steps. That job is run
/// here: a thread for each rank, in groups that share memory if the `workers` of one node are the
/// whole world, as theirs did. Nothing else may be wrong with `history`.
[[nodiscard]] std::vector<std::string> check_floats(const std::vector<ProcessLog>& logs,
                                                    const History& history, std::size_t count,
                                                    std::uint32_t workers);

}  // namespace regroup::chaos
