// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "worker_sdk/src/base/learned_orders.h"
#include "worker_sdk/src/elastic/optional_agent.h"
#include "worker_sdk/src/elastic/rank_state.h"
#include "worker_sdk/src/elastic/registered_state.h"
#include "worker_sdk/src/elastic/round_run.h"

namespace regroup::elastic {

/// The state of training on this rank: what all ranks of a round hold alike between two steps.
class Replica {
   public:
    explicit Replica(OptionalAgent& agent) noexcept : agent_(agent) {}

    [[nodiscard]] Condition condition() const noexcept { return condition_; }
    /// Whether a comparison has shown that this rank is wrong.
    [[nodiscard]] bool dissents() const noexcept { return dissents_; }
    [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
    [[nodiscard]] std::uint64_t samples() const noexcept { return samples_; }
    [[nodiscard]] RegisteredState& registered() noexcept { return registered_; }
    /// Of the gradients: a part of the state, since they decide how sums are rounded.
    [[nodiscard]] const std::shared_ptr<LearnedOrders>& orders() const noexcept { return orders_; }

    void resume_at(std::uint64_t step, std::uint64_t samples) noexcept;
    /// The digests to bring to `round`. Needs no group: new workers take longer to start anyway.
    [[nodiscard]] Digests digests_held(const RoundRun& round);
    /// Adds the state and its numbers to the snapshot of the round.
    void add_to(snapshot::RankSnapshot& snapshot);
    /// Gives all ranks of the round the same state. A collective; `held`: from `digests_held`.
    void bring(const RoundRun& round, Digests held);
    /// Makes sure that all ranks hold the same state. A collective. If they do not, the ranks that
    /// dissent fail, or all ranks without a majority; the others throw Error `disconnected`, as for
    /// the loss of a peer.
    void compare(const RoundRun& round);
    void compare(const RoundRun& round, const Digests& mine);
    /// The registered state is now that after a step which took so many samples.
    void commit(std::uint64_t samples);

   private:
    /// Where no rank has a state: takes that of the newest snapshot, if it has more steps.
    [[nodiscard]] bool load_snapshot(const RoundRun& round, const RankState& fresh);
    void settle(const RoundRun& round, const Dissent& dissent, const Digests& mine);
    [[noreturn]] void give_up(const RoundRun& round);

    OptionalAgent& agent_;
    RegisteredState registered_;
    const std::shared_ptr<LearnedOrders> orders_ = std::make_shared<LearnedOrders>();
    std::uint64_t step_ = 0;
    std::uint64_t samples_ = 0;
    std::uint64_t history_ = 0;
    Condition condition_ = Condition::fresh;
    bool dissents_ = false;
};

}  // namespace regroup::elastic
