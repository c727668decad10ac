// SPDX-License-Identifier: Apache-2.0
#include "launcher/probe_port.h"

#include <chrono>
#include <unistd.h>
#include <utility>

#include <boost/asio/ip/tcp.hpp>

#include "launcher/host.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/listen.h"

namespace regroup::launcher {

namespace {

using boost::asio::ip::tcp;

constexpr Duration kSweepInterval = std::chrono::seconds(1);

http::Limits few_clients() {
    http::Limits limits;
    limits.connections_max = 16;
    limits.staying_max = 8;
    limits.head_bytes_max = std::size_t{4} << 10U;
    limits.body_bytes_max = 0;
    return limits;
}

}  // namespace

ProbePort::ProbePort(boost::asio::io_context& io, const Clock& clock, Look look)
    : io_(io),
      look_(std::move(look)),
      hosts_{full_host_name(), short_host_name()},
      door_(http::Door::Inside{io, clock, *this, credentials_, hosts_}, few_clients(),
            [](const std::string&, const std::string&, const std::string&) {}),
      accepting_(io, [this](int fd) { adopt(fd); }),
      timer_(io) {}

ProbePort::~ProbePort() = default;

Result<void> ProbePort::open(std::uint16_t port) {
    Result<tcp::acceptor> acceptor = net::listen_on(io_, "", port);
    if (!acceptor) {
        return acceptor.error();
    }
    accepting_.start(std::move(*acceptor));
    sweep();
    return {};
}

bool ProbePort::is_public(const std::string& /*path*/) const {
    return true;
}

void ProbePort::answer(const http::Request& request, Reply reply) {
    if (request.path == "/healthz") {
        reply(http::sentence(200, "alive"));
    } else if (request.path == "/readyz") {
        const State state = look_();
        reply(http::sentence(state.ready ? 200 : 503,
                             (state.ready ? "ready: " : "not ready: ") + state.text));
    } else {
        reply(http::sentence(404, "only /healthz and /readyz are here"));
    }
}

void ProbePort::adopt(int fd) {
    boost::system::error_code error;
    tcp::socket socket(io_);
    socket.assign(tcp::v6(), fd, error);  // No option of its family is used.
    if (error) {
        ::close(fd);
        return;
    }
    const tcp::endpoint theirs = socket.remote_endpoint(error);
    if (error) {
        return;  // The client is gone already.
    }
    http::Client client;
    client.address = net::plain(theirs.address()).to_string();
    client.peer = client.address + ":" + std::to_string(theirs.port());
    door_.adopt(security::Stream(std::move(socket)), "", std::move(client));
}

void ProbePort::sweep() {
    timer_.expires_after(kSweepInterval);
    timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) {
            door_.sweep();
            sweep();
        }
    });
}

}  // namespace regroup::launcher
