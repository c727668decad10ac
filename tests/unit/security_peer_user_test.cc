// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <gtest/gtest.h>

#include "rendezvous/base/result.h"
#include "rendezvous/security/peer_user.h"

namespace regroup::security {
namespace {

using boost::asio::ip::tcp;

constexpr uid_t kOtherUser = 54321;

/// A listener on `address`, and a connection to it.
struct Connected {
    explicit Connected(const std::string& listen_on, const std::string& connect_to)
        : acceptor(io, tcp::endpoint(boost::asio::ip::make_address(listen_on), 0)), client(io) {
        client.connect(
            {boost::asio::ip::make_address(connect_to), acceptor.local_endpoint().port()});
        server = acceptor.accept();
    }
    [[nodiscard]] std::optional<uid_t> user() const {
        return *PeerUsers().user_of_peer(server.local_endpoint(), server.remote_endpoint());
    }

    boost::asio::io_context io;
    tcp::acceptor acceptor;
    tcp::socket client;
    tcp::socket server{io};
};

TEST(SecurityPeerUser, OwnSocketsBelongToThisUser) {
    for (const auto& [listen, connect] : {std::pair("127.0.0.1", "127.0.0.1"),
                                          {"::1", "::1"},
                                          {"0.0.0.0", "127.0.0.1"},
                                          {"::", "127.0.0.1"},
                                          {"::", "::1"}}) {
        const Connected connected(listen, connect);
        EXPECT_TRUE(is_within_this_host(connected.server.local_endpoint(),
                                        connected.server.remote_endpoint()));
        EXPECT_EQ(connected.user(), ::geteuid()) << listen << " " << connect;
        EXPECT_EQ(*PeerUsers().user_who_listens(connected.client.remote_endpoint()), ::geteuid())
            << listen << " " << connect;
    }
}

TEST(SecurityPeerUser, ClosedSocketBelongsToNobody) {
    Connected connected("127.0.0.1", "127.0.0.1");
    const tcp::endpoint ours = connected.server.local_endpoint();
    const tcp::endpoint theirs = connected.server.remote_endpoint();
    connected.client.close();
    EXPECT_EQ(*PeerUsers().user_of_peer(ours, theirs), std::nullopt);
    connected.acceptor.close();
    EXPECT_EQ(*PeerUsers().user_who_listens(ours), std::nullopt);
}

/// Uses up all descriptors of this process.
class NoDescriptors {
   public:
    NoDescriptors() {
        // The sanitizer needs descriptors to look at an object for the first time.
        static_cast<void>(system_failure("nothing", EMFILE));
        ::getrlimit(RLIMIT_NOFILE, &before_);
        const rlimit few{128, before_.rlim_max};
        EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
        for (int fd = 0; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) {
            taken_.push_back(fd);
        }
        EXPECT_EQ(errno, EMFILE);
    }
    ~NoDescriptors() {
        for (const int fd : taken_) {
            ::close(fd);
        }
        ::setrlimit(RLIMIT_NOFILE, &before_);
    }
    NoDescriptors(const NoDescriptors&) = delete;
    NoDescriptors& operator=(const NoDescriptors&) = delete;

   private:
    rlimit before_{};
    std::vector<int> taken_;
};

TEST(SecurityPeerUser, OwnProcessIsKnownWithoutAFreeDescriptor) {
    PeerUsers users;
    Connected connected("127.0.0.1", "127.0.0.1");
    const tcp::endpoint ours = connected.server.local_endpoint();
    const tcp::endpoint theirs = connected.server.remote_endpoint();
    const NoDescriptors none;
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(users.object_to_stranger(ours, theirs), std::nullopt);
        EXPECT_EQ(*users.user_who_listens(ours), ::geteuid());
    }
    connected.client.close();
    const auto gone = users.user_of_peer(ours, theirs);
    ASSERT_TRUE(gone);
    EXPECT_EQ(*gone, std::nullopt);
}

TEST(SecurityPeerUser, KernelThatCannotBeAskedIsNotTakenForAnAnswer) {
    const Connected connected("127.0.0.1", "127.0.0.1");
    const tcp::endpoint ours = connected.server.local_endpoint();
    const tcp::endpoint theirs = connected.server.remote_endpoint();
    const NoDescriptors none;
    PeerUsers users;
    EXPECT_FALSE(users.user_of_peer(ours, theirs));
    EXPECT_FALSE(users.user_who_listens(ours));
    const auto why = users.object_to_stranger(ours, theirs);
    ASSERT_TRUE(why.has_value());
    EXPECT_NE(why->find(std::strerror(EMFILE)), std::string::npos) << *why;
}

// The kernel answers with a listener when there is no connection.
TEST(SecurityPeerUser, ListenerOnThePeersPortIsNotThePeer) {
    Connected connected("127.0.0.1", "127.0.0.1");
    const tcp::endpoint nowhere(boost::asio::ip::make_address("127.0.0.1"), 1);
    EXPECT_EQ(*PeerUsers().user_of_peer(nowhere, connected.acceptor.local_endpoint()),
              std::nullopt);
}

TEST(SecurityPeerUser, SocketOfAnotherUserIsSeenAsHis) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "only root can become another user";
    }
    boost::asio::io_context io;
    tcp::acceptor acceptor(io, tcp::endpoint(boost::asio::ip::make_address("127.0.0.1"), 0));
    const pid_t child = ::fork();
    if (child == 0) {
        if (::setuid(kOtherUser) != 0) {
            ::_exit(1);
        }
        boost::asio::io_context own;
        tcp::socket socket(own);
        boost::system::error_code error;
        socket.connect(acceptor.local_endpoint(), error);
        char byte = 0;
        socket.read_some(boost::asio::buffer(&byte, 1), error);
        ::_exit(0);
    }
    tcp::socket server = acceptor.accept();
    const auto user = *PeerUsers().user_of_peer(server.local_endpoint(), server.remote_endpoint());
    server.close();
    ::waitpid(child, nullptr, 0);
    EXPECT_EQ(user, kOtherUser);
    EXPECT_FALSE(is_trusted(kOtherUser));
    EXPECT_EQ(user_text(kOtherUser), "user 54321");
}

}  // namespace
}  // namespace regroup::security
