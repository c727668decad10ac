// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"
#include "tests/support/network_namespace.h"

namespace regroup::bench {

using Namespace = testing::NetworkNamespace;

/// A link's speed in each direction.
struct LinkRate {
    double payload_bytes_per_second = 1e6;  ///< TCP payload in full frames.
    std::size_t burst_bytes = 16 << 10U;    ///< Sent at once after a pause.
};

/// Hosts, each with its own full-duplex link to one switch. Host i has the address 10.78.0.i+1 on
/// its interface eth0. One thread.
class LinkNetwork {
   public:
    /// Errors: system, if this machine lacks root, ip, tc, or a kernel with namespaces, veth,
    /// bridge and tbf.
    static Result<LinkNetwork> lay(std::size_t host_count, const LinkRate& rate);

    [[nodiscard]] const Namespace& host(std::size_t index) const { return hosts_.at(index); }
    [[nodiscard]] static std::string address(std::size_t index);

   private:
    explicit LinkNetwork(Namespace network_switch) : switch_(std::move(network_switch)) {}
    Result<void> plug(std::size_t index, const LinkRate& rate);
    Result<void> limit(const Namespace& where, const std::string& device, const LinkRate& rate);

    Namespace switch_;
    std::vector<Namespace> hosts_;
};

}  // namespace regroup::bench
