// SPDX-License-Identifier: Apache-2.0
#include "launcher/systemd/passed_socket.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/net/descriptor.h"

namespace regroup::launcher {

namespace {

using boost::asio::ip::tcp;

constexpr int kFirstDescriptor = 3;
constexpr int kDescriptorsMax = 1024;  // As many as most processes may have.

int number_in(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? -1 : parse_number<int>(value).value_or(-1);
}

int option_of(int fd, int name) {
    int value = -1;
    socklen_t bytes = sizeof value;
    return ::getsockopt(fd, SOL_SOCKET, name, &value, &bytes) == 0 ? value : -1;
}

Failure refusal(const std::string& why) {
    return {Errc::invalid_argument, "cannot use what LISTEN_FDS passes: " + why};
}

}  // namespace

Result<std::optional<tcp::acceptor>> take_passed_socket(boost::asio::io_context& io) {
    const bool is_ours = number_in("LISTEN_PID") == ::getpid();
    const int count = is_ours ? number_in("LISTEN_FDS") : 0;
    if (is_ours) {
        for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) {
            ::unsetenv(name);
        }
    }
    for (int i = 0; i < std::min(count, kDescriptorsMax); ++i) {
        net::set_close_on_exec(kFirstDescriptor + i);
    }
    if (count == 0) {
        return std::optional<tcp::acceptor>();
    }
    if (count != 1) {
        return refusal(count < 0 ? std::string("it is no number")
                                 : std::to_string(count) +
                                       " sockets, and the daemon listens on one; give the socket "
                                       "unit one ListenStream=");
    }
    const int family = option_of(kFirstDescriptor, SO_DOMAIN);
    if ((family != AF_INET && family != AF_INET6) ||
        option_of(kFirstDescriptor, SO_PROTOCOL) != IPPROTO_TCP) {
        return refusal("no TCP socket; the socket unit needs ListenStream=PORT or ADDRESS:PORT");
    }
    if (option_of(kFirstDescriptor, SO_ACCEPTCONN) != 1) {
        return refusal("a socket that does not listen; the socket unit needs Accept=no");
    }
    tcp::acceptor acceptor(io);
    boost::system::error_code error;
    acceptor.assign(family == AF_INET ? tcp::v4() : tcp::v6(), kFirstDescriptor, error);
    if (error) {
        return refusal(error.message());
    }
    return std::optional(std::move(acceptor));
}

}  // namespace regroup::launcher
