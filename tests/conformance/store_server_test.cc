// SPDX-License-Identifier: Apache-2.0
// The store's server against clients of every kind: many, slow, silent, confused and hostile.
#include <algorithm>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "rendezvous/base/random.h"
#include "rendezvous/store/store_wire.h"
#include "tests/conformance/store_support.h"
#include "tests/support/matchers.h"

namespace regroup::store {
namespace {

using boost::asio::ip::tcp;

std::string bytes_of(const std::vector<Request>& requests, Dialect dialect = Dialect::current) {
    std::string bytes;
    for (const Request& request : requests) {
        encode(request, bytes, dialect);
    }
    return bytes;
}

const Request kValidate{Opcode::validate, {}, kMagic};

/// A client that sends bytes of the test. Its reads fail instead of blocking without limit.
class RawClient {
   public:
    explicit RawClient(std::uint16_t port, bool greets = true) {
        socket_.connect({boost::asio::ip::address_v4::loopback(), port});
        socket_.set_option(tcp::no_delay(true));
        if (greets) {
            send(bytes_of({kValidate}));
        }
    }

    /// False when the server has closed the connection.
    bool send(std::string_view bytes) {
        boost::system::error_code error;
        boost::asio::write(socket_, boost::asio::buffer(bytes), error);
        return !error;
    }
    void send_bytewise(std::string_view bytes) {
        for (const char& byte : bytes) {
            send(std::string_view(&byte, 1));
        }
    }
    bool send(const std::vector<Request>& requests) { return send(bytes_of(requests)); }

    /// As many bytes as asked for, or fewer when the server closes the connection before.
    std::string receive(std::size_t count) {
        std::string bytes;
        while (bytes.size() < count && readable()) {
            char part[65536];
            const ssize_t got = ::recv(socket_.native_handle(), part,
                                       std::min(sizeof part, count - bytes.size()), 0);
            if (got <= 0) {
                break;
            }
            bytes.append(part, static_cast<std::size_t>(got));
        }
        return bytes;
    }

    /// True when the server closes the connection before it sends another byte.
    bool is_closed_by_server() {
        char byte = 0;
        return readable() && ::recv(socket_.native_handle(), &byte, 1, 0) <= 0;
    }

    void reset_connection() {
        socket_.set_option(boost::asio::socket_base::linger(true, 0));
        socket_.close();
    }
    void close() { socket_.close(); }

