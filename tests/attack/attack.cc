// SPDX-License-Identifier: Apache-2.0
#include "tests/attack/attack.h"

#include <algorithm>
#include <arpa/inet.h>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <set>
#include <sstream>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "rendezvous/base/ensure.h"
#include "rendezvous/protocol/codec.h"

namespace regroup::attack {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

timeval timeval_of(milliseconds limit) {
    return {limit.count() / 1000, limit.count() % 1000 * 1000};
}

}  // namespace

// ---- What an attacker does with.

Siege::Siege(int end_fd, std::function<void()> on_full_force)
    : end_fd_(end_fd), on_full_force_(std::move(on_full_force)) {}

Siege::~Siege() {
    for (const int fd : dialled_) {
        ::close(fd);
    }
}

bool Siege::goes_on() {
    if (on_full_force_) {
        std::exchange(on_full_force_, nullptr)();
    }
    pollfd end{end_fd_, POLLIN, 0};
    return ::poll(&end, 1, 0) == 0;
}

void Siege::hold() {
    if (goes_on()) {
        pollfd end{end_fd_, POLLIN, 0};
        ::poll(&end, 1, -1);
    }
}

int Siege::dial(const Target& target, std::string_view bytes) {
    const bool is_ipv6 = target.host.find(':') != std::string::npos;
    const int fd = ::socket(is_ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    const timeval limit = timeval_of(seconds(2));
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    const tcp::endpoint endpoint(asio::ip::make_address(target.host), target.port);
    if (::connect(fd, endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0) {
        ::close(fd);
        return -1;
    }
    dialled_.push_back(fd);
    send(fd, bytes);
    return fd;
}

bool Siege::send(int fd, std::string_view bytes) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent >= 0 || errno == EAGAIN;
}

std::string Siege::receive(int fd, std::size_t count, milliseconds limit) {
    const timeval time = timeval_of(limit);
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    std::string bytes(count, '\0');
    const ssize_t got = ::recv(fd, bytes.data(), count, MSG_WAITALL);
    bytes.resize(static_cast<std::size_t>(std::max(ssize_t{0}, got)));
    return bytes;
}

// ---- A connection that speaks the control protocol.

template <class T>
std::optional<T> Caller::run(asio::awaitable<T> work, milliseconds limit) {
    std::optional<T> result;
    bool over = false;
    asio::co_spawn(io_, std::move(work), [&](const std::exception_ptr& error, T value) {
        over = true;
        if (!error) {
            result = std::move(value);
        }
    });
    const auto deadline = std::chrono::steady_clock::now() + limit;
    io_.restart();
    while (!over && io_.run_one_until(deadline) > 0) {
    }
    if (!over) {
        stream_.close();
        io_.restart();
        while (!over && io_.run_one() > 0) {
        }
    }
    return result;
}

Caller::Caller(Siege& siege, const Target& target)
    : io_(siege.io()), stream_(tcp::socket(siege.io())) {
    const tcp::endpoint endpoint(asio::ip::make_address(target.host), target.port);
    const auto connect = [](security::Stream& stream, tcp::endpoint to) -> asio::awaitable<bool> {
        const auto [error] =
            co_await stream.socket().async_connect(to, asio::as_tuple(asio::use_awaitable));
        co_return !error;
    };
    if (!run(connect(stream_, endpoint), answer_limit()).value_or(false)) {
        stream_.close();
    }
}

Caller::Caller(Siege& siege, int fd) : io_(siege.io()), stream_(tcp::socket(siege.io())) {
    boost::system::error_code ignored;
    stream_.socket().assign(tcp::v4(), fd, ignored);
}

Caller::~Caller() {
    stream_.close();
}

bool Caller::secure(const security::Tls& tls, milliseconds limit) {
    const auto shake = [](security::Stream& stream, security::Ssl ssl) -> asio::awaitable<bool> {
        const Result<void> shaken = co_await stream.shake_hands(std::move(ssl));
        co_return static_cast<bool>(shaken);
    };
    if (!is_connected() || !run(shake(stream_, tls.connection()), limit).value_or(false)) {
        stream_.close();
        return false;
    }
    return true;
}

bool Caller::secure(const security::Token& token) {
    security::Credentials credentials;
    credentials.token = token;
    const Result<security::Tls> tls = security::Tls::client(credentials, token.scope());
    ENSURE(tls);
    return secure(*tls);
}

bool Caller::send(std::string_view bytes) {
    const auto write = [](security::Stream& stream, std::string_view all) -> asio::awaitable<bool> {
        const auto [error, count] = co_await stream.write(asio::buffer(all));
        co_return !error;
    };
    return is_connected() && run(write(stream_, bytes), answer_limit()).value_or(false);
}

bool Caller::say(const rendezvous::FromAgent& message) {
    return send(protocol::make_frame(protocol::encode(message)));
}

std::string Caller::read(milliseconds limit) {
    std::string bytes(65536, '\0');
    const auto read = [](security::Stream& stream,
                         std::string& into) -> asio::awaitable<std::size_t> {
        const auto [error, count] = co_await stream.read_some(asio::buffer(into));
        co_return error ? 0 : count;
    };
    bytes.resize(is_connected() ? run(read(stream_, bytes), limit).value_or(0) : 0);
    return bytes;
}

bool Caller::receive(milliseconds limit) {
    const std::string bytes = read(limit);
    reader_.feed(bytes);
    return !bytes.empty();
}

std::string Caller::get(const std::string& target) {
    std::string all;
    if (send("GET " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")) {
        for (std::string some; !(some = read(answer_limit())).empty();) {
            all += some;
        }
    }
    return all.substr(std::min(all.find("\r\n\r\n"), all.size()));
}

std::optional<std::string> Caller::next_payload(milliseconds limit) {
    for (;;) {
        Result<std::optional<std::string>> payload = reader_.next();
        if (!payload) {
            return std::nullopt;
        }
        if (*payload) {
            return std::move(*payload);
        }
        if (!receive(limit)) {
            return std::nullopt;
        }
    }
}

std::optional<rendezvous::FromDaemon> Caller::next(milliseconds limit) {
    const std::optional<std::string> payload = next_payload(limit);
    Result<rendezvous::FromDaemon> message =
        payload ? protocol::decode_from_daemon(*payload)
                : Result<rendezvous::FromDaemon>(Failure(Errc::disconnected, ""));
    return message ? std::optional(std::move(*message)) : std::nullopt;
}

bool Caller::is_closed_by_peer() {
    const milliseconds limit = 2 * answer_limit();
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (receive(limit)) {
        reader_ = {};
    }
    // A read that ran into its limit has closed the connection at this end.
    return std::chrono::steady_clock::now() < deadline;
}

std::unique_ptr<Caller> call(Siege& siege, const Target& target, const security::Token& token) {
    auto caller = std::make_unique<Caller>(siege, target);
    caller->secure(token);
    return caller;
}

// ---- An attacker.

namespace {

[[noreturn]] void attack_until_the_end(int said_fd, int end_fd, uid_t user,
                                       const std::function<std::string(Siege&)>& attack) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(has_sanitizer() ? 600 : 240);  // An attacker ends by itself, whatever happens.
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
    if (user != ::geteuid()) {
        ENSURE(::setgroups(0, nullptr) == 0 && ::setgid(user) == 0 && ::setuid(user) == 0);
    }
    const auto tell = [&](const std::string& text) {
        ENSURE(::write(said_fd, text.data(), text.size()) >= 0);
    };
    bool told = false;
    Siege siege(end_fd, [&] {
        told = true;
        tell("!");
    });
    const std::string complaint = attack(siege);
    tell((told ? "" : "!") + complaint.substr(0, 4000));
    pollfd over{end_fd, POLLIN, 0};
    ::poll(&over, 1, -1);
    ::_exit(0);
}

}  // namespace

Attacker::Attacker(const chaos::Network* network, std::optional<std::size_t> host, uid_t user,
                   const std::function<std::string(Siege&)>& attack) {
    int said[2];
    int end[2];
    ENSURE(::pipe2(said, O_CLOEXEC) == 0 && ::pipe2(end, O_CLOEXEC) == 0);
    // The child stays on that host: it never returns from here.
    const auto fork_here = [&] {
        pid_ = ::fork();
        if (pid_ == 0) {
            ::close(said[0]);
            ::close(end[1]);
            attack_until_the_end(said[1], end[0], user, attack);
        }
    };
    if (network != nullptr && host) {
        network->within(*host, "stranger", fork_here);
    } else {
        fork_here();
    }
    ENSURE(pid_ > 0);
    ::close(said[1]);
    ::close(end[0]);
    said_fd_ = said[0];
    end_fd_ = end[1];
}

bool Attacker::is_in_force() {
    pollfd said{said_fd_, POLLIN, 0};
    char mark = 0;
    return ::poll(&said, 1, has_sanitizer() ? 300000 : 120000) == 1 &&
           ::read(said_fd_, &mark, 1) == 1;
}

std::string Attacker::end() {
    // Attackers that were started later hold this pipe, too: closing it would not end anything.
    ENSURE(::write(end_fd_, "x", 1) == 1);
    ::close(std::exchange(end_fd_, -1));
    char block[512];
    for (ssize_t count = 0; (count = ::read(said_fd_, block, sizeof block)) > 0;) {
        said_.append(block, static_cast<std::size_t>(count));
    }
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? said_ : "the attacker crashed: " + said_;
}

Attacker::~Attacker() {
    if (pid_ > 0) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        ::close(end_fd_);
    }
    ::close(said_fd_);
}

