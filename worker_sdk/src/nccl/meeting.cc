// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/meeting.h"

#include <regroup/error.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace regroup::nccl {

std::string Meeting::key(std::uint32_t rank, const char* name) {
    return std::to_string(rank) + "/" + name;
}

Meeting::Meeting(const Context& context, const std::string& name, std::string where, Duration limit)
    : rank_(context.rank),
      world_size_(context.world_size),
      where_(std::move(where)),
      limit_(limit),
      deadline_(after(SteadyClock().now(), limit)),
      store_(MemberStore::of_attempt(context, "pg-nccl/" + name)) {}

void Meeting::fail(Errc code, const std::string& detail) const {
    throw Error(code, where_ + ": " + detail);
}

void Meeting::await(const std::vector<std::string>& keys, const char* what, const char* per_rank) {
    constexpr Duration kTurn = std::chrono::seconds(1);
    while (true) {
        const Duration left = deadline_ - SteadyClock().now();
        try {
            store_.wait(keys, std::clamp(left, Duration(1), kTurn));
            return;
        } catch (const Error& error) {
            if (error.code() != Errc::deadline_exceeded) {
                throw;
            }
        }
        if (left > kTurn) {
            look_around();
            continue;
        }
        const std::string missing = missing_ranks(per_rank);
        fail(Errc::deadline_exceeded,
             "of " + std::to_string(world_size_) + " ranks these have not " + what + " within " +
                 format_duration(limit_) + ": " +
                 (missing.empty() ? "none, the last one has come just now" : missing));
    }
}

void Meeting::look_around() {
    if (store_.check("given_up")) {
        heard_ = true;
        fail(Errc::disconnected, store_.get("given_up"));
    }
}

void Meeting::hear_why() {
    try {
        store_.wait({"given_up"}, std::chrono::seconds(1));
    } catch (const Error&) {
        return;  // The neighbour died without a reason in the store.
    }
    look_around();
}

std::string Meeting::missing_ranks(const char* per_rank) {
    std::vector<std::string> keys;
    for (std::uint32_t rank = 0; rank < world_size_; ++rank) {
        keys.push_back(key(rank, per_rank));
    }
    return store_.missing(keys);
}

void Meeting::give_up(const std::string& reason) noexcept {
    if (heard_) {
        return;
    }
    try {
        store_.set("given_up",
                   "rank " + std::to_string(rank_) + " has given up forming the group: " + reason);
    } catch (const std::exception&) {
        // The store is gone; the other ranks notice that too.
    }
}

}  // namespace regroup::nccl
