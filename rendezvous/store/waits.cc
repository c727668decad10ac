// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/waits.h"

#include <algorithm>

#include "rendezvous/base/ensure.h"

namespace regroup::store {
namespace {

/// The approximate cost of a name that a client waits for.
constexpr std::size_t kNameBytes = 224;
/// A wait for more names is removed in slices.
constexpr std::size_t kNamesAtOnce = 64;

std::size_t bytes_of(const std::string& name) {
    return kNameBytes + 2 * name.size();
}

}  // namespace

void Waits::begin(ClientId client, std::vector<std::string> names) {
    cancel(client);
    const Ticket ticket = ++last_ticket_;
    Wait wait{ticket};
    for (std::string& name : names) {
        if (waiters_[name].emplace(ticket, client).second) {
            wait.bytes += bytes_of(name);
            wait.names.push_back(std::move(name));
        }
    }
    wait.missing_count = wait.names.size();
    if (wait.missing_count > 0) {
        waits_.emplace(client, std::move(wait));
    }
}

void Waits::begin_at_barrier(ClientId client, std::string_view key, std::int64_t world) {
    cancel(client);
    const Ticket ticket = ++last_ticket_;
    const std::string name(key);
    barriers_[name].emplace(Place(world, ticket), client);
    waits_.emplace(client, Wait{ticket, {name}, 1, world, bytes_of(name)});
}

void Waits::arrive(std::string_view key, std::int64_t count, Released& released) {
    const auto barrier = barriers_.find(key);
    if (barrier == barriers_.end()) {
        return;
    }
    auto& waiters = barrier->second;
    while (!waiters.empty() && waiters.begin()->first.first <= count) {
        waits_.erase(waiters.begin()->second);
        released.push_back(waiters.begin()->second);
        waiters.erase(waiters.begin());
    }
    if (waiters.empty()) {
        barriers_.erase(barrier);
    }
}

void Waits::forget_name(const Wait& wait, const std::string& name) {
    if (wait.world) {
        const auto barrier = barriers_.find(name);
        ENSURE(barrier != barriers_.end());
        barrier->second.erase(Place(*wait.world, wait.ticket));
        if (barrier->second.empty()) {
            barriers_.erase(barrier);
        }
    } else if (const auto waiters = waiters_.find(name); waiters != waiters_.end()) {
        waiters->second.erase(wait.ticket);
        if (waiters->second.empty()) {
            waiters_.erase(waiters);
        }
    }
}

void Waits::cancel(ClientId client) {
    const auto found = waits_.find(client);
    if (found == waits_.end()) {
        return;
    }
    Wait wait = std::move(found->second);
    waits_.erase(found);
    if (wait.names.size() > kNamesAtOnce) {
        ended_bytes_ += wait.bytes;
        ended_.push_back(std::move(wait));
        return;
    }
    for (const std::string& name : wait.names) {
        forget_name(wait, name);
    }
}

std::size_t Waits::tidy(std::size_t names_max) {
    std::size_t count = 0;
    while (count < names_max && !ended_.empty()) {
        Wait& wait = ended_.front();
        forget_name(wait, wait.names.back());
        ended_bytes_ -= bytes_of(wait.names.back());
        wait.names.pop_back();
        ++count;
        if (wait.names.empty()) {
            ended_.pop_front();
        }
    }
    return count;
}

std::size_t Waits::dismantle(std::size_t count_max) {
    std::size_t count = tidy(count_max);
    count += take_one_by_one(waiters_, count_max - count);
    count += take_one_by_one(barriers_, count_max - count);
    while (count < count_max && !waits_.empty()) {
        std::vector<std::string>& names = waits_.begin()->second.names;
        const std::size_t taken = std::min(names.size(), count_max - count);
        names.resize(names.size() - taken);
        count += taken;
        if (names.empty()) {
            waits_.erase(waits_.begin());
        }
    }
    return count;
}

std::size_t Waits::bytes(ClientId client) const {
    const auto wait = waits_.find(client);
    return wait == waits_.end() ? 0 : wait->second.bytes;
}

/// Reduces the count of missing names; true when the wait is over.
bool Waits::count_down(Ticket ticket, ClientId client) {
    const auto wait = waits_.find(client);
    if (wait == waits_.end() || wait->second.ticket != ticket) {
        return false;  // It was cancelled.
    }
    ENSURE(wait->second.missing_count > 0);
    if (--wait->second.missing_count > 0) {
        return false;
    }
    waits_.erase(wait);
    return true;
}

void Waits::wake_all(std::string_view name, Released& released) {
    const auto entry = waiters_.find(name);
    if (entry == waiters_.end()) {
        return;
    }
    for (const auto& [ticket, client] : entry->second) {
        if (count_down(ticket, client)) {
            released.push_back(client);
        }
    }
    waiters_.erase(entry);
}

/// A queued item releases one client. Earlier clients that wait for other names too only count this
/// name as present. If the item released them, a client that waits for nothing else would not wake.
void Waits::wake_one(std::string_view name, Released& released) {
    const auto entry = waiters_.find(name);
    if (entry == waiters_.end()) {
        return;
    }
    std::map<Ticket, ClientId>& waiters = entry->second;
    auto next = waiters.begin();
    while (next != waiters.end()) {
        const auto [ticket, client] = *next++;
        if (count_down(ticket, client)) {
            released.push_back(client);
            break;
        }
    }
    waiters.erase(waiters.begin(), next);
    if (waiters.empty()) {
        waiters_.erase(entry);
    }
}

}  // namespace regroup::store
