// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace regroup {

/// The orders in which gradients became ready, one for each DistributedDataParallel of a round. An
/// ElasticLoop keeps them from round to round, since the order decides where a gradient lies in the
/// buckets, and with that how an all-reduce rounds its sum.
///
/// Like the state, an order counts when its step is committed. Used by the thread of the loop.
class LearnedOrders {
   public:
    /// Positions of parameters; empty if it is not known.
    using Order = std::vector<std::size_t>;

    /// Forgets what a step without a commit has learned.
    void begin_round();
    /// Keeps what the step has learned, and forgets wrappers that were destroyed before it.
    void commit();

   private:
    friend class KeptOrder;
    struct Entry {
        std::uint64_t shapes = 0;
        Order committed{};
        Order learned{};    ///< In a step that is not committed yet.
        bool left = false;  ///< The wrapper was destroyed in this round.
    };

    std::vector<Entry> entries_;
    std::size_t entered_ = 0;   ///< Wrappers of this round.
    std::uint64_t rounds_ = 0;  ///< The number of this round.
};

/// The order of one DistributedDataParallel: the n-th of a round continues the n-th of the round
/// before. A wrapper that the program destroys while its round goes on has no successor.
class KeptOrder {
   public:
    /// `orders` may be nullptr: then nothing is kept. `shapes` is a hash of the parameters; an
    /// order of other parameters is not used.
    KeptOrder(std::shared_ptr<LearnedOrders> orders, std::uint64_t shapes);
    ~KeptOrder();
    KeptOrder(const KeptOrder&) = delete;
    KeptOrder& operator=(const KeptOrder&) = delete;

    [[nodiscard]] bool has_loop() const noexcept { return orders_ != nullptr; }
    /// Of a committed step; empty if this process has not learned it.
    [[nodiscard]] LearnedOrders::Order known() const;
    /// Takes an order that another rank knows from a committed step.
    void adopt(const LearnedOrders::Order& order);
    /// Notes the order that this step has shown.
    void learn(const LearnedOrders::Order& order);

   private:
    [[nodiscard]] LearnedOrders::Entry* entry() const noexcept;

    std::shared_ptr<LearnedOrders> orders_;
    std::size_t number_ = 0;
    std::uint64_t round_ = 0;
};

/// Gives the SDK access to the orders of a group.
struct GroupOrders {
    [[nodiscard]] static const std::shared_ptr<LearnedOrders>& of(
        const ProcessGroup& group) noexcept {
        return group.learned_orders_;
    }
    static void attach(ProcessGroup& group, std::shared_ptr<LearnedOrders> orders) noexcept {
        group.learned_orders_ = std::move(orders);
    }
};

}  // namespace regroup
