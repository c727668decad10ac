// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/store/store_wire.h"
#include "rendezvous/store_server/store_server.h"

namespace regroup::rendezvous {

/// The key-value store on the daemon's own port, in which the launchers of PyTorch (torchrun with
/// --rdzv-backend=c10d) meet as if one of them served it.
///
/// In PyTorch the first node serves the workers' store, publishes its address in the first round
/// only, and ends the store when it dies. Therefore, when a node publishes the address of such a
/// store, this class opens a store for the job in the daemon, and answers every request for the
/// address, in every round, with the daemon's own. It stays valid for the whole job, whichever
/// nodes join or leave. The store is emptied at each new round. Jobs whose workers serve their
/// store themselves are not changed (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 and PyTorch 1.13): no
/// server answers yet at the address that they publish.
///
/// A job lasts as long as one of its launchers is connected, since no launcher connects twice. Then
/// its keys are forgotten and its id is free. Other keys stay until no client has been connected
/// for a while.
class LauncherStore {
   public:
    struct Options {
        /// The address on which the workers' stores listen; empty: all addresses.
        std::string address;
        store::Dialect older_dialect = store::Dialect::v1_13;
        /// Jobs beyond this can meet too, but their workers' stores are not served here.
        std::size_t jobs_max = 1024;
        /// To connections to the workers' stores. Empty: all may stay.
        store::Objection objection;
        Duration probe_limit = std::chrono::seconds(2);
        /// How long all keys stay after the last client of all has disconnected.
        Duration empty_limit = std::chrono::minutes(10);
    };
    /// One line for the log, without newline.
    using Log = std::function<void(const std::string& line)>;

    /// `io` and `clock` outlive it.
    LauncherStore(boost::asio::io_context& io, const Clock& clock, Options options, Log log);
    ~LauncherStore();
    LauncherStore(const LauncherStore&) = delete;
    LauncherStore& operator=(const LauncherStore&) = delete;

    /// Serves a client that was accepted elsewhere and has already sent `first_bytes`.
    void adopt(boost::asio::ip::tcp::socket socket, std::string_view first_bytes);

    /// Connections of launchers and workers together.
    [[nodiscard]] std::size_t clients_count() const;
    /// Requests to the store in which the launchers meet.
    [[nodiscard]] std::uint64_t requests_count() const;

    /// Forgets keys and jobs that are no longer needed. To be called about once a second.
    void sweep();

   private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace regroup::rendezvous
