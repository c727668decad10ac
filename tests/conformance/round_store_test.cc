// SPDX-License-Identifier: Apache-2.0
//
// The store of a round as the agents of its nodes serve it, in each mode.
#include "agent/store/round_store.h"

#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "tests/conformance/store_relay_support.h"
#include "tests/support/matchers.h"

namespace regroup::agent {
namespace {

using boost::asio::ip::tcp;
using rendezvous::Assignment;
using rendezvous::Endpoint;
using rendezvous::RoundId;
using store::kPatience;
using store::LoopThread;
using store::StoreClient;

constexpr uid_t kOtherUser = 54321;

/// The agent of one node.
class Node {
   public:
    explicit Node(StoreMode mode, std::uint16_t fixed_port = 0) {
        loop_.on_loop([&] {
            store_ = std::make_unique<RoundStore>(loop_.io(), RoundStoreOptions{mode, fixed_port},
                                                  loop_.collector());
        });
    }
    ~Node() {
        loop_.on_loop([&] { store_.reset(); });
    }
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    std::uint16_t offer() {
        return loop_.on_loop([&] {
            const auto port = store_->offer();
            EXPECT_TRUE(port) << port.error().detail;
            return *port;
        });
    }
    void begin(const Assignment& assignment) {
        loop_.on_loop([&] { store_->begin(assignment); });
    }
    [[nodiscard]] std::optional<Endpoint> relay() {
        return loop_.on_loop([&] { return store_->relay(); });
    }
    /// Passes a connection on as the daemon does.
    void adopt_from(tcp::acceptor& acceptor) {
        loop_.on_loop([&] {
            tcp::socket socket = acceptor.accept();
            store_->adopt(std::move(socket), "");
        });
    }
    [[nodiscard]] boost::asio::io_context& io() { return loop_.io(); }
    [[nodiscard]] std::vector<std::string> said() { return loop_.sentences(); }

   private:
    LoopThread loop_;
    std::unique_ptr<RoundStore> store_;
};

Assignment assignment(std::uint16_t port, std::uint32_t group_rank = 0, std::uint64_t round = 3) {
    Assignment result;
    result.round = RoundId{round};
    result.group_rank = group_rank;
    result.group_world_size = 2;
    result.master_addr = "127.0.0.1";
    result.master_port = port;
    result.store_key = store::test_key().hex();
    return result;
}

bool can_use(const std::string& host, std::uint16_t port) {
    StoreClient client;
    return client.connect(host, port, std::chrono::milliseconds(300)) &&
           client.add("number", 1, kPatience);
}

/// A process of another user greets as a store client, and asks for a number. Returns how many
/// bytes it gets.
int bytes_for_other_user(std::uint16_t port) {
    const pid_t child = ::fork();
    if (child == 0) {
        if (::setuid(kOtherUser) != 0) {
            ::_exit(99);
        }
        boost::asio::io_context io;
        tcp::socket socket(io);
        boost::system::error_code error;
        socket.connect({boost::asio::ip::address_v4::loopback(), port}, error);
        std::string request;
        store::encode({store::Opcode::validate, {}, store::kMagic}, request);
        store::encode({store::Opcode::num_keys, {}, 0}, request);
        boost::asio::write(socket, boost::asio::buffer(request), error);
        char reply[8];
        ::_exit(static_cast<int>(boost::asio::read(socket, boost::asio::buffer(reply), error)));
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

TEST(RoundStore, LocalStoreServesThisUserOnAllAddressesOfTheHost) {
    Node node(StoreMode::local);
    const std::uint16_t port = node.offer();
    node.begin(assignment(port));
    EXPECT_TRUE(can_use("127.0.0.1", port));
    EXPECT_TRUE(can_use("127.0.0.2", port));
    EXPECT_EQ(node.relay(), std::nullopt);
    EXPECT_THAT(node.said(), IsEmpty());
}

TEST(RoundStore, LocalStoreIsServedAgainAtANewPort) {
    Node node(StoreMode::local);
    const std::uint16_t first = node.offer();
    node.begin(assignment(first));
    EXPECT_TRUE(can_use("127.0.0.1", first));
    const std::uint16_t second = node.offer();
    node.begin(assignment(second, 0, 4));
    EXPECT_NE(first, second);
    EXPECT_TRUE(can_use("127.0.0.1", second));
    EXPECT_FALSE(can_use("127.0.0.1", first));
}

TEST(RoundStore, OfferStaysUntilItIsUsed) {
    Node node(StoreMode::local);
    const std::uint16_t port = node.offer();
    node.begin(assignment(1, 1));
    EXPECT_EQ(node.offer(), port);
}

TEST(RoundStore, ClientOfAnotherUserIsRefusedExceptInDirectMode) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "only root can become another user";
    }
    for (const StoreMode mode : {StoreMode::local, StoreMode::relay, StoreMode::direct}) {
        SCOPED_TRACE(static_cast<int>(mode));
        Node node(mode);
        const std::uint16_t port = node.offer();
        node.begin(assignment(port));
        const std::uint16_t own = node.relay() ? node.relay()->port : port;
        EXPECT_TRUE(can_use("127.0.0.1", own));
        EXPECT_EQ(bytes_for_other_user(own), mode == StoreMode::direct ? 8 : 0);
        if (mode != StoreMode::direct) {
            EXPECT_THAT(node.said(), Contains(HasSubstr("it belongs to user 54321")));
        }
    }
}

TEST(RoundStore, RelayOfAnotherNodeRefusesAnotherUser) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "only root can become another user";
    }
    Node master(StoreMode::relay);
    const std::uint16_t port = master.offer();
    master.begin(assignment(port));
    Node other(StoreMode::relay);
    other.offer();
    other.begin(assignment(port, 1));
    EXPECT_EQ(bytes_for_other_user(other.relay()->port), 0);
    EXPECT_THAT(other.said(), Contains(HasSubstr("it belongs to user 54321")));
}

