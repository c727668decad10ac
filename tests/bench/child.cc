// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/child.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace regroup::bench {

void give_up(const std::string& why) {
    std::fprintf(stderr, "%s: %s: %s\n", ::program_invocation_short_name, why.c_str(),
                 std::strerror(errno));
    std::exit(1);
}

Child::Child(const std::function<void()>& work) : pid_(::fork()) {
    if (pid_ == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        work();
        std::_Exit(0);
    }
}

Child::Child(std::size_t ports_count, const Serve& serve) : ports_(ports_count) {
    int ends[2];
    if (::pipe(ends) != 0) {
        give_up("pipe");
    }
    const std::size_t bytes = ports_.size() * sizeof ports_[0];
    pid_ = ::fork();
    if (pid_ == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        boost::asio::io_context io{1};
        [[maybe_unused]] const auto kept = serve(io, ports_);
        if (::write(ends[1], ports_.data(), bytes) != static_cast<ssize_t>(bytes)) {
            give_up("write");
        }
        io.run();
        std::_Exit(0);
    }
    ::close(ends[1]);
    if (::read(ends[0], ports_.data(), bytes) != static_cast<ssize_t>(bytes)) {
        give_up("the server did not start");
    }
    ::close(ends[0]);
}

Child::~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
}

Child::Spent Child::spent() const {
    Spent spent;
    std::ifstream schedstat(folder() + "/schedstat");
    double nanoseconds = 0;
    schedstat >> nanoseconds;
    spent.cpu_ms = nanoseconds / 1e6;
    std::ifstream status(folder() + "/status");
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("VmRSS:")) {
            spent.memory_kib = std::strtod(line.c_str() + 6, nullptr);
        }
    }
    return spent;
}

std::size_t raise_descriptor_limit() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_max;
}

int dial(std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        give_up("connect");
    }
    return fd;
}

}  // namespace regroup::bench
