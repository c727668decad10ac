// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/restart_gate.h"

#include <algorithm>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <vector>

#include "rendezvous/base/ensure.h"

namespace regroup::bench {
namespace {

RestartGate::Time time_of(const RestartHello& hello) {
    return RestartGate::Time(std::chrono::nanoseconds(hello.started_ns));
}

}  // namespace

RestartGate::RestartGate(const std::string& path)
    : listener_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    constexpr int kBacklog = 1024;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ENSURE(path.size() < sizeof address.sun_path);
    path.copy(address.sun_path, path.size());
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    ENSURE(::bind(listener_.get(), generic, sizeof address) == 0);
    ENSURE(::listen(listener_.get(), kBacklog) == 0);
}

bool RestartGate::wait_for_round(std::size_t count, Time since, Time deadline) {
    const auto is_complete = [&] {
        return workers_.size() == count &&
               std::all_of(workers_.begin(), workers_.end(),
                           [&](const auto& entry) { return time_of(entry.second) > since; });
    };
    while (!is_complete()) {
        if (!take_in(deadline)) {
            return false;
        }
    }
    return true;
}

void RestartGate::watch_until(Time deadline) {
    while (take_in(deadline)) {
    }
}

bool RestartGate::break_off(std::size_t count, Time since, Time deadline) {
    while (workers_.size() > count) {
        if (!take_in(deadline)) {
            return false;
        }
    }
    for (const auto& [fd, hello] : workers_) {
        if (time_of(hello) <= since) {
            constexpr char kWord = 1;
            (void)::send(fd, &kWord, sizeof kWord, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
    return true;
}

RestartGate::Time RestartGate::last_start() const {
    Time last{};
    for (const auto& [fd, hello] : workers_) {
        last = std::max(last, time_of(hello));
    }
    return last;
}

int RestartGate::pid_of(int rank) const {
    const auto found = std::find_if(workers_.begin(), workers_.end(),
                                    [&](const auto& entry) { return entry.second.rank == rank; });
    return found != workers_.end() ? found->second.pid : 0;
}

void RestartGate::open() {
    listener_.reset();
    connections_.clear();
    workers_.clear();
}

/// Handles one event. False once `deadline` has passed.
bool RestartGate::take_in(Time deadline) {
    std::vector<pollfd> entries = {{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    for (const auto& [fd, connection] : connections_) {
        entries.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
        return false;
    }
    ::poll(entries.data(), entries.size(), static_cast<int>(left.count()));
    for (const pollfd& entry : entries) {
        if (entry.revents == 0) {
            continue;
        }
        if (entry.fd == listener_.get()) {
            UniqueFd fd(::accept4(entry.fd, nullptr, nullptr, SOCK_CLOEXEC));
            const int number = fd.get();
            if (fd) {
                connections_.emplace(number, std::move(fd));
            }
            continue;
        }
        RestartHello hello;
        if (::recv(entry.fd, &hello, sizeof hello, MSG_DONTWAIT) == sizeof hello) {
            workers_[entry.fd] = hello;
        } else {
            workers_.erase(entry.fd);
            connections_.erase(entry.fd);
        }
    }
    return true;
}

}  // namespace regroup::bench
