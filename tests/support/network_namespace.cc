// SPDX-License-Identifier: Apache-2.0
#include "tests/support/network_namespace.h"

#include <cerrno>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>
#include <utility>

#include "tests/support/program.h"

namespace regroup::testing {
namespace {

constexpr const char* kOwnNamespace = "/proc/thread-self/ns/net";

int open_own() {
    return ::open(kOwnNamespace, O_RDONLY | O_CLOEXEC);
}

}  // namespace

Result<NetworkNamespace> NetworkNamespace::make() {
    const NetworkNamespace home(open_own());
    if (home.fd_ < 0) {
        return system_failure("opening the network namespace", errno);
    }
    if (::unshare(CLONE_NEWNET) != 0) {
        const int error = errno;
        return Failure(Errc::system,
                       std::string("network namespaces cannot be made here") +
                           (error == EPERM ? ": that needs root"
                                           : ": " + system_failure("unshare", error).detail));
    }
    NetworkNamespace made(open_own());
    ENSURE(::setns(home.fd_, CLONE_NEWNET) == 0);
    return made;
}

NetworkNamespace::NetworkNamespace(NetworkNamespace&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

NetworkNamespace::~NetworkNamespace() {
    if (fd_ >= 0) {
        ::close(fd_);
    }
}

void NetworkNamespace::within(const std::function<void()>& action) const {
    const NetworkNamespace home(open_own());
    ENSURE(::setns(fd_, CLONE_NEWNET) == 0);
    action();
    ENSURE(::setns(home.fd_, CLONE_NEWNET) == 0);
}

Result<void> NetworkNamespace::run(const std::vector<std::vector<std::string>>& commands) const {
    Result<void> result;
    within([&] {
        for (const auto& command : commands) {
            result = run_tool(command);
            if (!result) {
                return;
            }
        }
    });
    return result;
}

std::string NetworkNamespace::path() const {
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd_);
}

std::string find_tool(const std::string& name) {
    for (const char* place : {"/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"}) {
        if (::access((place + name).c_str(), X_OK) == 0) {
            return place + name;
        }
    }
    return "";
}

Result<void> run_tool(const std::vector<std::string>& words) {
    std::vector<std::string> command = words;
    command.front() = find_tool(words.front());
    if (command.front().empty()) {
        return Failure(Errc::system, "the program " + words.front() + " is missing");
    }
    Program tool({command, {}, ""});
    if (tool.wait() == 0) {
        return {};
    }
    std::string all;
    for (const std::string& word : words) {
        all += (all.empty() ? "" : " ") + word;
    }
    std::string said = tool.output();
    said.erase(said.find_last_not_of('\n') + 1);
    return Failure(Errc::system, "`" + all + "` failed: " + said);
}

}  // namespace regroup::testing
