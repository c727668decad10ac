// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/files/unique_fd.h"
#include "rendezvous/store/served_clients.h"
#include "rendezvous/store/store_core.h"
#include "rendezvous/store/store_limits.h"
#include "rendezvous/store/store_wire.h"

namespace regroup::store {

/// Sees the requests of a store's clients before they are executed.
class RequestListener {
   public:
    virtual ~RequestListener() = default;

    /// Called before a request is executed. Return false to skip the request, which is allowed only
    /// for requests without a reply. May call the server's `set`, `delete_key` and const functions.
    /// `set` may drop clients and then calls `part` before it returns.
    virtual bool hear(ClientId client, const Request& request) = 0;
    /// The client has disconnected. It may never have sent a request. Must not call the server.
    virtual void part(ClientId client) = 0;
};

/// The other end of a client without a socket: another object of this thread passes its bytes on.
/// Its functions must not call the server.
class FarEnd {
   public:
    virtual ~FarEnd() = default;

    /// Takes some of the bytes that the server sends, and returns their count. After it took less
    /// than all, its owner calls `resume` when it can take more.
    virtual std::size_t take(std::string_view bytes) = 0;
    /// The server has disconnected the client.
    virtual void closed() = 0;
    /// For messages: "a worker behind 10.0.0.2:40000".
    [[nodiscard]] virtual std::string name() const = 0;
};

/// Serves one store to TCPStore clients that are connected already. It neither waits nor accepts:
/// its owner does, with the event loop that it has. No client can harm another: a client that
/// breaks the protocol or does not read its replies is disconnected, and half a request simply
/// waits.
///
/// Not thread-safe.
class StoreEngine {
   public:
    struct Options {
        Limits limits;
        /// The dialect of clients that do not begin with a greeting.
        Dialect older_dialect = Dialect::v1_13;
        /// Outlives the engine; nullptr for none.
        RequestListener* listener = nullptr;
        /// Called with a sentence when the engine disconnects a client or new ones must wait, but
        /// not when a client leaves. Must not call the engine.
        std::function<void(const std::string& sentence)> on_refusal = {};
    };

    StoreEngine() : StoreEngine(Options()) {}
    explicit StoreEngine(Options options);
    StoreEngine(const StoreEngine&) = delete;
    StoreEngine& operator=(const StoreEngine&) = delete;

    /// Serves a connected, non-blocking socket, whose client has already sent `first_bytes`. Closes
    /// it when there are as many clients as the limit allows.
    void admit(GuardedSocket connection, std::string_view first_bytes = {});
    /// A descriptor that is readable while a connection is ready. -1 before the first `admit`, and
    /// afterwards while the system has no descriptor left. Owned by the engine.
    [[nodiscard]] int ready_fd() const noexcept { return clients_.fd(); }
    /// Serves some of the connections that are ready now, without waiting; the next call the
    /// others. A call does bounded work: kTurnWork, and one request.
    void serve_ready();
    /// The work of the last `serve_ready`, in keys, names and small requests: each takes about a
    /// microsecond.
    [[nodiscard]] std::size_t turn_work() const noexcept { return turn_work_; }
    static constexpr std::size_t kTurnWork = 16384;

    /// Serves a client without a socket, with the limits of all others. `far_end` stays until the
    /// client is detached, or `closed`.
    ClientId attach(FarEnd& far_end);
    /// The client has sent `bytes`.
    void receive(ClientId client, std::string_view bytes);
    /// The far end takes bytes again.
    void resume(ClientId client);
    /// The client has disconnected. The far end is not called any more. Does nothing when that
    /// client is no longer there.
    void detach(ClientId client);

    /// Sets a key with the same checks as for a client.
    Result<void> set(std::string_view key, std::string_view value);
    void delete_key(std::string_view key) { core_.delete_key(key); }

    [[nodiscard]] std::size_t clients_count() const noexcept { return clients_.count(); }
    /// -1 for a disconnected client and for one without a socket. Owned by the engine.
    [[nodiscard]] int socket_of(ClientId client) noexcept;

    /// Disconnects all clients and forgets all keys.
    void reset();

    /// Calls `on_refusal` about `peer`, which `describe_peer` or its far end names.
    void tell_refusal(const std::string& peer, const std::string& why) const;

   private:
    // Clients are referred to by id, since one may disconnect before its turn.
    void read_some(ClientId id);
    /// Executes the requests in `bytes`, of one turn at most; the rest waits for the next turn.
    void drop_if_left(ClientId client);
    void execute_all(ClientId id, std::string_view bytes);
    void clean_up();
    /// Call after what may have cancelled a wait.
    void plan_clean_up();
    void charge(ClientId id);
    void carry_out(ClientId id, ServedClient& client, Request& request);
    void release(const Released& released);
    void limit_outbox(ClientId id);
    void flush(ClientId id);
    void refuse(ClientId id, const std::string& why);
    void drop(ClientId id);

    const Options options_;
    StoreCore core_;
    ServedClients clients_;
    std::vector<ServedClients::Ready> ready_;
    std::size_t next_ready_ = 0;    ///< The first of `ready_` that has not had its turn.
    std::deque<ClientId> backlog_;  ///< Those with unread bytes.
    std::deque<StoreCore> former_;  ///< Stores before a reset, to be dismantled.
    std::size_t turn_work_ = 0;
    std::unique_ptr<char[]> read_buffer_;
};

}  // namespace regroup::store
