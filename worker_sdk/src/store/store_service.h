// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "rendezvous/files/unique_fd.h"
#include "rendezvous/store/store_engine.h"
#include "worker_sdk/src/net/fork_guard.h"

namespace regroup {

/// A TCPStore server in its own thread. Rank 0 runs it in a job without an agent. It asks its
/// clients for no secret.
class StoreService {
   public:
    /// Listens on `port`, 0 for a free one. `host` is where the ranks meet: if it is "localhost" or
    /// a loopback address, only this machine can connect, else all addresses are served. Throws
    /// Error `system` naming the port.
    StoreService(const std::string& host, std::uint16_t port, const store::Limits& limits);
    /// Disconnects all clients.
    ~StoreService();
    StoreService(const StoreService&) = delete;
    StoreService& operator=(const StoreService&) = delete;

    /// The limits of a world's store: those of every store, and 16 clients for each rank. A rank
    /// has one connection of its own, and its program may open more.
    [[nodiscard]] static store::Limits limits_of(std::uint32_t world_size);

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

   private:
    void run();
    [[nodiscard]] bool accept_some();

    const UniqueFd listener_;
    const net::ForkGuard listener_guard_;
    const UniqueFd wakeup_;  // An eventfd; the destructor writes to it.
    const std::uint16_t port_;
    store::StoreEngine engine_;  // Used only by the thread while it runs.
    std::atomic<bool> stopping_ = false;
    std::thread thread_;
};

}  // namespace regroup
