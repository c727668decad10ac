// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/spawn/spawned_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/base/result.h"

namespace regroup::spawning {
namespace {

/// Fits into a socket's buffer, so that an ending process never waits for its parent to read.
constexpr std::size_t kReportBytesMax = std::size_t{16} << 10U;
// Used in place of an Errc: any other std::exception, and no exception.
constexpr char kNoCode = '\x7f';
constexpr char kDone = '\x7e';

[[noreturn]] void fail(std::string_view call) {
    throw Error(Errc::system, system_failure("spawn: " + std::string(call), errno).detail);
}

void report(int socket, char code, std::string_view sentence) noexcept {
    std::array<char, kReportBytesMax> bytes{code};
    const std::size_t count = std::min(sentence.size(), bytes.size() - 1);
    std::memcpy(&bytes[1], sentence.data(), count);
    [[maybe_unused]] const ssize_t sent = ::send(socket, bytes.data(), 1 + count, MSG_NOSIGNAL);
}

void set_variable(const char* name, const std::string& value) noexcept {
    ::setenv(name, value.c_str(), 1);
}

/// False if the parent is gone before it has said where the store is.
bool join_world(int socket, std::uint32_t index, std::uint32_t process_count) noexcept {
    std::uint16_t port = 0;
    ssize_t count = 0;
    do {
        count = ::recv(socket, &port, sizeof port, 0);
    } while (count < 0 && errno == EINTR);
    if (count != sizeof port) {
        return false;
    }
    // Variables of the launcher apply to the spawning process only.
    for (const char* const name : {"REGROUP_AGENT_SOCKET", "REGROUP_WORKER_ID"}) {
        ::unsetenv(name);
    }
    for (const char* const name : {"RANK", "LOCAL_RANK"}) {
        set_variable(name, std::to_string(index));
    }
    for (const char* const name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) {
        set_variable(name, std::to_string(process_count));
    }
    set_variable("GROUP_RANK", "0");
    set_variable("GROUP_WORLD_SIZE", "1");
    set_variable("MASTER_ADDR", "127.0.0.1");
    set_variable("MASTER_PORT", std::to_string(port));
    set_variable("TORCHELASTIC_USE_AGENT_STORE", "True");
    return true;
}

/// Runs the function and ends the process. No exception may leave, since the frames above belong to
/// the parent's program.
[[noreturn]] void live(const SpawnFunction& function, std::uint32_t index, int socket) noexcept {
    int code = 0;
    try {
        function(index);
        report(socket, kDone, "");
    } catch (const Error& error) {
        report(socket, static_cast<char>(error.code()), error.what());
        code = 1;
    } catch (const std::exception& error) {
        report(socket, kNoCode, error.what());
        code = 1;
    }
    std::cout.flush();
    std::fflush(nullptr);
    ::_exit(code);
}

}  // namespace

SpawnedProcess::SpawnedProcess(std::uint32_t index, const SpawnFunction& function,
                               std::uint32_t process_count, bool sets_environment,
                               std::vector<SpawnedProcess>& earlier) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        fail("socketpair");
    }
    socket_ = UniqueFd(ends[0]);
    const UniqueFd theirs(ends[1]);
    // Otherwise parent and child would both write the buffered output.
    std::cout.flush();
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) {
        fail("fork");
    }
    if (pid_ == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) {
            ::_exit(1);  // The parent died before prctl().
        }
        socket_.reset();
        for (SpawnedProcess& other : earlier) {
            other.socket_.reset();
            other.pidfd_.reset();
        }
        if (sets_environment && !join_world(theirs.get(), index, process_count)) {
            ::_exit(1);
        }
        live(function, index, theirs.get());
    }
    pidfd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    if (!pidfd_) {
        const int error_number = errno;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        errno = error_number;
        fail("pidfd_open");
    }
}

void SpawnedProcess::tell_port(std::uint16_t port) const noexcept {
    [[maybe_unused]] const ssize_t sent = ::send(socket_.get(), &port, sizeof port, MSG_NOSIGNAL);
}

void SpawnedProcess::signal(int number) const noexcept {
    ::syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0);
}

bool SpawnedProcess::has_reported() const noexcept {
    pollfd report{socket_.get(), POLLIN, 0};
    return ::poll(&report, 1, 0) == 1;
}

ProcessEnd SpawnedProcess::reap() {
    ProcessEnd ending;
    std::array<char, kReportBytesMax> bytes{};
    const ssize_t count = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0 && bytes[0] != kDone) {
        Thrown& thrown = ending.thrown.emplace();
        if (bytes[0] != kNoCode) {
            thrown.code = static_cast<Errc>(bytes[0]);
        }
        thrown.sentence.assign(&bytes[1], static_cast<std::size_t>(count) - 1);
    }
    int status = 0;
    pid_t reaped = 0;
    do {
        reaped = ::waitpid(pid_, &status, 0);
    } while (reaped < 0 && errno == EINTR);
    if (reaped < 0) {
        // This program ignores SIGCHLD, or reaped the process elsewhere: only its report is known.
        ending.exit_code = count > 0 && bytes[0] == kDone ? 0 : ProcessEnd::kUnknown;
    } else if (WIFSIGNALED(status)) {
        ending.signal = WTERMSIG(status);
    } else {
        ending.exit_code = WEXITSTATUS(status);
    }
    return ending;
}

}  // namespace regroup::spawning
