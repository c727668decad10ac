// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/security/peer_user.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sstream>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "rendezvous/files/own_file.h"
#include "rendezvous/net/address.h"

namespace regroup::security {
namespace {

using boost::asio::ip::tcp;

// The states of a TCP socket, as sock_diag and /proc/net/tcp count them.
constexpr unsigned kListens = 10;

/// Not while it connects: that socket may be one that follows on the port of the peer.
bool is_connected(unsigned state) {
    constexpr std::array kConnected{1U, 4U, 5U, 8U};  // ESTABLISHED, FIN_WAIT1 and 2, CLOSE_WAIT.
    return std::find(kConnected.begin(), kConnected.end(), state) != kConnected.end();
}

std::size_t put_address(__be32 (&to)[4], const boost::asio::ip::address& address) {
    const auto put = [&to](const auto& bytes) {
        std::memcpy(to, bytes.data(), bytes.size());
        return bytes.size();
    };
    return address.is_v4() ? put(address.to_v4().to_bytes()) : put(address.to_v6().to_bytes());
}

/// An address and port as in /proc/net/tcp: words of 32 bits in the order of this machine.
std::string in_table(const tcp::endpoint& endpoint) {
    __be32 words[4] = {};
    const std::size_t count = put_address(words, endpoint.address()) / sizeof words[0];
    std::string text;
    char part[16];
    for (std::size_t i = 0; i < count; ++i) {
        std::snprintf(part, sizeof part, "%08X", words[i]);
        text += part;
    }
    std::snprintf(part, sizeof part, ":%04X", endpoint.port());
    return text + part;
}

tcp::endpoint plain(const tcp::endpoint& endpoint) {
    return {net::plain(endpoint.address()), endpoint.port()};
}

tcp::endpoint mapped(const tcp::endpoint& endpoint) {
    using boost::asio::ip::address_v6;
    return endpoint.address().is_v4()
               ? tcp::endpoint(boost::asio::ip::make_address_v6(boost::asio::ip::v4_mapped,
                                                                endpoint.address().to_v4()),
                               endpoint.port())
               : endpoint;
}

tcp::endpoint any_of(const tcp::endpoint& like) {
    return like.address().is_v4() ? tcp::endpoint(tcp::v4(), 0) : tcp::endpoint(tcp::v6(), 0);
}

}  // namespace

bool is_within_this_host(const tcp::endpoint& ours, const tcp::endpoint& theirs) {
    const auto own = net::plain(ours.address());
    const auto other = net::plain(theirs.address());
    return other.is_loopback() || own == other;
}

/// A socket as the kernel describes it. Without a process the inode is 0, and the user means
/// nothing.
struct PeerUsers::Owner {
    unsigned state = 0;
    uid_t user = 0;
    unsigned long inode = 0;
};

PeerUsers::PeerUsers() {
    const auto keep = [](Source& source, int fd) { source = {UniqueFd(fd), fd < 0 ? errno : 0}; };
    keep(netlink_, ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    keep(tcp_, ::open("/proc/net/tcp", O_RDONLY | O_CLOEXEC));
    keep(tcp6_, ::open("/proc/net/tcp6", O_RDONLY | O_CLOEXEC));
}

Result<std::optional<PeerUsers::Owner>> PeerUsers::ask_kernel(const Endpoint& local,
                                                              const Endpoint& remote) {
    struct {
        nlmsghdr head;
        inet_diag_req_v2 request;
    } question{};
    question.head.nlmsg_len = sizeof question;
    question.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    question.head.nlmsg_flags = NLM_F_REQUEST;
    question.head.nlmsg_seq = ++questions_;
    inet_diag_req_v2& request = question.request;
    request.sdiag_family = local.address().is_v4() ? AF_INET : AF_INET6;
    request.sdiag_protocol = IPPROTO_TCP;
    request.idiag_states = ~0U;
    request.id.idiag_sport = htons(local.port());
    request.id.idiag_dport = htons(remote.port());
    put_address(request.id.idiag_src, local.address());
    put_address(request.id.idiag_dst, remote.address());
    request.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
    request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    if (!netlink_.fd) {
        return system_failure("sock_diag", netlink_.error);
    }
    sockaddr_nl kernel{};
    kernel.nl_family = AF_NETLINK;
    if (::sendto(netlink_.fd.get(), &question, sizeof question, 0,
                 reinterpret_cast<sockaddr*>(&kernel), sizeof kernel) < 0) {
        return system_failure("sock_diag", errno);
    }
    // The kernel has answered when the request returns. An answer to an earlier question that was
    // not read is skipped.
    for (;;) {
        alignas(nlmsghdr) std::array<char, 1024> answer{};
        const ssize_t bytes = ::recv(netlink_.fd.get(), answer.data(), answer.size(), MSG_DONTWAIT);
        nlmsghdr head{};
        if (bytes < static_cast<ssize_t>(sizeof head)) {
            return system_failure("sock_diag", bytes < 0 ? errno : EPROTO);
        }
        std::memcpy(&head, answer.data(), sizeof head);
        if (head.nlmsg_seq != questions_) {
            continue;
        }
        nlmsgerr error{};
        if (head.nlmsg_type == NLMSG_ERROR &&
            bytes >= static_cast<ssize_t>(NLMSG_HDRLEN + sizeof error)) {
            std::memcpy(&error, answer.data() + NLMSG_HDRLEN, sizeof error);
            return error.error == -ENOENT
                       ? Result<std::optional<Owner>>(std::nullopt)
                       : Result<std::optional<Owner>>(system_failure("sock_diag", -error.error));
        }
        inet_diag_msg message{};
        if (head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
            bytes < static_cast<ssize_t>(NLMSG_HDRLEN + sizeof message)) {
            return system_failure("sock_diag", EPROTO);
        }
        std::memcpy(&message, answer.data() + NLMSG_HDRLEN, sizeof message);
        // Without the connection the kernel may answer with the socket that listens there.
        return ntohs(message.id.idiag_dport) == remote.port()
                   ? std::optional(
                         Owner{message.idiag_state, message.idiag_uid, message.idiag_inode})
                   : std::nullopt;
    }
}

/// Costs as much as there are sockets.
Result<std::optional<PeerUsers::Owner>> PeerUsers::look_up(const Source& table,
                                                           const std::string& local,
                                                           const std::string& remote) {
    if (!table.fd) {
        return system_failure("/proc/net/tcp", table.error);
    }
    // From the start, wherever it was read to before.
    const bool is_rewound = ::lseek(table.fd.get(), 0, SEEK_SET) == 0;
    const Result<std::string> text =
        is_rewound ? files::read_all(table.fd.get(), std::numeric_limits<std::size_t>::max())
                   : system_failure("/proc/net/tcp", errno);
    if (!text) {
        return text.error();
    }
    std::istringstream lines(*text);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
        std::istringstream fields(line);
        std::string number;
        std::string own;
        std::string other;
        std::string state;
        std::string skipped;
        Owner owner;
        fields >> number >> own >> other >> state >> skipped >> skipped >> skipped >> owner.user >>
            skipped >> owner.inode;
        if (fields && own == local && other == remote) {
            owner.state = static_cast<unsigned>(std::strtoul(state.c_str(), nullptr, 16));
            return std::optional(owner);
        }
    }
    return std::optional<Owner>();
}

Result<std::optional<PeerUsers::Owner>> PeerUsers::owner_in_tables(const Endpoint& local,
                                                                   const Endpoint& remote) {
    if (local.address().is_v4()) {
        auto owner = look_up(tcp_, in_table(local), in_table(remote));
        const bool has_both = tcp6_.error != ENOENT;  // Without IPv6 there is no second table.
        if (!owner || *owner || !has_both) {
            return owner;
        }
    }
    return look_up(tcp6_, in_table(mapped(local)), in_table(mapped(remote)));
}

/// The first of `places` that somebody owns; the kernel is asked for that alone, and its tables for
/// all. `fits`: whether the state of the socket is the wanted one.
Result<std::optional<uid_t>> PeerUsers::user_of(const std::vector<Ends>& places,
                                                bool (*fits)(unsigned state)) {
    Result<std::optional<Owner>> owner = ask_kernel(places.front().local, places.front().remote);
    for (const Ends& place : places) {
        if (owner && *owner) {
            break;
        }
        Result<std::optional<Owner>> in_tables = owner_in_tables(place.local, place.remote);
        if (in_tables || !owner) {
            owner = std::move(in_tables);
        }
    }
    if (!owner) {
        return owner.error();
    }
    const std::optional<Owner>& found = *owner;
    return found && found->inode != 0 && fits(found->state) ? std::optional(found->user)
                                                            : std::nullopt;
}

Result<std::optional<uid_t>> PeerUsers::user_of_peer(const Endpoint& ours, const Endpoint& theirs) {
    return user_of({{plain(theirs), plain(ours)}}, is_connected);
}

Result<std::optional<uid_t>> PeerUsers::user_who_listens(const Endpoint& where) {
    const tcp::endpoint local = plain(where);
    const tcp::endpoint any = any_of(local);
    const tcp::endpoint any_v6(tcp::v6(), 0);
    return user_of({{local, any},
                    {tcp::endpoint(any.address(), local.port()), any},
                    {tcp::endpoint(tcp::v6(), local.port()), any_v6}},
                   [](unsigned state) { return state == kListens; });
}

std::optional<std::string> PeerUsers::object_to_stranger(const Endpoint& ours,
                                                         const Endpoint& theirs) {
    if (!is_within_this_host(ours, theirs)) {
        return "it is not on this host";
    }
    const Result<std::optional<uid_t>> user = user_of_peer(ours, theirs);
    if (!user) {
        return "the kernel cannot be asked for its user: " + user.error().detail;
    }
    if (!*user) {
        return "no process of this host holds its other end";
    }
    if (!is_trusted(**user)) {
        return "it belongs to " + user_text(**user);
    }
    return std::nullopt;
}

bool is_trusted(uid_t user) noexcept {
    return user == ::geteuid() || user == 0;
}

std::string user_text(uid_t user) {
    passwd entry{};
    passwd* found = nullptr;
    std::array<char, 4096> buffer{};
    const bool has_name =
        ::getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr;
    return "user " + (has_name ? std::string(entry.pw_name) : std::to_string(user));
}

}  // namespace regroup::security
