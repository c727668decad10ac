// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/net/listen.h"

#include <cerrno>
#include <limits>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/v6_only.hpp>

#include "rendezvous/net/port_holder.h"

namespace regroup::net {
namespace {

using boost::asio::ip::tcp;

/// Attempts to listen on a port that another process binds at the same instant.
constexpr int kAttempts = 16;

struct Kind {
    bool dual_stack = false;
    bool within_host = false;
};

/// Makes `acceptor` listen, or returns the error. `bound`: true if the port was bound.
boost::system::error_code listen_once(tcp::acceptor& acceptor, const tcp::endpoint& endpoint,
                                      Kind kind, bool& bound) {
    bound = false;
    // Asio's own open() would leave the descriptor to be inherited.
    const int fd = ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return {errno, boost::system::system_category()};
    }
    boost::system::error_code error;
    acceptor.assign(endpoint.protocol(), fd, error);
    if (error) {
        ::close(fd);
        return error;
    }
    if (kind.within_host) {
        // All that programs of this machine send to each other comes through this interface.
        constexpr char kLoopback[] = "lo";
        ::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, kLoopback, sizeof kLoopback);
    }
    acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error && kind.dual_stack) {
        acceptor.set_option(boost::asio::ip::v6_only(false), error);
    }
    if (!error) {
        acceptor.bind(endpoint, error);
        bound = !error;
    }
    if (!error) {
        // The kernel lowers the backlog to net.core.somaxconn.
        acceptor.listen(std::numeric_limits<int>::max(), error);
    }
    return error;
}

/// Repeats `listen_once` while no process gets the port: with SO_REUSEADDR two processes may both
/// bind it, and if they listen at the same instant the kernel refuses both.
boost::system::error_code try_listen(tcp::acceptor& acceptor, const tcp::endpoint& endpoint,
                                     Kind kind) {
    bool bound = false;
    boost::system::error_code error = listen_once(acceptor, endpoint, kind, bound);
    for (int attempt = 1;
         bound && error == boost::system::errc::address_in_use && attempt < kAttempts; ++attempt) {
        boost::system::error_code ignored;
        acceptor.close(ignored);
        error = listen_once(acceptor, endpoint, kind, bound);
    }
    return error;
}

Failure describe(const std::string& address, std::uint16_t port,
                 const boost::system::error_code& error) {
    const std::string of_address = address.empty() ? "" : " of " + address;
    if (error == boost::system::errc::address_in_use && port != 0) {
        if (is_kept_by_ended_connection(address, port)) {
            return {Errc::system,
                    "port " + std::to_string(port) + of_address +
                        " is still held, for up to a minute, by a connection that has ended"};
        }
        const auto holder = find_port_holder(address, port);
        const std::string by =
            !holder ? "a process of another network namespace"
            : holder->pid == 0
                ? "a process of another user, uid " + std::to_string(holder->user)
                : "pid " + std::to_string(holder->pid) + " (" + holder->command + ")";
        return {Errc::system, "port " + std::to_string(port) + of_address + " is taken by " + by};
    }
    return system_failure("cannot listen on port " + std::to_string(port) + of_address,
                          error.value());
}

Result<tcp::acceptor> listen_everywhere(boost::asio::io_context& io, std::uint16_t port,
                                        bool within_host) {
    tcp::acceptor both(io);
    boost::system::error_code error =
        try_listen(both, tcp::endpoint(tcp::v6(), port), {true, within_host});
    if (!error) {
        return both;
    }
    if (error == boost::system::errc::address_in_use) {
        return describe("", port, error);
    }
    tcp::acceptor ipv4(io);
    error = try_listen(ipv4, tcp::endpoint(tcp::v4(), port), {false, within_host});
    if (error) {
        return describe("", port, error);
    }
    return ipv4;
}

}  // namespace

Result<tcp::acceptor> listen_on(boost::asio::io_context& io, const std::string& address,
                                std::uint16_t port) {
    if (address.empty()) {
        return listen_everywhere(io, port, false);
    }
    boost::system::error_code error;
    const auto parsed = boost::asio::ip::make_address(address, error);
    if (error) {
        return Failure(Errc::invalid_argument,
                       "cannot listen on '" + address + "': it is no IPv4 or IPv6 address");
    }
    tcp::acceptor acceptor(io);
    error = try_listen(acceptor, tcp::endpoint(parsed, port), {});
    if (error) {
        return describe(address, port, error);
    }
    return acceptor;
}

Result<tcp::acceptor> listen_within_host(boost::asio::io_context& io, std::uint16_t port) {
    return listen_everywhere(io, port, true);
}

Result<tcp::acceptor> listen_on_loopback(boost::asio::io_context& io, std::uint16_t port) {
    Result<tcp::acceptor> ipv4 = listen_on(io, "127.0.0.1", port);
    return ipv4 ? std::move(ipv4) : listen_on(io, "::1", port);
}

}  // namespace regroup::net