TEST(RoundStore, RelayedStoreIsReachedThroughTheOwnAgentOnly) {
    Node master(StoreMode::relay);
    Node other(StoreMode::relay);
    const std::uint16_t port = master.offer();
    other.offer();
    master.begin(assignment(port));
    other.begin(assignment(port, 1));
    StoreClient here;
    StoreClient there;
    ASSERT_TRUE(here.connect("127.0.0.1", master.relay()->port, kPatience));
    ASSERT_TRUE(there.connect("127.0.0.1", other.relay()->port, kPatience));
    ASSERT_TRUE(here.set("key", "value", kPatience));
    EXPECT_EQ(*there.get("key", kPatience), "value");
    EXPECT_FALSE(can_use("127.0.0.1", port));
    EXPECT_EQ(master.relay()->host, "127.0.0.1");
    EXPECT_EQ(other.relay()->host, "127.0.0.1");
}

TEST(RoundStore, EachRoundHasAStoreOfItsOwn) {
    Node master(StoreMode::relay);
    Node other(StoreMode::relay);
    for (std::uint64_t round = 1; round <= 3; ++round) {
        const std::uint16_t port = master.offer();
        other.offer();
        other.begin(assignment(port, 1, round));
        StoreClient there;
        auto connected = std::async(std::launch::async, [&] {
            return there.connect("127.0.0.1", other.relay()->port, kPatience);
        });
        master.begin(assignment(port, 0, round));
        ASSERT_TRUE(connected.get());
        EXPECT_EQ(*there.add("number", 1, kPatience), 1);
    }
}

TEST(RoundStore, NodesMayChangeTheirParts) {
    Node first(StoreMode::relay);
    Node second(StoreMode::relay);
    const std::uint16_t port = first.offer();
    const std::uint16_t other_port = second.offer();
    first.begin(assignment(port, 0, 1));
    second.begin(assignment(port, 1, 1));
    EXPECT_TRUE(can_use("127.0.0.1", second.relay()->port));
    first.offer();
    EXPECT_EQ(second.offer(), other_port);
    first.begin(assignment(other_port, 1, 2));
    second.begin(assignment(other_port, 0, 2));
    EXPECT_TRUE(can_use("127.0.0.1", first.relay()->port));
    EXPECT_TRUE(can_use("127.0.0.1", second.relay()->port));
}

TEST(RoundStore, MasterWithoutAKeyIsTold) {
    Node node(StoreMode::relay);
    Assignment keyless = assignment(node.offer());
    keyless.store_key.clear();
    node.begin(keyless);
    EXPECT_THAT(node.said(), Contains(HasSubstr("gave no key")));
    EXPECT_FALSE(can_use("127.0.0.1", node.relay()->port));
}

TEST(RoundStore, FixedPortServesWhatTheDaemonPassesOnExceptInRelayMode) {
    for (const StoreMode mode : {StoreMode::local, StoreMode::relay, StoreMode::direct}) {
        SCOPED_TRACE(static_cast<int>(mode));
        Node node(mode, 4711);
        const std::uint16_t port = node.offer();
        EXPECT_EQ(port == 4711, mode != StoreMode::relay);
        node.begin(assignment(port));
        auto daemon = store::listen(node.io());
        const std::uint16_t daemon_port = daemon.local_endpoint().port();
        auto used = std::async(std::launch::async, [&] {
            StoreClient client;
            return client.connect("127.0.0.1", daemon_port, std::chrono::milliseconds(300)) &&
                   client.add("number", 1, kPatience);
        });
        node.adopt_from(daemon);
        EXPECT_EQ(used.get(), mode != StoreMode::relay);
    }
}

TEST(RoundStore, StrangersCauseFewSentences) {
    Node node(StoreMode::relay);
    const std::uint16_t port = node.offer();
    node.begin(assignment(port));
    for (int i = 0; i < 30; ++i) {
        store::RawSocket stranger(port);
        stranger.send("GET / HTTP/1.1\r\n\r\n");
        EXPECT_TRUE(stranger.is_closed());
    }
    EXPECT_EQ(node.said().size(), 10U);
    EXPECT_THAT(node.said().back(), HasSubstr("further ones"));
}

}  // namespace
}  // namespace regroup::agent
