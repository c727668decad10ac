// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/epoll.h>
#include <vector>

#include "rendezvous/files/unique_fd.h"
#include "rendezvous/store/peer_socket.h"
#include "rendezvous/store/store_wire.h"
#include "rendezvous/store/waits.h"

namespace regroup::store {

class FarEnd;

/// A socket, and what is to be destroyed before it is closed; may be null.
struct GuardedSocket {
    UniqueFd socket{};
    std::shared_ptr<const void> guard{};
};

/// One client of a StoreEngine: a connection, or a far end and no socket.
struct ServedClient {
    ServedClient(GuardedSocket connection_in, FarEnd* far_end_in, RequestParser parser_in)
        : connection(std::move(connection_in)), far_end(far_end_in), parser(std::move(parser_in)) {}

    GuardedSocket connection;
    FarEnd* far_end;
    RequestParser parser;
    std::string unread;             ///< Bytes that wait for a turn of the engine.
    Outbox outbox;                  ///< Replies.
    std::size_t charged_bytes = 0;  ///< Its part of Limits::clients_bytes_max.
    bool awaits_writable = false;
};

/// The connections of a StoreEngine and their readiness. They share one epoll descriptor, so that
/// hundreds of connections cost the surrounding event loop as much as one.
///
/// The memory address of a client does not change while it is connected, and no id is used twice.
class ServedClients {
   public:
    /// Creates the epoll descriptor; false when the system has no descriptor left.
    bool open();
    [[nodiscard]] bool is_open() const noexcept { return epoll_.get() >= 0; }
    /// Readable while a client is ready, or a turn is wanted. Owned by this object.
    [[nodiscard]] int fd() const noexcept { return epoll_.get(); }

    /// Requires `is_open`. nullopt when the system refuses; the socket is closed then.
    std::optional<ClientId> add(GuardedSocket connection, RequestParser parser);
    /// A client without a socket. It is never in `take_ready`.
    ClientId add(FarEnd& far_end, RequestParser parser);
    /// nullptr when that client is no longer connected.
    [[nodiscard]] ServedClient* find(ClientId id) noexcept {
        const auto slot = static_cast<std::size_t>(slot_of(id));
        return slot < slots_.size() && slots_[slot].id == id ? slots_[slot].client.get() : nullptr;
    }
    /// Closes the connection. Does nothing when that client is no longer connected.
    void erase(ClientId id);
    [[nodiscard]] std::size_t count() const noexcept { return slots_.size() - free_.size(); }
    [[nodiscard]] std::vector<ClientId> all() const;

    /// Sets the client's charge. Does nothing when it is no longer connected.
    void charge(ClientId id, std::size_t bytes);
    /// All charges together.
    [[nodiscard]] std::size_t charged_bytes() const noexcept { return charged_bytes_; }
    /// The client with the highest charge. O(clients). Requires that there is one.
    [[nodiscard]] ClientId most_charged() const;

    /// Sets `awaits_writable`, and whether `take_ready` also reports that the client is writable.
    void watch_writable(ClientId id, bool watched);

    /// Whether `fd` is readable even if no client is ready. False if the system refuses.
    bool want_turn(bool wanted);

    struct Ready {
        ClientId client;
        bool readable;  ///< Or broken, which a read reveals.
        bool writable;
    };
    /// Returns some of the clients that are ready now, without waiting; the next call the others.
    void take_ready(std::vector<Ready>& ready);

   private:
    struct Slot {
        ClientId id{};  ///< The slot's number below, the count of its uses above.
        std::unique_ptr<ServedClient> client;
    };

    /// A slot without a client, not yet taken from `free_`.
    [[nodiscard]] Slot& free_slot();
    [[nodiscard]] static std::uint32_t slot_of(ClientId id) noexcept {
        return static_cast<std::uint32_t>(static_cast<std::uint64_t>(id));
    }

    UniqueFd epoll_;
    UniqueFd turn_;  ///< Always readable; in `epoll_` while a turn is wanted.
    bool wants_turn_ = false;
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> free_;
    std::vector<epoll_event> events_;
    std::size_t charged_bytes_ = 0;
};

}  // namespace regroup::store
