// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/security/peer_user.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sstream>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

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

/// A socket as the kernel describes it. Without a process the inode is 0, and the user means
/// nothing.
struct Owner {
    unsigned state = 0;
    uid_t user = 0;
    unsigned long inode = 0;
};

std::size_t put_address(__be32 (&to)[4], const boost::asio::ip::address& address) {
    if (address.is_v4()) {
        const auto bytes = address.to_v4().to_bytes();
        std::memcpy(to, bytes.data(), bytes.size());
        return bytes.size();
    }
    const auto bytes = address.to_v6().to_bytes();
    std::memcpy(to, bytes.data(), bytes.size());
    return bytes.size();
}

/// `remote` with port 0: the socket that listens. Nothing if the kernel does not answer or has no
/// such socket.
std::optional<Owner> ask_kernel(const tcp::endpoint& local, const tcp::endpoint& remote) {
    struct {
        nlmsghdr head;
        inet_diag_req_v2 request;
    } question{};
    question.head.nlmsg_len = sizeof question;
    question.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    question.head.nlmsg_flags = NLM_F_REQUEST;
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

    const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0) {
        return std::nullopt;
    }
    sockaddr_nl kernel{};
    kernel.nl_family = AF_NETLINK;
    std::optional<Owner> owner;
    alignas(nlmsghdr) std::array<char, 1024> answer{};
    // The kernel has answered when the request returns.
    const bool is_sent = ::sendto(fd, &question, sizeof question, 0,
                                  reinterpret_cast<sockaddr*>(&kernel), sizeof kernel) > 0;
    const ssize_t bytes = is_sent ? ::recv(fd, answer.data(), answer.size(), MSG_DONTWAIT) : -1;
    ::close(fd);
    nlmsghdr head{};
    inet_diag_msg message{};
    if (bytes < static_cast<ssize_t>(NLMSG_HDRLEN + sizeof message)) {
        return std::nullopt;
    }
    std::memcpy(&head, answer.data(), sizeof head);
    std::memcpy(&message, answer.data() + NLMSG_HDRLEN, sizeof message);
    // Without the connection the kernel may answer with the socket that listens there.
    if (head.nlmsg_type == SOCK_DIAG_BY_FAMILY && ntohs(message.id.idiag_dport) == remote.port()) {
        owner = Owner{message.idiag_state, message.idiag_uid, message.idiag_inode};
    }
    return owner;
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

/// The same from /proc/net/tcp or tcp6. Costs as much as there are sockets.
std::optional<Owner> look_up(const char* table, const std::string& local,
                             const std::string& remote) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
        std::istringstream fields(line);
        std::string number;
        std::string own;
        std::string other;
        std::string state;
        std::string skipped;
        Owner owner;
        fields >> number >> own >> other >> state >> skipped >> skipped >> skipped >> owner.user >>
            skipped >> owner.inode;
        if (!fields || own != local || other != remote) {
            continue;
        }
        owner.state = static_cast<unsigned>(std::strtoul(state.c_str(), nullptr, 16));
        return owner;
    }
    return std::nullopt;
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

std::optional<Owner> owner_in_tables(const tcp::endpoint& local, const tcp::endpoint& remote) {
    if (local.address().is_v4()) {
        if (const auto owner = look_up("/proc/net/tcp", in_table(local), in_table(remote))) {
            return owner;
        }
    }
    return look_up("/proc/net/tcp6", in_table(mapped(local)), in_table(mapped(remote)));
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

std::optional<uid_t> user_of_peer(const tcp::endpoint& ours, const tcp::endpoint& theirs) {
    const tcp::endpoint local = plain(theirs);
    const tcp::endpoint remote = plain(ours);
    std::optional<Owner> owner = ask_kernel(local, remote);
    if (!owner) {
        owner = owner_in_tables(local, remote);
    }
    if (!owner || owner->inode == 0 || !is_connected(owner->state)) {
        return std::nullopt;
    }
    return owner->user;
}

std::optional<uid_t> user_who_listens(const tcp::endpoint& where) {
    const tcp::endpoint local = plain(where);
    std::optional<Owner> owner = ask_kernel(local, any_of(local));
    if (!owner) {
        for (const tcp::endpoint& place :
             {local, tcp::endpoint(any_of(local).address(), local.port()),
              tcp::endpoint(tcp::v6(), local.port())}) {
            if (owner = owner_in_tables(place, any_of(place)); owner) {
                break;
            }
        }
    }
    if (!owner || owner->inode == 0 || owner->state != kListens) {
        return std::nullopt;
    }
    return owner->user;
}

bool is_trusted(uid_t user) noexcept {
    return user == ::geteuid() || user == 0;
}

std::optional<std::string> object_to_stranger(const tcp::endpoint& ours,
                                              const tcp::endpoint& theirs) {
    if (!is_within_this_host(ours, theirs)) {
        return "it is not on this host";
    }
    const std::optional<uid_t> user = user_of_peer(ours, theirs);
    if (!user) {
        return "no process of this host holds its other end";
    }
    if (!is_trusted(*user)) {
        return "it belongs to " + user_text(*user);
    }
    return std::nullopt;
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
