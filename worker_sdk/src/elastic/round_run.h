// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>
#include <regroup/elastic_loop.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/base/learned_orders.h"
#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/elastic/registered_state.h"
#include "worker_sdk/src/snapshot/rank_snapshot.h"

namespace regroup::elastic {

/// One round of this rank. Its groups end with the scope of its context.
struct RoundRun {
    explicit RoundRun(Context context_in) : context(std::move(context_in)) {}

    /// Forms the groups. Makes `orders` those of the gradients of this round.
    void form(const ElasticOptions& options, const std::shared_ptr<LearnedOrders>& orders);
    /// Ends the groups, and everything else that was made from the context.
    void give_up(const std::string& reason) const noexcept;

    [[nodiscard]] std::uint64_t number() const noexcept { return context.round; }
    [[nodiscard]] bool has_peers() const noexcept { return context.world_size > 1; }
    [[nodiscard]] RoundScope& scope() const noexcept { return *ContextScope::of(context); }
    [[nodiscard]] ProcessGroup& control() const noexcept {
        return own_control ? *own_control : *steps;
    }
    [[nodiscard]] Groups groups() const noexcept { return {*steps, control()}; }

    const Context context;
    std::unique_ptr<ProcessGroup> steps{};
    std::unique_ptr<ProcessGroup> own_control{};  ///< nullptr where `steps` is on the CPU.
    bool shown = false;                           ///< The user has seen it.
    Duration communicator_time{};                 ///< To form the groups.
    Duration state_time{};                        ///< To compare and bring the state.
    Instant began{};                              ///< Its first step.
    bool trains = false;                          ///< It has committed a step.
    /// nullptr if the loop saves none.
    std::unique_ptr<snapshot::RankSnapshot> snapshot{};
};

}  // namespace regroup::elastic
