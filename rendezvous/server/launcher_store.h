// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/store/store_wire.h"

namespace regroup::rendezvous {

/// The key-value store on the daemon's own port, in which the launchers of PyTorch (torchrun with
/// --rdzv-backend=c10d) meet as if one of them served it.
///
/// They leave to it what goes wrong between themselves: PyTorch's first node serves the store of
/// the workers, says so in the first round only, and takes it along when it dies. So when a node
/// publishes the address of such a store, this class opens one for the job here, and answers every
/// question for the address, in whatever round, with its own. That address is right for as long as
/// the job lives, whoever comes and goes, and what is in the store is forgotten at each new round.
/// Jobs whose workers serve their store themselves are left alone
/// (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 and PyTorch 1.13): nobody answers yet at the address that
/// they publish.
///
/// A job lasts as long as any of its launchers is connected, since none of them connects twice;
/// then its keys are forgotten and its id is free. Other keys stay until nobody
/// has been connected for a while.
class LauncherStore {
   public:
    struct Options {
        /// Where the stores of the workers listen; empty for everywhere.
        std::string address;
        store::Dialect older_dialect = store::Dialect::v1_13;
        /// Jobs beyond that meet too, but their workers' stores are left where they are.
        std::size_t jobs_max = 1024;
        Duration probe_limit = std::chrono::seconds(2);
        /// From the end of the last client of all to that of all keys.
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
    void adopt(boost::asio::ip::tcp::socket socket, std::string first_bytes);

    /// Connections of launchers and workers together.
    [[nodiscard]] std::size_t clients_count() const;

    /// Forgets what nobody needs any more. To be called about once a second.
    void sweep();

   private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace regroup::rendezvous
