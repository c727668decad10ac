// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "rendezvous/store/store_core.h"
#include "rendezvous/store/store_wire.h"
#include "worker_sdk/src/net/poll_set.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup {

/// A TCPStore server in its own thread. Rank 0 runs it in a job without an agent.
class StoreService {
   public:
    /// Listens on `port` of all addresses, 0 for a free one. Throws Error `system` naming the port.
    explicit StoreService(std::uint16_t port);
    /// Disconnects all clients.
    ~StoreService();
    StoreService(const StoreService&) = delete;
    StoreService& operator=(const StoreService&) = delete;

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

   private:
    struct Client {
        explicit Client(net::Stream stream_in) : stream(std::move(stream_in)) {}

        net::Stream stream;
        store::RequestParser parser;
        std::string outbox;  // Replies that have not been sent.
        bool finished = false;
    };

    void run();
    void accept_all(Instant now);
    void serve(store::ClientId id, Client& client);
    void handle(store::ClientId id, Client& client, std::string_view bytes);
    static void flush(Client& client);

    // Used only by the thread while it runs.
    net::Pollable listener_;
    net::Pollable wakeup_;  // An eventfd; the destructor writes to it.
    Instant accept_again_at_{};
    std::map<store::ClientId, Client> clients_;
    std::uint64_t next_client_ = 0;
    store::StoreCore core_;
    std::vector<std::byte> read_buffer_;

    std::uint16_t port_ = 0;  // Constant.
    std::atomic<bool> stopping_ = false;
    std::thread thread_;
};

}  // namespace regroup
