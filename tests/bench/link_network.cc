// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/link_network.h"

#include <cstdint>
#include <fstream>

namespace regroup::bench {
namespace {

constexpr double kFrameBytes = 1514;    // A full Ethernet frame, as tbf counts it,
constexpr double kPayloadBytes = 1448;  // and its payload of TCP with timestamps.

// The queue never overflows, since no connection has more than a window in flight. So the benchmark
// measures the link, and not TCP's recovery from losses.
constexpr const char* kQueueBytes = "4000000";
constexpr const char* kReceiveWindow = "4096 32768 65536";

}  // namespace

std::string LinkNetwork::address(std::size_t index) {
    return "10.78.0." + std::to_string(index + 1);
}

Result<LinkNetwork> LinkNetwork::lay(std::size_t host_count, const LinkRate& rate) {
    Result<Namespace> network_switch = Namespace::make();
    if (!network_switch) {
        return network_switch.error();
    }
    LinkNetwork network(*std::move(network_switch));
    Result<void> done = network.switch_.run(
        {{"ip", "link", "add", "switch", "type", "bridge"}, {"ip", "link", "set", "switch", "up"}});
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
    Result<void> done = switch_.run(
        {{"ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host.path()},
         {"ip", "link", "set", port, "master", "switch", "up"}});
    if (done) {
        done = host.run({{"ip", "address", "add", address(index) + "/24", "dev", "eth0"},
                         {"ip", "link", "set", "lo", "up"},
                         {"ip", "link", "set", "eth0", "up"}});
    }
    host.within([] { std::ofstream("/proc/sys/net/ipv4/tcp_rmem") << kReceiveWindow; });
    // Each end of the cable limits its outgoing traffic: eth0 sends, the port receives.
    done = done ? limit(host, "eth0", rate) : done;
    return done ? limit(switch_, port, rate) : done;
}

Result<void> LinkNetwork::limit(const Namespace& where, const std::string& device,
                                const LinkRate& rate) {
    const double bits = rate.payload_bytes_per_second * 8 * kFrameBytes / kPayloadBytes;
    return where.run({{"tc", "qdisc", "add", "dev", device, "root", "tbf", "rate",
                       std::to_string(static_cast<std::uint64_t>(bits)) + "bit", "burst",
                       std::to_string(rate.burst_bytes), "limit", kQueueBytes}});
}

}  // namespace regroup::bench
