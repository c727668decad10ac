// SPDX-License-Identifier: Apache-2.0
//
// The relayed store against those who do not belong to the round.
#include <cerrno>
#include <future>
#include <sys/socket.h>
#include <sys/time.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/asio/write.hpp>

#include "rendezvous/security/stream.h"
#include "rendezvous/store/store_wire.h"
#include "rendezvous/store_relay/mux_frame.h"
#include "tests/conformance/store_relay_support.h"
#include "tests/support/matchers.h"
#include "tests/support/program.h"

namespace regroup::store {
namespace {

namespace asio = boost::asio;
using regroup::testing::eventually;

void expect_serves(StoreNode& store) {
    LoopThread loop;
    RelayNode node(loop, store.port());
    const auto client = node.connect();
    const auto sum = client->add("alive", 1, kPatience);
    EXPECT_TRUE(sum) << sum.error().detail;
}

TEST(StoreRelayStrangers, PlainStoreClientIsRefused) {
    StoreNode store;
    store.serve();
    StoreClient client;
    const auto connected =
        client.connect("127.0.0.1", store.port(), std::chrono::milliseconds(500));
    EXPECT_FALSE(connected);
    EXPECT_EQ(store.clients(), 0U);
    EXPECT_THAT(store.sentences(), Contains(HasSubstr("does not speak TLS")));
    expect_serves(store);
}

TEST(StoreRelayStrangers, RelayWithAnotherKeyIsRefused) {
    StoreNode store;
    store.serve();
    LoopThread loop;
    RelayClient::Options options;
    options.patience = std::chrono::milliseconds(300);
    RelayNode node(loop, store.port(), options, kName, security::Key::random());
    RawSocket worker(node.port());
    EXPECT_TRUE(worker.is_closed());
    EXPECT_EQ(store.connections(), 0U);
    EXPECT_THAT(loop.sentences(), Contains(HasSubstr("no connection to the store")));
    expect_serves(store);
}

TEST(StoreRelayStrangers, RelayOfAnotherRoundIsRefused) {
    StoreNode store;
    store.serve();
    LoopThread loop;
    RelayClient::Options options;
    options.patience = std::chrono::milliseconds(300);
    RelayNode node(loop, store.port(), options, "regroup store, round 6");
    RawSocket worker(node.port());
    EXPECT_TRUE(worker.is_closed());
    EXPECT_EQ(store.connections(), 0U);
    EXPECT_EQ(store.clients(), 0U);
}

TEST(StoreRelayStrangers, SilentConnectionIsClosedAfterTheLimit) {
    RelayServer::Options options;
    options.handshake_limit = std::chrono::milliseconds(50);
    StoreNode store({}, options);
    store.serve();
    RawSocket stranger(store.port());
    EXPECT_TRUE(stranger.is_closed());
    // The handshake ends in a later turn of the loop.
    EXPECT_TRUE(eventually([&] { return store.handshakes() == 0; }));
}

TEST(StoreRelayStrangers, ManySilentConnectionsKeepNoNodeOut) {
    RelayServer::Options options;
    options.handshakes_max = 8;
    options.handshake_limit = std::chrono::minutes(10);
    options.handshake_limit_when_full = std::chrono::milliseconds(10);
    StoreNode store({}, options);
    store.serve();
    std::vector<std::unique_ptr<RawSocket>> strangers;
    for (int i = 0; i < 200; ++i) {
        strangers.push_back(std::make_unique<RawSocket>(store.port()));
    }
    EXPECT_LE(store.handshakes(), 8U);
    expect_serves(store);
    EXPECT_LE(store.handshakes(), 8U);
}

asio::awaitable<std::string> send_and_read(asio::ip::tcp::socket socket, std::string bytes,
                                           std::size_t count) {
    security::Stream stream(std::move(socket));
    const security::Tls tls = security::Tls::client(test_key(), kName);
    const Result<void> shaken = co_await stream.shake_hands(tls.connection());
    EXPECT_TRUE(shaken);
    co_await stream.write(asio::buffer(bytes));
    std::string answer;
    char buffer[4096];
    while (answer.size() < count) {
        const auto [error, got] = co_await stream.read_some(asio::buffer(buffer));
        if (error) {
            break;
        }
        answer.append(buffer, got);
    }
    co_return answer;
}

/// A node with the key of the round that sends bytes of the test. Returns what it gets back, to the
/// end of the connection or `count` bytes.
std::string talk(StoreNode& store, const std::string& bytes, std::size_t count) {
    LoopThread loop;
    asio::ip::tcp::socket socket(loop.io());
    socket.connect({asio::ip::address_v4::loopback(), store.port()});
    return asio::co_spawn(loop.io(), send_and_read(std::move(socket), bytes, count),
                          asio::use_future)
        .get();
}

TEST(StoreRelayStrangers, NodeThatBreaksTheFramesIsDisconnected) {
    StoreNode store;
    store.serve();
    EXPECT_EQ(talk(store, "nonsense", 1), "");
    EXPECT_TRUE(eventually([&] { return store.connections() == 0; }));
    EXPECT_THAT(store.sentences(), Contains(HasSubstr("frame of the unknown kind")));
    expect_serves(store);
}

TEST(StoreRelayStrangers, NodeThatOpensAChannelTwiceIsDisconnected) {
    StoreNode store;
    store.serve();
    std::string bytes;
    append_mux(bytes, 5, MuxKind::open);
    append_mux(bytes, 5, MuxKind::close);
    append_mux(bytes, 5, MuxKind::open);
    EXPECT_EQ(talk(store, bytes, 1), "");
    EXPECT_TRUE(eventually([&] { return store.connections() == 0; }));
    EXPECT_THAT(store.sentences(), Contains(HasSubstr("opened a channel twice")));
    EXPECT_EQ(store.clients(), 0U);
}

TEST(StoreRelayStrangers, FramesOfUnknownChannelsAreIgnored) {
    StoreNode store;
    store.serve();
    std::string bytes;
    append_mux_data(bytes, 9, "nonsense");
    append_mux(bytes, 9, MuxKind::close);
    append_mux(bytes, 10, MuxKind::open);
    std::string request;
    encode({Opcode::validate, {}, kMagic}, request);
    encode({Opcode::ping, {}, 77}, request);
    append_mux_data(bytes, 10, request);
    std::string expected;
    std::string pong;
    append_u32(pong, 77);
    append_mux_data(expected, 10, pong);
    EXPECT_EQ(talk(store, bytes, expected.size()), expected);
}

TEST(StoreRelayStrangers, ChannelsBeyondTheLimitAreClosedAtOnce) {
    RelayServer::Options options;
    options.channels_max = 2;
    StoreNode store({}, options);
    store.serve();
    std::string bytes;
    for (Channel channel = 1; channel <= 3; ++channel) {
        append_mux(bytes, channel, MuxKind::open);
    }
    std::string expected;
    append_mux(expected, 3, MuxKind::close);
    EXPECT_EQ(talk(store, bytes, expected.size()), expected);
    EXPECT_THAT(store.sentences(), IsEmpty());
}

}  // namespace
}  // namespace regroup::store
