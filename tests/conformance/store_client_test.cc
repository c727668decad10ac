// SPDX-License-Identifier: Apache-2.0
// The store's client: how it connects, waits, gives up and is interrupted.
#include "rendezvous/store/store_client.h"

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

#include "rendezvous/store/store_wire.h"
#include "tests/conformance/store_support.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"
#include "tests/support/program.h"

namespace regroup::store {
namespace {

using boost::asio::ip::tcp;
using std::chrono::milliseconds;

/// A server that follows a script instead of the protocol, for one connection after the other.
class ScriptedServer {
   public:
    using Script = std::function<void(tcp::socket&)>;

    explicit ScriptedServer(std::vector<Script> scripts) {
        auto acceptor = net::listen_on(io_, "127.0.0.1", 0);
        EXPECT_TRUE(acceptor);
        port_ = acceptor->local_endpoint().port();
        thread_ =
            std::thread([scripts = std::move(scripts), listening = *std::move(acceptor)]() mutable {
                for (const Script& script : scripts) {
                    tcp::socket socket = listening.accept();
                    script(socket);
                }
            });
    }
    ~ScriptedServer() { thread_.join(); }

    [[nodiscard]] std::uint16_t port() const { return port_; }

   private:
    boost::asio::io_context io_;
    std::uint16_t port_ = 0;
    std::thread thread_;
};

std::string receive(tcp::socket& socket, std::size_t count) {
    std::string bytes(count, '\0');
    boost::system::error_code error;
    bytes.resize(boost::asio::read(socket, boost::asio::buffer(bytes), error));
    return bytes;
}

void send(tcp::socket& socket, std::string_view bytes) {
    boost::system::error_code error;
    boost::asio::write(socket, boost::asio::buffer(bytes), error);
}

/// Answers the greeting as a store does.
void greet(tcp::socket& socket) {
    const std::string greeting = receive(socket, 10);
    EXPECT_EQ(greeting.substr(0, 5), std::string(kFirstBytes.data(), kFirstBytes.size()));
    EXPECT_EQ(greeting[5], static_cast<char>(Opcode::ping));
    send(socket, greeting.substr(6));
}

std::string encoded(const Request& request) {
    std::string bytes;
    encode(request, bytes);
    return bytes;
}

// ---- Connecting.

TEST(StoreClient, ClientRetriesUntilTheServerIsThere) {
    // A port that is free now and taken a little later: let the client find it closed first.
    const std::uint16_t port = testing::unused_port();
    boost::asio::io_context io;
    StoreClient early;
    ASSERT_FALSE(early.connect("127.0.0.1", port, milliseconds(1)));
    std::atomic<bool> connected = false;
    StoreClient client;
    std::thread connecting([&] {
        const auto result = client.connect("127.0.0.1", port, kPatience);
        EXPECT_TRUE(result) << result.error().detail;
        connected = true;
    });
    auto acceptor = net::listen_on(io, "127.0.0.1", port);
    ASSERT_TRUE(acceptor) << acceptor.error().detail;
    tcp::socket socket = acceptor->accept();
    EXPECT_FALSE(connected);
    greet(socket);
    connecting.join();
}

TEST(StoreClient, DroppedGreetingIsRetriedOnANewConnection) {
    ScriptedServer server({
        [](tcp::socket& socket) { socket.close(); },
        [](tcp::socket& socket) { receive(socket, 10); },
        [](tcp::socket& socket) { greet(socket); },
    });
    StoreClient client;
    const auto connected = client.connect("127.0.0.1", server.port(), kPatience);
    EXPECT_TRUE(connected) << connected.error().detail;
}

TEST(StoreClient, ClientGivesUpAtTheDeadlineWithTheReason) {
    const std::uint16_t port = testing::unused_port();
    StoreClient client;
    EXPECT_THAT(client.connect("127.0.0.1", port, std::chrono::seconds(2)),
                fails(Errc::deadline_exceeded, "127.0.0.1:" + std::to_string(port),
                      "gave up after 2.0 s", "refused"));
    EXPECT_EQ(client.set("k", "v", kPatience).error().code, Errc::disconnected);
}

TEST(StoreClient, PeerThatIsNoStoreIsReportedAtOnce) {
    ScriptedServer server({[](tcp::socket& socket) {
        receive(socket, 10);
        send(socket, "HTTP/1.1 400 Bad Request\r\n\r\n");
    }});
    StoreClient client;
    EXPECT_THAT(client.connect("127.0.0.1", server.port(), kPatience),
                fails(Errc::invalid_argument, "is no TCPStore"));
}

TEST(StoreClient, ClientFindsTheServerByName) {
    ServerThread server;
    StoreClient client;
    const auto connected = client.connect("localhost", server.port(), kPatience);
    ASSERT_TRUE(connected) << connected.error().detail;
    EXPECT_EQ(*client.add("n", 1, kPatience), 1);
}

TEST(StoreClient, ClientCanConnectAgainAfterALoss) {
    ServerThread server;
    const auto client = server.connect();
    server.on_server([](StoreServer& store) { store.reset(); });
    EXPECT_EQ(client->add("n", 1, kPatience).error().code, Errc::disconnected);
    ASSERT_TRUE(client->connect("127.0.0.1", server.port(), kPatience));
    EXPECT_EQ(*client->add("n", 1, kPatience), 1);
}

// ---- The bytes.

TEST(StoreClient, ClientAddsAndRemovesTheSlashBeforeEachKey) {
    ServerThread server;
    const auto client = server.connect();
    ASSERT_TRUE(client->set("k", "v", kPatience));
    ASSERT_TRUE(client->multi_set({"a", "/b"}, {"1", "2"}, kPatience));
    EXPECT_EQ(client->get("never", milliseconds(1)).error().detail,
              "wait timeout after 1ms, keys: /never");
    EXPECT_THAT(*client->list_keys(kPatience), ::testing::ElementsAre("/b", "a", "k"));
}

TEST(StoreClient, KeysOfOtherKindsAreCountedAndNotListed) {
    ScriptedServer server({[](tcp::socket& socket) {
        greet(socket);
        receive(socket, 1);
        std::string reply;
        append_i64(reply, 3);
        append_text(reply, "/mine");
        append_text(reply, "init/");
        append_text(reply, "/");
        send(socket, reply);
    }});
    StoreClient client;
    ASSERT_TRUE(client.connect("127.0.0.1", server.port(), kPatience));
    EXPECT_THAT(*client.list_keys(kPatience), ::testing::ElementsAre("", "mine"));
}

// ---- Waiting.

TEST(StoreClient, TimeoutsAreReportedInPyTorchsWords) {
    ServerThread server;
    const auto client = server.connect();
    ASSERT_TRUE(client->set("there", "", kPatience));
    EXPECT_EQ(client->wait({"a", "there", "b"}, milliseconds(20)).error().detail,
              "wait timeout after 20ms, keys: /a, /there, /b");
    EXPECT_EQ(client->barrier("b", 2, milliseconds(3)).error().detail,
              "barrier timeout after 3ms, key: /b");
    const std::vector<std::string> many(100, "k");
    EXPECT_THAT(client->wait(many, milliseconds(1)).error().detail, HasSubstr("and 68 more"));
}

TEST(StoreClient, ReleaseThatCrossesTheCancelCounts) {
    ScriptedServer server({[](tcp::socket& socket) {
        greet(socket);
        const std::string wait = encoded({Opcode::wait, {"/k"}});
        EXPECT_EQ(receive(socket, wait.size()), wait);
        EXPECT_EQ(receive(socket, 1), encoded({Opcode::cancel_wait, {}}));
        send(socket, std::string{kStopWaiting, kWaitCancelled});
        const std::string add = encoded({Opcode::add, {"/n"}, 1});
        EXPECT_EQ(receive(socket, add.size()), add);
        std::string reply;
        append_i64(reply, 1);
        send(socket, reply);
    }});
    StoreClient client;
    ASSERT_TRUE(client.connect("127.0.0.1", server.port(), kPatience));
    EXPECT_TRUE(client.wait({"k"}, milliseconds(1))) << "the key was there after all";
    EXPECT_EQ(*client.add("n", 1, kPatience), 1) << "and nothing is left over";
}

TEST(StoreClient, UnansweredRequestEndsTheConnection) {
    std::promise<void> done;
    ScriptedServer server({[&](tcp::socket& socket) {
        greet(socket);
        done.get_future().wait();
    }});
    StoreClient client;
    ASSERT_TRUE(client.connect("127.0.0.1", server.port(), kPatience));
    EXPECT_THAT(client.add("n", 1, milliseconds(1)), fails(Errc::deadline_exceeded, "127.0.0.1:"));
    // A late answer must not be mistaken for the answer to the next request.
    EXPECT_EQ(client.add("n", 1, kPatience).error().code, Errc::disconnected);
    done.set_value();
}

TEST(StoreClient, ClientDisconnectsFromAServerThatBreaksTheProtocol) {
    struct Case {
        std::string reply;
        std::function<Errc(StoreClient&)> call;
    };
    std::string negative;
    append_i64(negative, -1);
    std::string endless;
    append_i64(endless, std::int64_t{1} << 60);
    std::vector<Case> cases;
    cases.push_back({negative, [](StoreClient& client) {
                         return client.compare_set("k", "", "v", kPatience).error().code;
                     }});
    cases.push_back(
        {endless, [](StoreClient& client) { return client.list_keys(kPatience).error().code; }});
    cases.push_back(
        {"\x07", [](StoreClient& client) { return client.wait({"k"}, kPatience).error().code; }});
    for (const Case& c : cases) {
        ScriptedServer server({[&](tcp::socket& socket) {
            greet(socket);
            receive(socket, 1);
            send(socket, c.reply);
            receive(socket, 1'000'000);  // Until the client leaves.
        }});
        StoreClient client;
        ASSERT_TRUE(client.connect("127.0.0.1", server.port(), kPatience));
        EXPECT_EQ(c.call(client), Errc::disconnected);
        EXPECT_EQ(client.num_keys(kPatience).error().code, Errc::disconnected);
    }
}

TEST(StoreClient, RequestBeyondTheLimitsIsNotSent) {
    ServerThread server;
    const auto client = server.connect();
    EXPECT_EQ(client->set(std::string(8192, 'k'), "", kPatience).error().code,
              Errc::invalid_argument);
    EXPECT_EQ(client->set("k", std::string((8 << 20) + 1, 'v'), kPatience).error().code,
              Errc::invalid_argument);
    EXPECT_EQ(client->check(std::vector<std::string>(131073, "k"), kPatience).error().code,
              Errc::invalid_argument);
    EXPECT_EQ(client->multi_set({"a"}, {}, kPatience).error().code, Errc::invalid_argument);
    EXPECT_EQ(*client->num_keys(kPatience), 0) << "the connection is as good as before";
}

// ---- Interrupting.

TEST(StoreClient, InterruptEndsAWaitAndAllLaterCalls) {
    ServerThread server;
    const auto other = server.connect();
    const auto client = server.connect();
    std::thread waiting(
        [&] { EXPECT_EQ(client->barrier("b", 3, kPatience).error().code, Errc::fenced); });
    // The barrier's counter shows that the client is waiting.
    EXPECT_EQ(*other->get("b", kPatience), "1");
    client->interrupt();
    waiting.join();
    EXPECT_EQ(client->set("k", "v", kPatience).error().code, Errc::fenced);
    EXPECT_EQ(client->connect("127.0.0.1", server.port(), kPatience).error().code, Errc::fenced);
    EXPECT_FALSE(*other->check({"k"}, kPatience));
}

TEST(StoreClient, InterruptBeforeACallEndsTheCallToo) {
    ServerThread server;
    const auto client = server.connect();
    client->interrupt();
    EXPECT_EQ(client->set("k", "v", kPatience).error().code, Errc::fenced);
    EXPECT_EQ(client->get("k", kPatience).error().code, Errc::fenced);
    EXPECT_EQ(client->num_keys(kPatience).error().code, Errc::fenced);
}

TEST(StoreClient, InterruptEndsConnecting) {
    const std::uint16_t port = testing::unused_port();
    StoreClient client;
    std::thread connecting([&] {
        EXPECT_EQ(client.connect("127.0.0.1", port, kPatience).error().code, Errc::fenced);
    });
    client.interrupt();
    connecting.join();
}

}  // namespace
}  // namespace regroup::store
