// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/network.h"

#include <fcntl.h>
#include <sched.h>
#include <tuple>
#include <unistd.h>
#include <utility>

namespace regroup::chaos {
namespace {

using testing::NetworkNamespace;
using Commands = std::vector<std::vector<std::string>>;

std::string port_of(std::size_t host) {
    return "port" + std::to_string(host);
}

std::string table_of(const std::string& fault) {
    return "fault_" + fault;
}

/// The command for one nft table with a chain for each direction; `in` and `out` are their rules.
Commands make_table(const std::string& fault, const std::string& in, const std::string& out) {
    const std::string table = "inet " + table_of(fault);
    std::string script = "add table " + table + "\n";
    for (const auto& [chain, rule, device] :
         {std::tuple("in", in, "iifname"), std::tuple("out", out, "oifname")}) {
        const std::string hook = std::string(chain) + "put";
        script +=
            "add chain " + table + " " + chain + " { type filter hook " + hook + " priority 0; }\n";
        if (!rule.empty()) {
            script += "add rule " + table + " " + chain + " " + device + " eth0 " + rule + "\n";
        }
    }
    return {{"nft", script}};
}

std::string losing(unsigned percent) {
    if (percent == 0) {
        return "";
    }
    return percent >= 100 ? "drop" : "numgen random mod 100 < " + std::to_string(percent) + " drop";
}

}  // namespace

std::string Network::address(std::size_t host) {
    return "10.79.0." + std::to_string(host + 1);
}

Result<Network> Network::lay(std::size_t host_count) {
    Result<NetworkNamespace> made = NetworkNamespace::make();
    if (!made) {
        return made.error();
    }
    Network network(*std::move(made));
    Result<void> done = network.switch_.run(
        {{"ip", "link", "add", "switch", "type", "bridge"}, {"ip", "link", "set", "switch", "up"}});
    for (std::size_t host = 0; host < host_count && done; ++host) {
        done = network.plug_in(host);
    }
    if (!done) {
        return done.error();
    }
    return network;
}

Result<void> Network::plug_in(std::size_t host) {
    Result<NetworkNamespace> made = NetworkNamespace::make();
    if (!made) {
        return made.error();
    }
    const NetworkNamespace& space = hosts_.emplace_back(*std::move(made));
    Result<void> done =
        switch_.run({{"ip", "link", "add", port_of(host), "type", "veth", "peer", "name", "eth0",
                      "netns", space.path()},
                     {"ip", "link", "set", port_of(host), "master", "switch", "up"}});
    if (!done) {
        return done;
    }
    return space.run({{"ip", "address", "add", address(host) + "/24", "dev", "eth0"},
                      {"ip", "link", "set", "lo", "up"},
                      {"ip", "link", "set", "eth0", "up"},
                      {"nft", "list", "ruleset"}});
}

void Network::within(std::size_t host, const std::string& name,
                     const std::function<void()>& action) const {
    // Programs that start later need the host name of this machine, which resolves.
    const int home = ::open("/proc/thread-self/ns/uts", O_RDONLY | O_CLOEXEC);
    ENSURE(home >= 0);
    ENSURE(::unshare(CLONE_NEWUTS) == 0);
    ENSURE(::sethostname(name.data(), name.size()) == 0);
    hosts_.at(host).within(action);
    ENSURE(::setns(home, CLONE_NEWUTS) == 0);
    ::close(home);
}

void Network::pull(std::size_t host) const {
    ENSURE(switch_.run({{"ip", "link", "set", port_of(host), "down"}}));
}

void Network::plug(std::size_t host) const {
    ENSURE(switch_.run({{"ip", "link", "set", port_of(host), "up"}}));
}

void Network::lose_packets(std::size_t host, const std::string& fault, unsigned in,
                           unsigned out) const {
    ENSURE(hosts_.at(host).run(make_table(fault, losing(in), losing(out))));
}

void Network::part(std::size_t host, std::size_t other, const std::string& fault) const {
    ENSURE(hosts_.at(host).run(make_table(fault, "ip saddr " + address(other) + " drop",
                                          "ip daddr " + address(other) + " drop")));
}

void Network::reset(std::size_t host, std::size_t other, const std::string& fault) const {
    // All packets except the resets themselves, which would be answered, too.
    const std::string answer = " tcp flags & rst == 0 reject with tcp reset";
    ENSURE(hosts_.at(host).run(make_table(fault, "ip saddr " + address(other) + answer,
                                          "ip daddr " + address(other) + answer)));
}

void Network::heal(std::size_t host, const std::string& fault) const {
    ENSURE(hosts_.at(host).run({{"nft", "delete table inet " + table_of(fault)}}));
}

Result<void> Network::redirect(std::size_t host, std::uint16_t port) const {
    return hosts_.at(host).run(
        {{"nft",
          "add table ip line\n"
          "add chain ip line out { type nat hook output priority -100; }\n"
          "add rule ip line out oifname eth0 meta l4proto tcp meta mark != 1 redirect to :" +
              std::to_string(port)}});
}

}  // namespace regroup::chaos
