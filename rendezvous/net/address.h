// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/ip/address.hpp>

namespace regroup::net {

/// `address` without the IPv4-mapped form: a dual-stack socket shows 10.0.0.1 as ::ffff:10.0.0.1.
[[nodiscard]] inline boost::asio::ip::address plain(const boost::asio::ip::address& address) {
    namespace ip = boost::asio::ip;
    return address.is_v6() && address.to_v6().is_v4_mapped()
               ? ip::address(ip::make_address_v4(ip::v4_mapped, address.to_v6()))
               : address;
}

}  // namespace regroup::net
