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

namespace regroup::bench {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kReadBytes = 64 * 1024;
/// Ports are given out by address: one address has too few for all.
constexpr std::size_t kClientsPerAddress = 4000;

[[noreturn]] void give_up(const std::string& what) {
    std::fprintf(stderr, "store_bench: %s: %s\n", what.c_str(), std::strerror(errno));
    std::exit(1);
}

sockaddr_in loopback(std::uint32_t host, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
    address.sin_port = htons(port);
    return address;
}

int connect_client(std::uint16_t port, std::size_t number) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto host = static_cast<std::uint32_t>(1 + number / kClientsPerAddress);
    const sockaddr_in from = loopback(host, 0);
    const sockaddr_in to = loopback(1, port);
    const int on = 1;
    // The port is chosen at the connect, when it is known to whom.
    ::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (fd < 0 || ::bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0 ||
        ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
        give_up("client " + std::to_string(number) + " of port " + std::to_string(port));
    }
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
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

StoreLoad::StoreLoad(std::uint16_t port, pid_t server, Speech speech, std::size_t clients_count)
    : server_(server), speech_(std::move(speech)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    clients_.resize(clients_count);
    for (std::size_t i = 0; i < clients_count; ++i) {
        clients_[i].fd = connect_client(port, i);
        exchange(clients_[i].fd, speech_.greeting);
        if (i == 0) {
            exchange(clients_[i].fd, speech_.prepare);
        }
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u64 = i;
        ::epoll_ctl(epoll_, EPOLL_CTL_ADD, clients_[i].fd, &event);
    }
}

StoreLoad::~StoreLoad() {
    for (const Client& client : clients_) {
        ::close(client.fd);
    }
    ::close(epoll_);
}

void StoreLoad::exchange(int fd, const Exchange& exchange) {
    const std::string& request = exchange.request;
    if (::send(fd, request.data(), request.size(), 0) != static_cast<ssize_t>(request.size())) {
        give_up("greeting the server");
    }
    std::string reply(exchange.reply_bytes, '\0');
    if (!reply.empty() &&
        ::recv(fd, reply.data(), reply.size(), MSG_WAITALL) != static_cast<ssize_t>(reply.size())) {
        give_up("the server did not answer the greeting");
    }
}

void StoreLoad::send_next() {
    // Those behind are answered first; with fewer clients than in flight this one is free again.
    Client& client = clients_[next_];
    next_ = (next_ + 1) % clients_.size();
    if (client.missing_bytes > 0) {
        give_up("more requests in flight than clients");
    }
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
                give_up("the server does not answer as expected");
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
