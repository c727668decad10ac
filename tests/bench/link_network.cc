// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/link_network.h"

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <fstream>
#include <sched.h>
#include <unistd.h>
#include <utility>

#include "tests/bench/timed_run.h"
#include "tests/support/program.h"

namespace regroup::bench {
namespace {

constexpr const char* kOwnNamespace = "/proc/thread-self/ns/net";
constexpr double kFrameBytes = 1514;    // Of Ethernet, as tbf counts them,
constexpr double kPayloadBytes = 1448;  // and what TCP with timestamps carries in one.

// A queue that never overflows, because no connection may have more than a window under way: what
// is measured is the link, and not how TCP recovers from losses.
constexpr const char* kQueueBytes = "4000000";
constexpr const char* kReceiveWindow = "4096 32768 65536";

/// Runs a tool of iproute2 where the thread is.
Result<void> run(const std::vector<std::string>& words) {
    // A user's PATH may lack the places of the system's tools.
    auto program = find_program(words.front());
    for (const char* place : {"/usr/sbin/", "/sbin/"}) {
        program = program ? program : find_program(place + words.front());
    }
    if (!program) {
        return Failure(Errc::system,
                       "the program " + words.front() + " (Debian: iproute2) is missing");
    }
    std::vector<std::string> command = words;
    command.front() = *program;
    testing::Program tool({command, {}, ""});
    if (tool.wait() == 0) {
        return {};
    }
    std::string all;
    for (const std::string& word : words) {
        all += word + " ";
    }
    std::string said = tool.output();
    said.erase(said.find_last_not_of('\n') + 1);
    return Failure(Errc::system, "`" + all + "` failed: " + said);
}

/// The first failure of several commands, in that namespace.
Result<void> run_in(const Namespace& where, const std::vector<std::vector<std::string>>& commands) {
    Result<void> result;
    where.within([&] {
        for (const auto& command : commands) {
            result = run(command);
            if (!result) {
                return;
            }
        }
    });
    return result;
}

}  // namespace

Result<Namespace> Namespace::make() {
    const int home = ::open(kOwnNamespace, O_RDONLY | O_CLOEXEC);
    if (home < 0) {
        return system_failure("opening the network namespace", errno);
    }
    const Namespace back(home);
    if (::unshare(CLONE_NEWNET) != 0) {
        const int error = errno;
        return Failure(Errc::system,
                       std::string("network namespaces cannot be made here") +
                           (error == EPERM ? ": that needs root"
                                           : ": " + system_failure("unshare", error).detail));
    }
    Namespace made(::open(kOwnNamespace, O_RDONLY | O_CLOEXEC));
    ENSURE(::setns(home, CLONE_NEWNET) == 0);
    return made;
}

Namespace::Namespace(Namespace&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Namespace::~Namespace() {
    if (fd_ >= 0) {
        ::close(fd_);
    }
}

void Namespace::within(const std::function<void()>& action) const {
    const Namespace home(::open(kOwnNamespace, O_RDONLY | O_CLOEXEC));
    ENSURE(::setns(fd_, CLONE_NEWNET) == 0);
    action();
    ENSURE(::setns(home.fd_, CLONE_NEWNET) == 0);
}

std::string Namespace::path() const {
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd_);
}

std::string LinkNetwork::address(std::size_t index) {
    return "10.78.0." + std::to_string(index + 1);
}

Result<LinkNetwork> LinkNetwork::lay(std::size_t host_count, const LinkRate& rate) {
    Result<Namespace> network_switch = Namespace::make();
    if (!network_switch) {
        return network_switch.error();
    }
    LinkNetwork network(*std::move(network_switch));
    Result<void> done = run_in(network.switch_, {{"ip", "link", "add", "switch", "type", "bridge"},
                                                 {"ip", "link", "set", "switch", "up"}});
    for (std::size_t index = 0; index < host_count && done; ++index) {
        done = network.plug(index, rate);
    }
    if (!done) {
        return done.error();
    }
    return network;
}

Result<void> LinkNetwork::plug(std::size_t index, const LinkRate& rate) {
    Result<Namespace> made = Namespace::make();
    if (!made) {
        return made.error();
    }
    const Namespace& host = hosts_.emplace_back(*std::move(made));
    const std::string port = "port" + std::to_string(index);
    Result<void> done = run_in(switch_, {{"ip", "link", "add", port, "type", "veth", "peer", "name",
                                          "eth0", "netns", host.path()},
                                         {"ip", "link", "set", port, "master", "switch", "up"}});
    if (done) {
        done = run_in(host, {{"ip", "address", "add", address(index) + "/24", "dev", "eth0"},
                             {"ip", "link", "set", "lo", "up"},
                             {"ip", "link", "set", "eth0", "up"}});
    }
    host.within([] { std::ofstream("/proc/sys/net/ipv4/tcp_rmem") << kReceiveWindow; });
    // What leaves an end of the cable is limited there: eth0 sends, the port receives.
    done = done ? limit(host, "eth0", rate) : done;
    return done ? limit(switch_, port, rate) : done;
}

Result<void> LinkNetwork::limit(const Namespace& where, const std::string& device,
                                const LinkRate& rate) {
    const double bits = rate.payload_bytes_per_second * 8 * kFrameBytes / kPayloadBytes;
    return run_in(where, {{"tc", "qdisc", "add", "dev", device, "root", "tbf", "rate",
                           std::to_string(static_cast<std::uint64_t>(bits)) + "bit", "burst",
                           std::to_string(rate.burst_bytes), "limit", kQueueBytes}});
}

}  // namespace regroup::bench
