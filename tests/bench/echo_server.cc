// SPDX-License-Identifier: Apache-2.0
//
// The smallest possible server: reads requests of a fixed size, and sends a fixed number of bytes
// for each.
//
//     echo_server REQUEST_BYTES REPLY_BYTES
//
// Prints its port. One epoll descriptor; one read and one write for all data that has arrived.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr std::size_t kReadBytes = 64 * 1024;

int listen_on_loopback() {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(fd, generic, bytes) != 0 || ::listen(fd, SOMAXCONN) != 0 ||
        ::getsockname(fd, generic, &bytes) != 0) {
        std::perror("echo_server");
        std::exit(1);
    }
    std::printf("port %d\n", ntohs(address.sin_port));
    std::fflush(stdout);
    return fd;
}

void watch(int epoll, int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fputs("usage: echo_server REQUEST_BYTES REPLY_BYTES\n", stderr);
        return 2;
    }
    const auto request_bytes = static_cast<std::size_t>(std::strtoul(argv[1], nullptr, 10));
    const auto reply_bytes = static_cast<std::size_t>(std::strtoul(argv[2], nullptr, 10));
    const int listener = listen_on_loopback();
    const int epoll = ::epoll_create1(0);
    watch(epoll, listener);
    std::vector<std::size_t> begun(65536);  // Bytes of an unfinished request, by descriptor.
    std::vector<char> input(kReadBytes);
    std::array<epoll_event, 256> events{};
    while (true) {
        const int count = ::epoll_wait(epoll, events.data(), static_cast<int>(events.size()), -1);
        for (int i = 0; i < count; ++i) {
            const int fd = events.at(static_cast<std::size_t>(i)).data.fd;
            if (fd == listener) {
                const int client = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
                const int on = 1;
                ::setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                begun[static_cast<std::size_t>(client)] = 0;
                watch(epoll, client);
                continue;
            }
            const ssize_t got = ::recv(fd, input.data(), input.size(), 0);
            if (got <= 0) {
                ::close(fd);
                continue;
            }
            std::size_t& bytes = begun[static_cast<std::size_t>(fd)];
            bytes += static_cast<std::size_t>(got);
            const std::string replies(bytes / request_bytes * reply_bytes, 'r');
            bytes %= request_bytes;
            if (!replies.empty() && ::send(fd, replies.data(), replies.size(), MSG_NOSIGNAL) < 0) {
                ::close(fd);
            }
        }
    }
}
