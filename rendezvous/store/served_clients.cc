// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/served_clients.h"

#include <algorithm>
#include <sys/eventfd.h>
#include <utility>

namespace regroup::store {
namespace {

/// The most events per call, so that other work of the thread gets its turn.
constexpr std::size_t kEventsPerTurn = 256;
/// In place of a client's id.
constexpr std::uint64_t kTurn = ~std::uint64_t{0};
constexpr std::uint64_t kOneUse = std::uint64_t{1} << 32U;

}  // namespace

bool ServedClients::open() {
    epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    events_.resize(kEventsPerTurn);
    return epoll_.get() >= 0;
}

ServedClients::Slot& ServedClients::free_slot() {
    if (free_.empty()) {
        free_.push_back(static_cast<std::uint32_t>(slots_.size()));
        slots_.push_back({ClientId{slots_.size()}, nullptr});
    }
    return slots_[free_.back()];
}

ClientId ServedClients::add(FarEnd& far_end, RequestParser parser) {
    Slot& slot = free_slot();
    free_.pop_back();
    slot.client = std::make_unique<ServedClient>(GuardedSocket(), &far_end, std::move(parser));
    return slot.id;
}

std::optional<ClientId> ServedClients::add(GuardedSocket connection, RequestParser parser) {
    Slot& slot = free_slot();
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = static_cast<std::uint64_t>(slot.id);
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.socket.get(), &event) != 0) {
        return std::nullopt;
    }
    free_.pop_back();
    slot.client = std::make_unique<ServedClient>(std::move(connection), nullptr, std::move(parser));
    return slot.id;
}

void ServedClients::erase(ClientId id) {
    const ServedClient* client = find(id);
    if (client == nullptr) {
        return;
    }
    charge(id, 0);
    if (client->connection.socket) {
        // Removed explicitly: a program that is being started may hold a copy of the descriptor for
        // a moment.
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client->connection.socket.get(), nullptr);
    }
    const std::uint32_t number = slot_of(id);
    Slot& slot = slots_[number];
    slot.client.reset();
    slot.id = ClientId{static_cast<std::uint64_t>(id) + kOneUse};
    free_.push_back(number);
}

void ServedClients::charge(ClientId id, std::size_t bytes) {
    if (ServedClient* client = find(id)) {
        charged_bytes_ += bytes;
        charged_bytes_ -= std::exchange(client->charged_bytes, bytes);
    }
}

ClientId ServedClients::most_charged() const {
    const auto charge_of = [](const Slot& slot) {
        return slot.client ? slot.client->charged_bytes + 1 : 0;
    };
    const auto most =
        std::max_element(slots_.begin(), slots_.end(),
                         [&](const Slot& a, const Slot& b) { return charge_of(a) < charge_of(b); });
    ENSURE(most != slots_.end() && most->client);
    return most->id;
}

std::vector<ClientId> ServedClients::all() const {
    std::vector<ClientId> ids;
    for (const Slot& slot : slots_) {
        if (slot.client) {
            ids.push_back(slot.id);
        }
    }
    return ids;
}

void ServedClients::watch_writable(ClientId id, bool watched) {
    ServedClient* client = find(id);
    if (client == nullptr || client->awaits_writable == watched) {
        return;
    }
    client->awaits_writable = watched;
    if (client->connection.socket) {
        epoll_event event{};
        event.events = watched ? EPOLLIN | EPOLLOUT : EPOLLIN;
        event.data.u64 = static_cast<std::uint64_t>(id);
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client->connection.socket.get(), &event);
    }
}

bool ServedClients::want_turn(bool wanted) {
    if (wanted == wants_turn_) {
        return true;
    }
    if (!turn_) {
        turn_ = UniqueFd(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
    }
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = kTurn;
    if (!is_open() || !turn_ ||
        ::epoll_ctl(epoll_.get(), wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, turn_.get(), &event) !=
            0) {
        return false;
    }
    wants_turn_ = wanted;
    return true;
}

void ServedClients::take_ready(std::vector<Ready>& ready) {
    ready.clear();
    const int count =
        ::epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), 0);
    for (int i = 0; i < count; ++i) {
        const epoll_event& event = events_[static_cast<std::size_t>(i)];
        if (event.data.u64 == kTurn) {
            continue;
        }
        ready.push_back({ClientId{event.data.u64}, (event.events & ~EPOLLOUT) != 0,
                         (event.events & EPOLLOUT) != 0});
    }
}

}  // namespace regroup::store
