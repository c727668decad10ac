// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/resolve.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <system_error>
#include <thread>
#include <utility>

#include "rendezvous/files/unique_fd.h"
#include "rendezvous/store/await_descriptor.h"

namespace regroup::store {
namespace {

using Answer = Result<std::vector<SocketAddress>>;

Answer look_up(const std::string& host, std::uint16_t port, int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* list = nullptr;
    const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
    if (code != 0) {
        return Failure(Errc::disconnected,
                       "cannot find host '" + host + "': " + ::gai_strerror(code));
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
    std::vector<SocketAddress> addresses;
    for (const int family : {AF_INET6, AF_INET}) {
        for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
            if (entry->ai_family == family) {
                SocketAddress& address = addresses.emplace_back();
                address.bytes = entry->ai_addrlen;
                std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
            }
        }
    }
    return addresses;
}

/// Shared by the caller and the thread that looks up. The eventfd becomes readable when the answer
/// is complete.
struct LookUp {
    UniqueFd done{::eventfd(0, EFD_CLOEXEC)};
    Answer answer{std::vector<SocketAddress>()};
};

}  // namespace

Answer resolve(const std::string& host, std::uint16_t port, Instant deadline, int interrupt_fd) {
    // A numeric address needs no name server, so no thread.
    if (auto addresses = look_up(host, port, AI_NUMERICHOST)) {
        return addresses;
    }
    const auto lookup = std::make_shared<LookUp>();
    if (!lookup->done) {
        return system_failure("cannot look up host '" + host + "': eventfd", errno);
    }
    try {
        std::thread([lookup, host, port] {
            lookup->answer = look_up(host, port, AI_ADDRCONFIG);
            ::eventfd_write(lookup->done.get(), 1);
        }).detach();
    } catch (const std::system_error& error) {
        return system_failure("cannot look up host '" + host + "': starting a thread",
                              error.code().value());
    }
    switch (await_descriptor(lookup->done.get(), POLLIN, interrupt_fd, deadline)) {
        case Readiness::interrupted:
            return Failure(Errc::fenced, "looking up host '" + host + "' was interrupted");
        case Readiness::timed_out:
            return Failure(Errc::deadline_exceeded,
                           "the name servers did not answer for host '" + host + "' in time");
        case Readiness::ready:
            break;
    }
    eventfd_t count = 0;
    ::eventfd_read(lookup->done.get(), &count);
    return std::move(lookup->answer);
}

}  // namespace regroup::store
