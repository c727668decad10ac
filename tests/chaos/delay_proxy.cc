// SPDX-License-Identifier: Apache-2.0
//
// A slow line in front of a node, for kernels without netem:
//
//     delay_proxy PORT DIAL
//
// nftables redirects the node's outgoing TCP connections to PORT. The proxy connects each to its
// original destination, and delays the data in both directions by the present value of DIAL, in
// microseconds. If one end breaks, it breaks the other. It prints "ready" and runs until it is
// killed. Its own connections carry mark 1, which exempts them from the redirection.
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <vector>

#include "rendezvous/files/unique_fd.h"
#include "tests/chaos/dial.h"

namespace regroup::chaos {
namespace {

using std::chrono::steady_clock;
using Time = steady_clock::time_point;

constexpr std::size_t kChunkBytes = 64 << 10U;
// In one direction; above this, the proxy stops reading.
constexpr std::size_t kHeldBytesMax = 4 << 20U;
constexpr int kMark = 1;
// From linux/netfilter_ipv4.h, which conflicts with netinet/in.h.
constexpr int kOriginalDestination = 80;

struct Chunk {
    Time due;
    std::string bytes;
    std::size_t sent = 0;
};

/// Data from one end of a connection to the other.
struct Direction {
    std::deque<Chunk> held;
    std::size_t held_bytes = 0;
    bool ended = false;      // The source has closed its side,
    bool passed_on = false;  // and the destination has been told.
};

class Line {
   public:
    Line(UniqueFd client, UniqueFd server) : ends_{std::move(client), std::move(server)} {}

    void watch(std::vector<pollfd>& entries, Time now) const {
        for (std::size_t side = 0; side < 2; ++side) {
            const Direction& in = ways_[side];
            const Direction& out = ways_[1 - side];
            short events = 0;
            if (!in.ended && in.held_bytes < kHeldBytesMax && (side == 0 || connected_)) {
                events |= POLLIN;
            }
            if ((side == 1 && !connected_) || (!out.held.empty() && out.held.front().due <= now)) {
                events |= POLLOUT;
            }
            // Without requested events, a hang-up of this end is ignored, too.
            entries.push_back({events != 0 ? ends_[side].get() : -1, events, 0});
        }
    }
    /// When the next delayed data is due.
    [[nodiscard]] Time due() const {
        Time result = Time::max();
        for (const Direction& way : ways_) {
            if (!way.held.empty()) {
                result = std::min(result, way.held.front().due);
            }
        }
        return result;
    }
    /// False once the line is broken or both ends are done.
    [[nodiscard]] bool serve(const pollfd* entries, Time now, std::chrono::microseconds delay) {
        for (std::size_t side = 0; side < 2; ++side) {
            const short seen = entries[side].revents;
            if (side == 1 && !connected_ && (seen & (POLLOUT | POLLERR | POLLHUP)) != 0) {
                int error = 0;
                socklen_t bytes = sizeof error;
                ::getsockopt(ends_[1].get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
                if (error != 0) {
                    return false;
                }
                connected_ = true;
            }
            if ((seen & (POLLIN | POLLHUP | POLLERR)) != 0 && !receive(side, now + delay)) {
                return false;
            }
        }
        return send(0, now) && send(1, now) && !(ways_[0].passed_on && ways_[1].passed_on);
    }

   private:
    bool receive(std::size_t side, Time due) {
        Direction& way = ways_[side];
        if (way.ended || way.held_bytes >= kHeldBytesMax) {
            return true;
        }
        std::string bytes(kChunkBytes, '\0');
        const ssize_t count = ::recv(ends_[side].get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (count < 0) {
            return errno == EAGAIN || errno == EINTR || errno == ENOTCONN;
        }
        if (count == 0) {
            way.ended = true;
            return true;
        }
        bytes.resize(static_cast<std::size_t>(count));
        way.held_bytes += bytes.size();
        way.held.push_back({due, std::move(bytes), 0});
        return true;
    }
    bool send(std::size_t side, Time now) {
        Direction& way = ways_[side];
        const int fd = ends_[1 - side].get();
        if (side == 0 && !connected_) {
            return true;
        }
        while (!way.held.empty() && way.held.front().due <= now) {
            Chunk& chunk = way.held.front();
            const ssize_t count =
                ::send(fd, chunk.bytes.data() + chunk.sent, chunk.bytes.size() - chunk.sent,
                       MSG_DONTWAIT | MSG_NOSIGNAL);
            if (count < 0) {
                return errno == EAGAIN || errno == EINTR;
            }
            chunk.sent += static_cast<std::size_t>(count);
            if (chunk.sent == chunk.bytes.size()) {
                way.held_bytes -= chunk.bytes.size();
                way.held.pop_front();
            }
        }
        if (way.ended && way.held.empty() && !way.passed_on) {
            way.passed_on = true;
            ::shutdown(fd, SHUT_WR);
        }
        return true;
    }

    UniqueFd ends_[2];
    Direction ways_[2];  // By their source.
    bool connected_ = false;
};

UniqueFd listen_at(std::uint16_t port) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int yes = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(fd.get(), SOMAXCONN) != 0) {
        std::perror("delay_proxy: listen");
        std::exit(1);
    }
    return fd;
}

/// Accepts one connection and connects its other half; null if there is none.
std::unique_ptr<Line> accept_line(int listener) {
    const int yes = 1;
    UniqueFd client(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    sockaddr_in target{};
    socklen_t bytes = sizeof target;
    if (!client || ::getsockopt(client.get(), SOL_IP, kOriginalDestination, &target, &bytes) != 0) {
        return nullptr;
    }
    UniqueFd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::setsockopt(server.get(), SOL_SOCKET, SO_MARK, &kMark, sizeof kMark);
    for (const int fd : {client.get(), server.get()}) {
        ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    }
    if (::connect(server.get(), reinterpret_cast<const sockaddr*>(&target), bytes) != 0 &&
        errno != EINPROGRESS) {
        return nullptr;
    }
    return std::make_unique<Line>(std::move(client), std::move(server));
}

int wait_ms(Time next) {
    if (next == Time::max()) {
        return -1;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - steady_clock::now());
    return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
}

int serve(std::uint16_t port, const Dial& dial) {
    const UniqueFd listener = listen_at(port);
    std::printf("ready\n");
    std::fflush(stdout);
    std::vector<std::unique_ptr<Line>> lines;
    for (;;) {
        std::vector<pollfd> entries{{listener.get(), POLLIN, 0}};
        Time next = Time::max();
        for (const auto& line : lines) {
            line->watch(entries, steady_clock::now());
            next = std::min(next, line->due());
        }
        ::poll(entries.data(), entries.size(), wait_ms(next));
        const Time now = steady_clock::now();
        const std::chrono::microseconds delay(dial.get());
        std::vector<std::unique_ptr<Line>> living;
        for (std::size_t i = 0; i < lines.size(); ++i) {
            if (lines[i]->serve(&entries[1 + 2 * i], now, delay)) {
                living.push_back(std::move(lines[i]));
            }
        }
        lines = std::move(living);
        if ((entries.front().revents & POLLIN) != 0) {
            if (auto line = accept_line(listener.get())) {
                lines.push_back(std::move(line));
            }
        }
    }
}

}  // namespace
}  // namespace regroup::chaos

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: delay_proxy PORT DIAL\n");
        return 2;
    }
    // Ends with its parent, even if that is killed.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::signal(SIGPIPE, SIG_IGN);
    const regroup::chaos::Dial dial(argv[2]);
    return regroup::chaos::serve(static_cast<std::uint16_t>(std::atoi(argv[1])), dial);
}
