// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/net/route.h"

#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace regroup::net {

namespace {

bool have_same_address(const sockaddr* a, const sockaddr* b) {
    if (a == nullptr || a->sa_family != b->sa_family) {
        return false;
    }
    if (a->sa_family == AF_INET) {
        return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
               reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
    }
    return a->sa_family == AF_INET6 &&
           std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                       &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

}  // namespace

std::string interface_towards(const std::string& address) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    // Any port: connecting a datagram socket only asks for the route.
    if (::getaddrinfo(address.c_str(), "9", &hints, &found) != 0) {
        return "";
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> target(found, &::freeaddrinfo);
    const int fd = ::socket(target->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    const bool known = fd >= 0 && ::connect(fd, target->ai_addr, target->ai_addrlen) == 0 &&
                       ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0;
    if (fd >= 0) {
        ::close(fd);
    }
    ifaddrs* list = nullptr;
    if (!known || ::getifaddrs(&list) != 0) {
        return "";
    }
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(list, &::freeifaddrs);
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (have_same_address(entry->ifa_addr, reinterpret_cast<const sockaddr*>(&own))) {
            return (entry->ifa_flags & IFF_LOOPBACK) != 0 ? "" : entry->ifa_name;
        }
    }
    return "";
}

}  // namespace regroup::net
