// SPDX-License-Identifier: Apache-2.0
//
// A worker of the restart benchmark. It first notes the time, then reports it to the gate
// (RestartHello over a Unix socket). It runs until the gate closes, its launcher ends, or the gate
// reports the loss of a peer. Some launchers do not end workers after these events, so it watches
// for them itself.
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/bench/restart_hello.h"

int main() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    regroup::bench::RestartHello hello;
    hello.started_ns = static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
    const char* rank = std::getenv("RANK");
    const char* path = std::getenv(regroup::bench::kGateVariable);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (rank == nullptr || path == nullptr || std::strlen(path) >= sizeof address.sun_path) {
        return 2;
    }
    hello.rank = std::atoi(rank);
    hello.pid = ::getpid();
    std::memcpy(address.sun_path, path, std::strlen(path));
    const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) {
        return 1;
    }
    char nothing = 0;
    return ::recv(fd, &nothing, 1, 0) == 0 ? 0 : 1;
}
