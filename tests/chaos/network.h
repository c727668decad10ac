// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"
#include "tests/support/network_namespace.h"

namespace regroup::chaos {

/// Hosts in network namespaces of their own, each on a cable to one switch: host i has the address
/// 10.79.0.i+1. Faults of cables have names, under which they are removed. A cable may have
/// several. One thread.
class Network {
   public:
    /// Errors: system, with what is missing on this machine (root, ip, nft, namespaces).
    static Result<Network> lay(std::size_t host_count);

    [[nodiscard]] static std::string address(std::size_t host);

    /// Runs `action`, and the processes that it starts, on that host, with host name `name`.
    void within(std::size_t host, const std::string& name,
                const std::function<void()>& action) const;

    void pull(std::size_t host) const;
    void plug(std::size_t host) const;
    /// Drops some per cent of the incoming and outgoing packets, until `heal`.
    void lose_packets(std::size_t host, const std::string& fault, unsigned in, unsigned out) const;
    /// Drops all packets between two hosts.
    void part(std::size_t host, std::size_t other, const std::string& fault) const;
    /// Answers each TCP packet between two hosts with a reset.
    void reset(std::size_t host, std::size_t other, const std::string& fault) const;
    void heal(std::size_t host, const std::string& fault) const;
    /// Redirects the host's outgoing TCP connections to its own port `port`, except those with mark
    /// 1.
    Result<void> redirect(std::size_t host, std::uint16_t port) const;

   private:
    explicit Network(testing::NetworkNamespace network_switch)
        : switch_(std::move(network_switch)) {}
    Result<void> plug_in(std::size_t host);

    testing::NetworkNamespace switch_;
    std::vector<testing::NetworkNamespace> hosts_;
};

}  // namespace regroup::chaos
