// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/stop/stop_board.h"

#include <regroup/error.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <vector>

#include "worker_sdk/src/base/text.h"
#include "worker_sdk/src/store/interruptible_store.h"

namespace regroup::stopping {
namespace {

/// A wait in the store is renewed then, so that each has a deadline.
constexpr Duration kWaitSlice = std::chrono::minutes(10);
/// The same in a store that other threads use too.
constexpr Duration kSharedSlice = std::chrono::milliseconds(10);

std::string answer_of(std::uint32_t rank) {
    return "answer/" + std::to_string(rank);
}

std::uint64_t number_in(const std::string& text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
        throw Error(Errc::invalid_argument, "the store has \"" + text +
                                                "\" in the place of a step of this job; no other "
                                                "program may write there");
    }
    return value;
}

}  // namespace

StopBoard::StopBoard(const Context& context)
    : rank_(context.rank),
      world_size_(context.world_size),
      store_(MemberStore::of_attempt(context, "stop")) {}

StopBoard::StopBoard(const StopBoard& other, MemberStore store, std::shared_ptr<RoundScope> scope,
                     bool is_own)
    : rank_(other.rank_),
      world_size_(other.world_size_),
      store_(std::move(store)),
      scope_(std::move(scope)),
      is_own_(is_own) {}

StopBoard StopBoard::connect_again(std::shared_ptr<RoundScope> scope) const {
    auto own = regroup::connect_again(store_.store(), scope);
    return own ? StopBoard(*this, store_.over(std::move(own)), std::move(scope), true)
               : StopBoard(*this, store_, std::move(scope), false);
}

void StopBoard::ask(const std::string& why) {
    static_cast<void>(store_.propose("asked", why));
}

bool StopBoard::await(const std::string& key, Instant deadline) {
    const Duration slice = is_own_ ? kWaitSlice : kSharedSlice;
    while (now() < deadline) {
        if (const auto reason = scope_ ? scope_->reason() : std::nullopt) {
            throw Error(Errc::fenced, *reason);
        }
        try {
            store_.wait({key}, std::min(deadline - now(), slice));
            return true;
        } catch (const Error& error) {
            if (error.code() != Errc::deadline_exceeded) {
                throw;
            }
        }
    }
    return false;
}

void StopBoard::answer(std::uint64_t next) {
    store_.set(answer_of(rank_), std::to_string(next));
    if (store_.add("answers", 1) != static_cast<std::int64_t>(world_size_)) {
        return;
    }
    std::vector<std::string> keys;
    for (std::uint32_t rank = 0; rank < world_size_; ++rank) {
        keys.push_back(answer_of(rank));
    }
    std::uint64_t step = 0;
    for (const std::string& text : store_.multi_get(keys)) {
        step = std::max(step, number_in(text));
    }
    store_.set("step", std::to_string(step));
}

std::uint64_t StopBoard::step() {
    return number_in(store_.get("step"));
}

void StopBoard::count_heard() {
    if (store_.add("heard", 1) == static_cast<std::int64_t>(world_size_)) {
        store_.set("all heard", "1");
    }
}

std::string StopBoard::silence(Duration limit) {
    std::vector<std::uint32_t> silent;
    for (std::uint32_t rank = 0; rank < world_size_; ++rank) {
        if (!store_.check(answer_of(rank))) {
            silent.push_back(rank);
        }
    }
    return store_.get("asked") + ", but " + listed_ranks(silent) +
           (silent.size() == 1 ? " has" : " have") + " not answered within " +
           format_duration(limit) +
           "; a rank that has died, or has not called stop_requested yet, cannot answer: call it "
           "on all ranks in each step";
}

}  // namespace regroup::stopping
