// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/base/learned_orders.h"

#include <utility>

namespace regroup {
namespace {

/// A program that makes more wrappers in a round makes them for single steps.
constexpr std::size_t kWrappersMax = 64;

}  // namespace

void LearnedOrders::begin_round() {
    for (Entry& entry : entries_) {
        entry.learned.clear();
        entry.left = false;
    }
    entered_ = 0;
    ++rounds_;
}

void LearnedOrders::commit() {
    for (Entry& entry : entries_) {
        if (entry.left) {
            entry = {};
        } else if (!entry.learned.empty()) {
            entry.committed = std::exchange(entry.learned, {});
        }
    }
}

KeptOrder::KeptOrder(std::shared_ptr<LearnedOrders> orders, std::uint64_t shapes)
    : orders_(std::move(orders)) {
    if (!orders_) {
        return;
    }
    number_ = orders_->entered_++;
    round_ = orders_->rounds_;
    if (number_ == orders_->entries_.size() && number_ < kWrappersMax) {
        orders_->entries_.emplace_back();
    }
    if (LearnedOrders::Entry* const mine = entry(); mine != nullptr && mine->shapes != shapes) {
        *mine = {.shapes = shapes};
    }
}

KeptOrder::~KeptOrder() {
    if (orders_ && round_ == orders_->rounds_) {
        if (LearnedOrders::Entry* const mine = entry()) {
            mine->left = true;
        }
    }
}

LearnedOrders::Entry* KeptOrder::entry() const noexcept {
    return orders_ && number_ < orders_->entries_.size() ? &orders_->entries_[number_] : nullptr;
}

LearnedOrders::Order KeptOrder::known() const {
    const LearnedOrders::Entry* const mine = entry();
    return mine != nullptr ? mine->committed : LearnedOrders::Order();
}

void KeptOrder::adopt(const LearnedOrders::Order& order) {
    if (LearnedOrders::Entry* const mine = entry()) {
        mine->committed = order;
    }
}

void KeptOrder::learn(const LearnedOrders::Order& order) {
    if (LearnedOrders::Entry* const mine = entry()) {
        mine->learned = order;
    }
}

}  // namespace regroup
