// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

namespace regroup::net {

/// Accepts connections on one listening socket. When descriptors or memory have run out, it waits
/// and tries again; the connections stay in the kernel's queue meanwhile.
///
/// All calls from the io_context's only thread, which outlives the loop. Handlers that are still
/// queued when the loop is destroyed do nothing.
class AcceptLoop {
   public:
    /// Gets each accepted socket, non-blocking and not inherited by programs that this process
    /// starts. The handler owns the descriptor. It may pause, close or restart the loop, but not
    /// destroy it.
    using OnSocket = std::function<void(int fd)>;

    /// Gets the reason when accepting begins to wait, once until it has succeeded again.
    using OnShortage = std::function<void(const std::string& reason)>;

    AcceptLoop(boost::asio::io_context& io, OnSocket on_socket, OnShortage on_shortage = {});
    ~AcceptLoop();
    AcceptLoop(const AcceptLoop&) = delete;
    AcceptLoop& operator=(const AcceptLoop&) = delete;

    /// Accepts from `acceptor`, which listens already (see listen_on). A former one is closed.
    void start(boost::asio::ip::tcp::acceptor acceptor);
    /// Leaves connections in the kernel's queue until `resume`.
    void pause();
    void resume();
    /// Stops listening.
    void close();

   private:
    struct Impl;
    std::shared_ptr<Impl> impl_;
};

}  // namespace regroup::net
