// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/join.h>

#include <algorithm>
#include <string>

#include "worker_sdk/src/base/text.h"
#include "worker_sdk/src/ddp/reducer.h"
#include "worker_sdk/src/ddp/replicas.h"

namespace regroup {
namespace {

/// The bits that a rank sends to the others before a step.
constexpr std::int64_t kHasInput = 1;
constexpr std::int64_t kDividesByAll = 2;
constexpr std::int64_t kThrows = 4;

}  // namespace

Join::Join(DistributedDataParallel& ddp, const JoinOptions& options)
    : reducer_(*ddp.reducer_), options_(options) {
    const bool averages_in_hook =
        reducer_.options.hook && reducer_.options.reduction == ReduceOp::avg;
    if (!options_.divide_by_initial_world_size && averages_in_hook) {
        ddp::refuse(
            "the communication hook averages over all ranks: leave divide_by_initial_world_size "
            "on, or choose the reduction sum and divide by the number of ranks_with_input()");
    }
}

bool Join::next(bool has_input) {
    const std::int64_t mine = (has_input ? kHasInput : 0) |
                              (options_.divide_by_initial_world_size ? kDividesByAll : 0) |
                              (options_.throw_on_early_termination ? kThrows : 0);
    if (reducer_.reported_count > 0 || reducer_.no_sync_depth > 0) {
        ddp::refuse("Join::next() in the middle of a step, or under no_sync");
    }
    const std::vector<std::int64_t> all = reducer_.exchange.gather(std::span(&mine, 1));
    has_input_ = has_input;
    ranks_with_input_.clear();
    std::vector<std::uint32_t> without;
    for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
        if ((all[rank] | kHasInput) != (all.front() | kHasInput)) {
            ddp::refuse(
                "rank " + std::to_string(rank) +
                " chose other JoinOptions than rank 0: they must be the same on every rank");
        }
        ((all[rank] & kHasInput) != 0 ? ranks_with_input_ : without).push_back(rank);
    }
    const bool ends_early = !without.empty() && !ranks_with_input_.empty();
    if (ends_early && options_.throw_on_early_termination) {
        ddp::refuse(listed_ranks(without) + (without.size() == 1 ? " has" : " have") +
                    " no more input, but other ranks have (throw_on_early_termination)");
    }
    ddp::UnevenStep step;
    if (ends_early) {
        step.has_input = has_input;
        step.first_with_input = ranks_with_input_.front();
        step.divisor = options_.divide_by_initial_world_size
                           ? 0U
                           : static_cast<std::uint32_t>(ranks_with_input_.size());
    }
    reducer_.uneven = step;
    reducer_.pipeline.begin_step(step.divisor);
    return !ranks_with_input_.empty();
}

}  // namespace regroup