// ---- Where processes listen.

std::vector<Target> listeners_of(pid_t pid, const std::string& host, bool only_own) {
    const std::string folder = "/proc/" + std::to_string(pid);
    std::set<std::string> own;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder + "/fd", error)) {
        own.insert(std::filesystem::read_symlink(entry.path(), error).string());
    }
    std::vector<Target> found;
    for (const char* table : {"/net/tcp", "/net/tcp6"}) {
        for (const std::string& line : testing::lines_of(testing::read_file(folder + table))) {
            std::istringstream fields(line);
            std::string number, local, remote, state, skip, inode;
            fields >> number >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >>
                inode;
            if (state != "0A" || (only_own && !own.contains("socket:[" + inode + "]"))) {
                continue;
            }
            const std::size_t colon = local.find(':');
            const std::string address = local.substr(0, colon);
            const unsigned long port = std::stoul(local.substr(colon + 1), nullptr, 16);
            found.push_back({host, static_cast<std::uint16_t>(port)});
            if (address.size() == 8 && address.ends_with("7F")) {  // 127.0.0.1 and the like.
                const in_addr loopback{static_cast<in_addr_t>(std::stoul(address, nullptr, 16))};
                found.back().host = ::inet_ntoa(loopback);
            }
        }
    }
    return found;
}

rendezvous::Join join_of(const std::string& job, const std::string& name, std::uint32_t nodes_min,
                         std::uint32_t nodes_max) {
    rendezvous::Join join;
    join.job = job;
    join.node = name + "-1234-00c0ffee";
    join.policy.nodes_min = nodes_min;
    join.policy.nodes_max = nodes_max;
    join.policy.last_call = milliseconds(10);
    join.policy.program = "elastic_probe";
    join.offer.name = name;
    join.offer.secret = name + "'s secret";
    join.report.store_port = 40000;
    return join;
}

rendezvous::Operate stop_of(const std::string& job) {
    return {job, rendezvous::Operate::Action::stop, "", "eve", "an attack", false};
}

rendezvous::Operate drain_of(const std::string& job, const std::string& node) {
    return {job, rendezvous::Operate::Action::drain, node, "eve", "an attack", false};
}

rendezvous::Operate logs_of(const std::string& job) {
    return {job, rendezvous::Operate::Action::logs, "", "eve", "", false};
}

milliseconds answer_limit() {
    return seconds(has_sanitizer() ? 60 : 10);
}

}  // namespace regroup::attack
