// SPDX-License-Identifier: Apache-2.0
//
// The floats that the chaos job trains besides its integers. Their last bits depend on the order in
// which ranks were summed, at every step so far.
#pragma once

#include <regroup/context.h>
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

    /// Computes the gradient of `rank` of `world_size` at that step, and sums it over all ranks.
    void compute(std::uint64_t step, std::uint32_t rank, std::span<const std::uint64_t> samples,
                 ProcessGroup& group);
    /// The optimizer's step.
    void apply(std::uint64_t step) noexcept;
    [[nodiscard]] std::uint64_t digest() const noexcept;

   private:
    /// At most steps a small part, at some steps all of the tensor: they are summed in different
    /// ways.
    [[nodiscard]] std::size_t count_at(std::uint64_t step) const noexcept;

    std::vector<float> values_;
    std::vector<float> gradient_;
};

/// Where a rank of the job is: nodes have `workers` ranks each, the last node may have fewer.
[[nodiscard]] Context place(std::uint32_t rank, std::uint32_t world_size, std::uint32_t workers);

/// Compares the floats with those of an undisturbed job whose rounds have the same world sizes at
/// the same steps. Returns a sentence for each step with different bits. This function runs the
/// undisturbed job, with one thread for each rank. The `workers` of one node share memory, as in
/// the job. `history` must have no other errors.
[[nodiscard]] std::vector<std::string> check_floats(const std::vector<ProcessLog>& logs,
                                                    const History& history, std::size_t count,
                                                    std::uint32_t workers);

}  // namespace regroup::chaos
