// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/snapshot/agreement.h"

#include <regroup/error.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

#include "rendezvous/base/clock.h"

namespace regroup::snapshot {
namespace {

constexpr Duration kSlice = std::chrono::milliseconds(200);

std::uint64_t number_in(const std::string& text) {
    std::uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

/// Waits for the key a little. False if it is not there yet.
bool arrives(MemberStore& store, const std::string& key) {
    try {
        store.wait({key}, kSlice);
        return true;
    } catch (const Error& error) {
        if (error.code() != Errc::deadline_exceeded) {
            throw;
        }
        return false;
    }
}

}  // namespace

Agreement::Agreement(const Context& context, const std::string& name)
    : scope_(ContextScope::of(context)),
      rank_(context.rank),
      world_size_(context.world_size),
      node_(context.group_rank),
      limit_(context.store_timeout),
      store_(MemberStore::of_attempt(context, "snapshot/" + name)) {}

void Agreement::require_round() const {
    if (const auto reason = scope_->reason()) {
        throw Error(Errc::fenced, "snapshot: " + *reason);
    }
}

void Agreement::await(const std::string& key) {
    const Instant deadline = after(now(), limit_);
    for (;;) {
        require_round();
        if (arrives(store_, key)) {
            return;
        }
        if (now() >= deadline) {
            throw Error(Errc::deadline_exceeded,
                        "snapshot: not all " + std::to_string(world_size_) +
                            " ranks have come to the same call within " + format_duration(limit_) +
                            " (\"" + store_.prefix() + key + "\" in the store)");
        }
    }
}

void Agreement::meet(const std::string& place) {
    if (store_.add(place + "/arrived", 1) == world_size_) {
        store_.set(place + "/all", "1");
    }
    await(place + "/all");
}

void Agreement::learn_nodes() {
    // Appended values are not secret: they are only lists of ranks.
    store_.append("ranks", std::to_string(node_) + " " + std::to_string(rank_) + " ");
    meet("ranks");
    std::istringstream list(store_.get_open("ranks"));
    for (std::uint32_t node = 0, rank = 0; list >> node >> rank;) {
        const auto known = leaders_.emplace(node, rank).first;
        known->second = std::min(known->second, rank);
    }
    is_leader_ = leaders_.at(node_) == rank_;
}

std::vector<Announcement> Agreement::announce(const std::function<Announcement()>& holdings) {
    require_round();
    const std::string place = "look/" + std::to_string(++announcements_) + "/";
    if (announcements_ == 1) {
        learn_nodes();
    }
    meet(place + "begin");
    if (is_leader_) {
        Announcement own = holdings();
        own.node = node_;
        store_.set(place + std::to_string(node_), encode(own));
    }
    meet(place + "end");
    std::vector<std::string> keys;
    for (const auto& [node, leader] : leaders_) {
        keys.push_back(place + std::to_string(node));
    }
    std::vector<Announcement> announcements;
    for (const std::string& text : store_.multi_get(keys)) {
        Result<Announcement> announcement = decode_announcement(text);
        if (!announcement) {
            throw Error(announcement.error().code, announcement.error().detail);
        }
        announcements.push_back(std::move(*announcement));
    }
    return announcements;
}

bool Agreement::all(bool good) {
    require_round();
    const std::string place = "vote/" + std::to_string(++votes_) + "/";
    if (!good) {
        store_.add(place + "bad", 1);
    }
    if (store_.add(place + "done", 1) == world_size_) {
        store_.set(place + "verdict", store_.add(place + "bad", 0) == 0 ? "good" : "bad");
    }
    await(place + "verdict");
    return store_.get(place + "verdict") == "good";
}

std::uint64_t Agreement::number(std::string_view name, std::uint64_t proposed) {
    require_round();
    return number_in(store_.propose("number/" + std::string(name), std::to_string(proposed)));
}

}  // namespace regroup::snapshot
