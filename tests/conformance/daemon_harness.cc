// SPDX-License-Identifier: Apache-2.0
#include "daemon_harness.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <gtest/gtest.h>

#include "rendezvous/protocol/codec.h"

namespace regroup::testing {

using namespace rendezvous;  // NOLINT: every message.

bool Loop::until(const std::function<bool()>& condition, Duration limit) {
    const Instant deadline = SteadyClock().now() + limit;
    while (!condition()) {
        if (SteadyClock().now() >= deadline) {
            return false;
        }
        io_.restart();
        io_.run_one_for(std::chrono::milliseconds(1));
        io_.poll();
    }
    return true;
}

void Loop::run_for(Duration time) {
    until([] { return false; }, time);
}

DaemonHost::DaemonHost(Loop& loop, const DaemonLimits& limits, std::uint16_t port,
                       const Change& change) {
    DaemonSetup setup;
    setup.limits = limits;
    setup.log = [this](const std::string& line) { log_.push_back(line); };
    setup.address = "127.0.0.1";
    setup.port = port;
    change(setup);
    auto opened = open_daemon(loop.io(), clock_, std::move(setup));
    EXPECT_TRUE(opened) << (opened ? "" : opened.error().detail);
    if (opened) {
        daemon_ = *std::move(opened);
        port_ = daemon_->port();
    }
}

std::size_t DaemonHost::count_logged(const std::string& text) const {
    return static_cast<std::size_t>(std::count_if(
        log_.begin(), log_.end(),
        [&](const std::string& line) { return line.find(text) != std::string::npos; }));
}

Peer::Peer(Loop& loop, std::uint16_t port, int receive_buffer)
    : loop_(&loop), fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer > 0) {
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        hang_up();
    }
}

Peer Peer::adopt(Loop& loop, int fd) {
    return {loop, fd, nullptr};
}

Peer::~Peer() {
    hang_up();
}

Peer::Peer(Peer&& other) noexcept
    : loop_(other.loop_),
      fd_(std::exchange(other.fd_, -1)),
      reader_(std::move(other.reader_)),
      text_(std::move(other.text_)),
      ended_(other.ended_) {}

void Peer::hang_up() {
    if (fd_ >= 0) {
        ::close(std::exchange(fd_, -1));
    }
}

bool Peer::send(std::string_view bytes) {
    bool broken = false;
    const bool done = loop_->until([&] {
        const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(count));
        } else {
            broken = errno != EAGAIN && errno != EINTR;
        }
        return bytes.empty() || broken;
    });
    return done && !broken;
}

bool Peer::say(const FromAgent& message) {
    return send(protocol::make_frame(protocol::encode(message)));
}

bool Peer::receive() {
    std::array<char, 65536> buffer{};
    const ssize_t count = ::recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count > 0) {
        reader_.feed(std::string_view(buffer.data(), static_cast<std::size_t>(count)));
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
        ended_ = true;
    }
    return !ended_;
}

std::optional<std::string> Peer::next_payload() {
    std::optional<std::string> payload;
    loop_->until([&] {
        Result<std::optional<std::string>> frame = reader_.next();
        EXPECT_TRUE(frame) << frame.error().detail;
        payload = std::move(*frame);
        return payload || !receive();
    });
    return payload;
}

std::optional<FromDaemon> Peer::next() {
    const std::optional<std::string> payload = next_payload();
    if (!payload) {
        return std::nullopt;
    }
    Result<FromDaemon> message = protocol::decode_from_daemon(*payload);
    EXPECT_TRUE(message) << message.error().detail << ": " << *payload;
    return message ? std::optional(std::move(*message)) : std::nullopt;
}

std::string Peer::await(const std::string& text) {
    loop_->until([&] {
        std::array<char, 65536> buffer{};
        const ssize_t count = ::recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
        text_.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
        ended_ = count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
        return ended_ || (!text.empty() && text_.find(text) != text_.npos);
    });
    EXPECT_TRUE(text.empty() || text_.find(text) != text_.npos) << text_;
    return text_;
}

std::string Peer::rest() {
    return await("");
}

std::string get_by_http(Loop& loop, std::uint16_t port, const std::string& target) {
    Peer client(loop, port);
    EXPECT_TRUE(
        client.send("GET " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
    return client.rest();
}

std::string body_by_http(Loop& loop, std::uint16_t port, const std::string& target) {
    const std::string answer = get_by_http(loop, port, target);
    const std::size_t end = answer.find("\r\n\r\n");
    return end == answer.npos ? "" : answer.substr(end + 4);
}

bool Peer::is_closed_by_peer(Duration limit) {
    return loop_->until([&] { return !receive(); }, limit);
}

Listener::Listener(Loop& loop)
    : loop_(loop), fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    if (fd_ < 0) {
        ADD_FAILURE() << "no socket";
        return;
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd_, 16), 0);
    socklen_t length = sizeof address;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
}

Listener::~Listener() {
    ::close(fd_);
}

Peer Listener::accept() {
    int accepted = -1;
    EXPECT_TRUE(loop_.until([&] {
        accepted = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        return accepted >= 0;
    }));
    return Peer::adopt(loop_, accepted);
}

void report_unexpected(const std::string& message) {
    ADD_FAILURE() << "got " << message;
}

std::string shown(const std::optional<FromDaemon>& message) {
    return message ? protocol::encode(*message) : "no message";
}

Join join_of(const std::string& job, const std::string& name, std::uint32_t nodes) {
    Join join;
    join.job = job;
    join.node = name + "-1234-00c0ffee";
    join.policy.nodes_min = nodes;
    join.policy.nodes_max = nodes;
    join.policy.heartbeat_timeout = std::chrono::minutes(5);
    join.policy.regroup_window = std::chrono::minutes(5);
    join.policy.program = "train";
    join.offer.name = name;
    join.offer.workers = 2;
    join.report.store_port = 40000;
    return join;
}

Report running(RoundId round) {
    Report report;
    report.report.round = round;
    report.report.state = NodeState::running;
    report.report.store_port = 40000;
    return report;
}

}  // namespace regroup::testing