   private:
    bool readable() {
        pollfd entry{socket_.native_handle(), POLLIN, 0};
        const bool ready = ::poll(&entry, 1, 60'000) == 1;
        EXPECT_TRUE(ready) << "nothing came from the server";
        return ready;
    }

    boost::asio::io_context io_;
    tcp::socket socket_{io_};
};

std::string count(std::int64_t number) {
    std::string bytes;
    append_i64(bytes, number);
    return bytes;
}

std::string pong(std::uint32_t nonce) {
    std::string bytes;
    append_u32(bytes, nonce);
    return bytes;
}

/// The server has handled all that `client` sent before.
void expect_alive(RawClient& client) {
    ASSERT_TRUE(client.send({{Opcode::ping, {}, 77}}));
    EXPECT_EQ(client.receive(4), pong(77));
}

/// A client that waits for keys, as the server knows.
struct WaitingClient : RawClient {
    WaitingClient(ServerThread& server, const std::vector<std::string>& keys)
        : RawClient(server.port()) {
        send({{Opcode::wait, keys}});
        expect_alive(*this);
    }
    void expect_release() { EXPECT_EQ(receive(1), std::string(1, kStopWaiting)); }
};

void expect_alive(StoreClient& client) {
    EXPECT_TRUE(client.add("alive", 1, kPatience));
}

TEST(StoreServer, GreetingIsAnsweredInOneSegmentOrByteByByte) {
    ServerThread server;
    RawClient whole(server.port(), false);
    const std::string greeting = bytes_of({kValidate, {Opcode::ping, {}, 4711}});
    whole.send(greeting);
    EXPECT_EQ(whole.receive(4), pong(4711));
    RawClient bytewise(server.port(), false);
    bytewise.send_bytewise(greeting);
    EXPECT_EQ(bytewise.receive(4), pong(4711));
}

TEST(StoreServer, RequestsWithoutReplyArePipelined) {
    ServerThread server;
    RawClient client(server.port());
    std::vector<Request> requests;
    for (int i = 0; i < 10'000; ++i) {
        requests.push_back({Opcode::append, {"/k", "0123456789"}});
    }
    requests.push_back({Opcode::get, {"/k"}});
    std::thread sending([&] { client.send(requests); });
    const std::string reply = client.receive(8 + 100'000);
    sending.join();
    ASSERT_EQ(reply.size(), 8U + 100'000U);
    EXPECT_EQ(read_i64(reply.data()), 100'000);
}

TEST(StoreServer, KeyOfOneClientReleasesAnother) {
    ServerThread server;
    WaitingClient waiting(server, {"/a", "/b"});
    const auto setting = server.connect();
    ASSERT_TRUE(setting->set("a", "", kPatience));
    expect_alive(*setting);
    expect_alive(waiting);  // A release would have sent its byte before this answer.
    ASSERT_TRUE(setting->set("b", "", kPatience));
    waiting.expect_release();
    expect_alive(waiting);
}

TEST(StoreServer, CancelledWaitIsAnsweredOnceAndNeverReleased) {
    ServerThread server;
    RawClient client(server.port());
    client.send({{Opcode::wait, {"/a"}}, {Opcode::cancel_wait, {}}, {Opcode::set, {"/a", ""}}});
    EXPECT_EQ(client.receive(1), std::string(1, kWaitCancelled));
    expect_alive(client);
}

TEST(StoreServer, TwoHundredClientsPassABarrierTogether) {
    constexpr int kWorld = 200;
    ServerThread server;
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < kWorld; ++i) {
        clients.push_back(std::make_unique<RawClient>(server.port()));
        expect_alive(*clients.back());
    }
    for (const auto& client : clients) {
        client->send({{Opcode::barrier, {"/b"}, kWorld}});
        if (client != clients.back()) {
            expect_alive(*client);
        }
    }
    for (const auto& client : clients) {
        EXPECT_EQ(client->receive(1), std::string(1, kStopWaiting));
    }
}

TEST(StoreServer, TwoHundredClientsRendezvousByAddAndWait) {
    constexpr int kWorld = 200;
    ServerThread server;
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < kWorld; ++i) {
        clients.push_back(std::make_unique<RawClient>(server.port()));
        clients.back()->send({{Opcode::add, {"/count"}, 1}, {Opcode::wait, {"/go"}}});
    }
    const auto leader = server.connect();
    while (*leader->add("count", 0, kPatience) < kWorld) {
    }
    ASSERT_TRUE(leader->set("go", "", kPatience));
    for (const auto& client : clients) {
        EXPECT_EQ(client->receive(9).size(), 9U);
    }
}

// ---- Clients that misbehave.

TEST(StoreServer, HalfSentRequestDelaysNoOtherClient) {
    ServerThread server;
    const std::string whole = bytes_of({{Opcode::multi_set, {"/a", "1", "/b", "2"}}});
    std::vector<std::unique_ptr<RawClient>> halves;
    for (std::size_t cut = 1; cut < whole.size(); ++cut) {
        halves.push_back(std::make_unique<RawClient>(server.port()));
        halves.back()->send(std::string_view(whole).substr(0, cut));
    }
    const auto client = server.connect();
    expect_alive(*client);
    EXPECT_FALSE(*client->check({"a"}, kPatience));
    // And each is served once the rest comes.
    halves.front()->send(std::string_view(whole).substr(1));
    expect_alive(*halves.front());
    EXPECT_TRUE(*client->check({"a", "b"}, kPatience));
    EXPECT_TRUE(server.refusals().empty());
}

TEST(StoreServer, OnlyTheClientThatBreaksTheProtocolIsDisconnected) {
    ServerThread server;
    const auto bystander = server.connect();
    struct Case {
        const char* sentence;
        std::string bytes;
        bool greets;
    };
    for (const Case& c : {
             Case{"unknown request, opcode 71", "GET / HTTP/1.1\r\n\r\n", false},
             Case{"wrong magic", std::string("\0\xCE\xF7\x85=", 5), false},
             Case{"unknown request", "\x13", true},
             Case{"key length of 8193", "\x03" + count(8193), true},
             Case{"no 64-bit number",
                  bytes_of({{Opcode::set, {"/text", "apples"}}, {Opcode::add, {"/text"}, 1}}),
                  true},
         }) {
        RawClient client(server.port(), c.greets);
        client.send(c.bytes);
        EXPECT_TRUE(client.is_closed_by_server()) << c.sentence;
        expect_alive(*bystander);
        EXPECT_THAT(
            server.refusals(),
            Contains(AllOf(HasSubstr("the store disconnected 127.0.0.1:"), HasSubstr(c.sentence))));
    }
    EXPECT_EQ(server.refusals().size(), 5U);
    EXPECT_EQ(*bystander->get("text", kPatience), "apples");
}

TEST(StoreServer, ClientsOfEveryDialectShareTheirKeys) {
    ServerThread server;
    RawClient old(server.port(), false);
    RawClient watching(server.port(), false);  // 1.13 has a second connection.
    old.send(bytes_of({{Opcode::set, {"/k", "v"}}}, Dialect::v1_13));
    watching.send(bytes_of({{Opcode::watch_key, {"/k"}}}, Dialect::v1_13));
    EXPECT_EQ(watching.receive(1), std::string(1, kKeyWatched));
    const auto current = server.connect();
    EXPECT_EQ(*current->get("k", kPatience), "v");
    EXPECT_TRUE(current->set("l", "w", kPatience));
    old.send(bytes_of({{Opcode::wait, {"/l"}}, {Opcode::get, {"/l"}}}, Dialect::v1_13));
    std::string expected(1, kStopWaiting);
    append_text(expected, "w");
    EXPECT_EQ(old.receive(expected.size()), expected);
    // As a network may deliver it.
    RawClient bytewise(server.port(), false);
    bytewise.send_bytewise(bytes_of({{Opcode::set, {"/m", "x"}}}, Dialect::v1_13));
    EXPECT_EQ(*current->get("m", kPatience), "x");
}

// Such a client cannot cancel; it would mistake a late release for the answer to its next request.
TEST(StoreServer, NextRequestOfAnOlderClientCancelsItsWait) {
    ServerThread server;
    RawClient old(server.port(), false);
    const auto current = server.connect();
    old.send(bytes_of({{Opcode::wait, {"/late"}}, {Opcode::num_keys, {}}}, Dialect::v1_13));
    ASSERT_EQ(old.receive(8), count(0));
    EXPECT_TRUE(current->set("late", "v", kPatience));
    EXPECT_TRUE(current->check({"late"}, kPatience));
    old.send(bytes_of({{Opcode::num_keys, {}}}, Dialect::v1_13));
    EXPECT_EQ(old.receive(8), count(1));
}

TEST(StoreServer, WaitOfADisconnectedClientIsDropped) {
    ServerThread server;
    const auto setting = server.connect();
    for (const bool resets : {false, true}) {
        WaitingClient gone(server, {"/a", "/b"});
        WaitingClient stays(server, {"/a"});
        resets ? gone.reset_connection() : gone.close();
        ASSERT_TRUE(setting->set("a", "", kPatience));
        stays.expect_release();
        ASSERT_TRUE(*setting->delete_key("a", kPatience));
    }
}

TEST(StoreServer, QueuedItemIsNotGivenToADisconnectedClient) {
    ServerThread server;
    WaitingClient gone(server, {"/q"});
    WaitingClient stays(server, {"/q"});
    gone.close();
    const auto pushing = server.connect();  // The server sees the end of `gone` before this.
    ASSERT_TRUE(pushing->queue_push("q", "item", kPatience));
    stays.expect_release();
}

TEST(StoreServer, ClientThatDoesNotReadIsDisconnectedAndDelaysNoOther) {
    ServerThread server({.reply_bytes_max = 9 << 20});
    const auto bystander = server.connect();
    ASSERT_TRUE(bystander->set("large", std::string(8 << 20, 'v'), kPatience));
    expect_alive(*bystander);
    RawClient deaf(server.port());
    // More than the limit and all socket buffers on the way can take.
    for (int i = 0; i < 40 && server.refusals().empty(); ++i) {
        deaf.send({{Opcode::get, {"/large"}}});
        expect_alive(*bystander);
    }
    while (server.refusals().empty()) {
        expect_alive(*bystander);
    }
    EXPECT_THAT(server.refusals(), Contains(HasSubstr("does not read its replies")));
    expect_alive(*bystander);
}

TEST(StoreServer, ClientThatHoldsMostIsDisconnectedWhenAllHoldTooMuch) {
    ServerThread server({.clients_bytes_max = std::size_t{1} << 20U});
    const auto setting = server.connect();
    WaitingClient honest(server, {"/a"});
    // One holds names, one half of a request, and one many connections with a little each.
    Request names{Opcode::wait, {}};
    for (int i = 0; i < 1000; ++i) {
        names.texts.push_back("/" + std::to_string(i) + std::string(1000, 'n'));
    }
    RawClient waiting(server.port());
    waiting.send({names});
    EXPECT_TRUE(waiting.is_closed_by_server());
    RawClient halting(server.port());
    const std::string request = bytes_of({{Opcode::set, {"/b", std::string(2 << 20, 'v')}}});
    halting.send(std::string_view(request).substr(0, request.size() - 1));
    EXPECT_TRUE(halting.is_closed_by_server());
    std::vector<std::unique_ptr<RawClient>> many;
    for (int i = 0; i < 20; ++i) {
        many.push_back(std::make_unique<RawClient>(server.port()));
        many.back()->send(std::string_view(request).substr(0, 100 << 10));
    }
    while (server.refusals().size() < 4) {
        expect_alive(*setting);
    }
    ASSERT_TRUE(setting->set("a", "", kPatience));
    honest.expect_release();
}

TEST(StoreServer, SlowReaderGetsAllOfALargeReply) {
    ServerThread server;
    const auto bystander = server.connect();
    constexpr std::size_t kBytes = 8 << 20;
    ASSERT_TRUE(bystander->set("large", std::string(kBytes, 'v'), kPatience));
    expect_alive(*bystander);
    RawClient slow(server.port());
    slow.send({{Opcode::multi_get, {"/large", "/large", "/large"}}, {Opcode::ping, {}, 5}});
    std::size_t received = 0;
    while (received < 3 * (8 + kBytes)) {
        const std::size_t part =
            slow.receive(std::min<std::size_t>(1 << 20, 3 * (8 + kBytes) - received)).size();
        ASSERT_GT(part, 0U);
        received += part;
        expect_alive(*bystander);
    }
    EXPECT_EQ(slow.receive(4), pong(5));
}

TEST(StoreServer, ServerSurvivesGarbageAndDisconnects) {
    ServerThread server;
    const auto bystander = server.connect();
    Random random(7);
    for (int i = 0; i < 300; ++i) {
        RawClient client(server.port(), random.chance(0.7));
        std::string bytes;
        for (std::uint64_t n = random.below(200); n > 0; --n) {
            bytes.push_back(static_cast<char>(random.next() >> (56 + random.below(8))));
        }
        client.send(bytes);
        random.chance(0.5) ? client.close() : client.reset_connection();
        if (i % 10 == 0) {
            expect_alive(*bystander);
        }
    }
    expect_alive(*bystander);
}

// ---- Life of the server.

TEST(StoreServer, ResetDisconnectsAllClientsAndForgetsAllKeys) {
    ServerThread server;
    const auto before = server.connect();
    ASSERT_TRUE(before->set("k", "old round", kPatience));
    expect_alive(*before);
    WaitingClient waiting(server, {"/new"});

    server.on_server([](StoreServer& store) { store.reset(); });

    EXPECT_TRUE(waiting.is_closed_by_server());
    EXPECT_EQ(before->num_keys(kPatience).error().code, Errc::disconnected);
    const auto after_reset = server.connect();
    EXPECT_EQ(*after_reset->num_keys(kPatience), 0);
    EXPECT_FALSE(*after_reset->check({"k"}, kPatience));
    ASSERT_TRUE(after_reset->set("new", "", kPatience));
    expect_alive(*after_reset);
}

TEST(StoreServer, CloseDisconnectsAllClientsAndStopsListening) {
    ServerThread server;
    const auto client = server.connect();
    server.on_server([](StoreServer& store) { store.close(); });
    EXPECT_EQ(client->num_keys(kPatience).error().code, Errc::disconnected);
    StoreClient late;
    EXPECT_EQ(late.connect("127.0.0.1", server.port(), std::chrono::milliseconds(1)).error().code,
              Errc::deadline_exceeded);
}

TEST(StoreServer, AdoptedClientIsServedFromItsFirstBytesOnUnlessTheyBreakTheProtocol) {
    ServerThread server;
    auto acceptor = net::listen_on(server.io(), "127.0.0.1", 0);
    ASSERT_TRUE(acceptor);
    const std::string stream =
        bytes_of({kValidate, {Opcode::set, {"/k", "v"}}, {Opcode::get, {"/k"}}});
    for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
        RawClient client(acceptor->local_endpoint().port(), false);
        std::optional<tcp::socket> accepted;
        server.on_server([&](StoreServer& store) {
            accepted.emplace(acceptor->accept());
            store.adopt(*std::move(accepted), stream.substr(0, cut));
        });
        client.send(std::string_view(stream).substr(cut));
        EXPECT_EQ(client.receive(9).size(), 9U) << "cut at " << cut;
    }
    RawClient confused(acceptor->local_endpoint().port(), false);
    server.on_server([&](StoreServer& store) { store.adopt(acceptor->accept(), "nonsense"); });
    EXPECT_TRUE(confused.is_closed_by_server());
    server.on_server([&](StoreServer&) { acceptor->close(); });
}

/// The sockets of this process that a child would have too.
std::vector<int> sockets_for_children() {
    std::vector<int> found;
    for (int fd = 3; fd < 256; ++fd) {
        sockaddr_storage address{};
        socklen_t bytes = sizeof address;
        const bool is_socket =
            ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0;
        if (is_socket && (::fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0) {
            found.push_back(fd);
        }
    }
    return found;
}

TEST(StoreServer, ServerSocketsAreNotInherited) {
    const std::vector<int> of_our_parent = sockets_for_children();
    ServerThread server;
    const auto client = server.connect();
    EXPECT_EQ(sockets_for_children(), of_our_parent);
}

TEST(StoreServer, ServerMayBeDestroyedWhileHandlersAreQueued) {
    boost::asio::io_context io(1);
    auto acceptor = net::listen_on(io, "127.0.0.1", 0);
    ASSERT_TRUE(acceptor);
    const std::uint16_t port = acceptor->local_endpoint().port();
    auto server = std::make_unique<StoreServer>(io);
    server->serve(*std::move(acceptor));
    RawClient client(port);
    client.send({{Opcode::wait, {"/never"}}});
    io.run_one();  // Accepts.
    RawClient pending(port);
    io.poll_one();
    server.reset();
    io.restart();
    io.run();
    EXPECT_TRUE(client.is_closed_by_server());
}

}  // namespace
}  // namespace regroup::store
