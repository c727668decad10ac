// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/store_load.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "tests/bench/child.h"

namespace regroup::bench {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kReadBytes = 64 * 1024;
/// Ports are assigned per address, and one address has too few for all clients.
constexpr std::size_t kClientsPerAddress = 4000;
constexpr int kGreetingLimitSeconds = 3;

/// 127.0.0.`host`.
sockaddr_in loopback(std::size_t host, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + static_cast<std::uint32_t>(host));
    address.sin_port = htons(port);
    return address;
}

int connect_client(const StoreLoad::Target& target, std::size_t number) {
    const sockaddr_in from = loopback(1 + number / kClientsPerAddress, 0);
    const sockaddr_in to = loopback(1, target.port);
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    // The kernel chooses the port at the connect, when it knows the destination.
    ::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (fd < 0 || ::bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0 ||
        ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
        give_up("client " + std::to_string(number) + " of port " + std::to_string(target.port));
    }
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const timeval limit{kGreetingLimitSeconds, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return fd;
}

}  // namespace

std::uint64_t processor_time(pid_t pid) {
    std::uint64_t sum = 0;
    std::error_code error;
    const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
        std::uint64_t time = 0;
        std::ifstream(task.path() / "schedstat") >> time;
        sum += time;
    }
    return sum;
}

StoreLoad::StoreLoad(const Target& target, Speech speech, std::size_t clients_count)
    : server_(target.pid), speech_(std::move(speech)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    for (std::size_t i = 0; i < clients_count && is_ready_; ++i) {
        const int fd = connect_client(target, i);
        clients_.push_back({fd, 0, {}});
        is_ready_ = exchange(fd, speech_.greeting) && (i > 0 || exchange(fd, speech_.prepare));
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u64 = i;
        ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    }
}

StoreLoad::~StoreLoad() {
    for (const Client& client : clients_) {
        ::close(client.fd);
    }
    ::close(epoll_);
}

bool StoreLoad::exchange(int fd, const Exchange& exchange) {
    const auto request_bytes = static_cast<ssize_t>(exchange.request.size());
    const auto reply_bytes = static_cast<ssize_t>(exchange.reply_bytes);
    std::string reply(exchange.reply_bytes, '\0');
    return ::send(fd, exchange.request.data(), exchange.request.size(), MSG_NOSIGNAL) ==
               request_bytes &&
           (reply.empty() || ::recv(fd, reply.data(), reply.size(), MSG_WAITALL) == reply_bytes);
}

void StoreLoad::send_next() {
    // There are never more requests in flight than clients, so one client is free.
    while (clients_[next_].missing_bytes > 0) {
        next_ = (next_ + 1) % clients_.size();
    }
    Client& client = clients_[next_];
    next_ = (next_ + 1) % clients_.size();
    client.missing_bytes = speech_.operation.reply_bytes;
    client.sent_at = steady_clock::now();
    const std::string& request = speech_.operation.request;
    if (::send(client.fd, request.data(), request.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(request.size())) {
        give_up("sending to the server");
    }
    ++in_flight_;
}

std::size_t StoreLoad::drive(std::chrono::milliseconds time) {
    static std::array<char, kReadBytes> input;
    std::array<epoll_event, 256> events{};
    const auto end = steady_clock::now() + time;
    const bool all = in_flight_ == clients_.size();
    std::size_t operations = 0;
    while (steady_clock::now() < end) {
        const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 100);
        const auto now = steady_clock::now();
        for (int i = 0; i < count; ++i) {
            const auto number =
                static_cast<std::size_t>(events.at(static_cast<std::size_t>(i)).data.u64);
            Client& client = clients_[number];
            const ssize_t got = ::recv(client.fd, input.data(), input.size(), 0);
            if (got <= 0 || static_cast<std::size_t>(got) > client.missing_bytes) {
                std::printf("  client %zu of %zu got %zd bytes instead of %zu\n", number,
                            clients_.size(), got, client.missing_bytes);
                is_ready_ = false;
                return 0;
            }
            client.missing_bytes -= static_cast<std::size_t>(got);
            if (client.missing_bytes > 0) {
                continue;
            }
            latencies_us_.push_back(
                std::chrono::duration<float, std::micro>(now - client.sent_at).count());
            --in_flight_;
            ++operations;
            if (all) {
                next_ = number;
            }
            send_next();
        }
    }
    return operations;
}

LoadResult StoreLoad::run(std::size_t in_flight, std::chrono::milliseconds time) {
    while (in_flight_ < std::min(in_flight, clients_.size())) {
        send_next();
    }
    drive(time / 5);
    if (!is_ready_) {
        return {};
    }
    latencies_us_.clear();
    const std::uint64_t time_before = processor_time(server_);
    const auto begin = steady_clock::now();
    const auto operations = static_cast<double>(drive(time));
    const std::chrono::duration<double> took = steady_clock::now() - begin;
    const auto used = static_cast<double>(processor_time(server_) - time_before);
    LoadResult result;
    result.operations_per_second = operations / took.count();
    result.server_us_per_operation = operations > 0 ? used / 1000 / operations : 0;
    if (!latencies_us_.empty()) {
        const auto p99 =
            latencies_us_.begin() + static_cast<std::ptrdiff_t>(latencies_us_.size() * 99 / 100);
        std::nth_element(latencies_us_.begin(), p99, latencies_us_.end());
        result.p99_us = static_cast<double>(*p99);
    }
    return result;
}

}  // namespace regroup::bench
