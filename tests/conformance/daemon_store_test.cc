// SPDX-License-Identifier: Apache-2.0
//
// The store on the daemon's port, as launchers of PyTorch use it, without a launcher.
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <gmock/gmock.h>

#include "daemon_harness.h"
#include "rendezvous/net/listen.h"
#include "rendezvous/security/stream.h"
#include "rendezvous/security/tls.h"
#include "rendezvous/store/store_wire.h"
#include "rendezvous/store_server/store_server.h"
#include "tests/support/program.h"

namespace regroup::rendezvous {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;
using store::Dialect;
using store::Opcode;
using store::Request;

/// A client of a store, in the daemon's thread.
class StorePeer {
   public:
    StorePeer(Loop& loop, std::uint16_t port, const char* address = "127.0.0.1")
        : loop_(loop), fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(port);
        ::inet_pton(AF_INET, address, &to.sin_addr);
        EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    }
    ~StorePeer() { hang_up(); }
    StorePeer(const StorePeer&) = delete;
    StorePeer& operator=(const StorePeer&) = delete;

    void hang_up() {
        if (fd_ >= 0) {
            ::close(std::exchange(fd_, -1));
        }
    }
    void send(std::string_view bytes) {
        EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
    }
    void send(const std::vector<Request>& requests, Dialect dialect = Dialect::current) {
        std::string bytes;
        if (!greeted_ && dialect == Dialect::current) {
            store::encode({Opcode::validate, {}, store::kMagic}, bytes);
            greeted_ = true;
        }
        for (const Request& request : requests) {
            store::encode(request, bytes, dialect);
        }
        send(bytes);
    }
    /// As many bytes as asked for; fewer when the connection ends or nothing comes for 20 s.
    std::string receive(std::size_t count) {
        std::string bytes;
        loop_.until([&] { return bytes.size() >= count || !receive_some(bytes, count); });
        return bytes;
    }
    std::string receive_text() {
        const std::string length = receive(8);
        return length.size() == 8
                   ? receive(static_cast<std::size_t>(store::read_i64(length.data())))
                   : "the connection has ended";
    }
    /// As TCPStore clients do it: waits, then asks.
    std::string get(const std::string& key) {
        send({{Opcode::wait, {key}}});
        EXPECT_EQ(receive(1), std::string(1, store::kStopWaiting)) << key;
        send({{Opcode::get, {key}}});
        return receive_text();
    }
    bool has(const std::string& key) {
        send({{Opcode::check, {key}}});
        return receive(1) == std::string(1, store::kReady);
    }
    bool is_closed_by_peer(Duration limit = std::chrono::seconds(20)) {
        std::string bytes;
        return loop_.until([&] { return !receive_some(bytes, 1 << 20); }, limit);
    }

   private:
    bool receive_some(std::string& bytes, std::size_t count) {  // False at the end of the stream.
        char part[4096];
        const ssize_t got =
            ::recv(fd_, part, std::min(sizeof part, count - bytes.size()), MSG_DONTWAIT);
        if (got > 0) {
            bytes.append(part, static_cast<std::size_t>(got));
        }
        return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
    }

    Loop& loop_;
    int fd_;
    bool greeted_ = false;
};

class DaemonStore : public ::testing::Test {
   protected:
    explicit DaemonStore(const DaemonLimits& limits = {})
        : host(loop, limits, 0, [](DaemonSetup& setup) { setup.serves_torchrun = true; }) {}

    /// A launcher of job `id`, known as such to the daemon.
    std::unique_ptr<StorePeer> launcher(const std::string& id, const char* address = "127.0.0.1") {
        auto peer = std::make_unique<StorePeer>(loop, host.port(), address);
        peer->send({{Opcode::compare_set, {"/torch.rendezvous." + id, "", "state"}}});
        EXPECT_EQ(peer->receive_text(), "state");
        return peer;
    }
    static std::string key(const std::string& id, int round, const std::string& name) {
        return "/torch.rendezvous." + id + "." + std::to_string(round) + "/" + name;
    }
    static void publish(StorePeer& peer, const std::string& id, int round, std::uint16_t port) {
        peer.send({{Opcode::set, {key(id, round, "MASTER_ADDR"), "node0.cluster"}},
                   {Opcode::set, {key(id, round, "MASTER_PORT"), std::to_string(port)}}});
    }

    /// A store as the first launcher of a job serves it.
    class LaunchersOwnStore {
       public:
        explicit LaunchersOwnStore(Loop& loop) : server_(loop.io()) {
            auto acceptor = net::listen_on(loop.io(), "127.0.0.1", 0);
            EXPECT_TRUE(acceptor);
            port = acceptor->local_endpoint().port();
            server_.serve(*std::move(acceptor));
        }
        std::uint16_t port = 0;

       private:
        store::StoreServer server_;
    };

    Loop loop;
    DaemonHost host;
};

TEST_F(DaemonStore, ClientsOfEveryDialectMeetOnTheDaemonsPort) {
    Peer agent(loop, host.port());
    agent.say(join_of("job", "a", 1));
    EXPECT_TRUE(agent.expect<Assign>());
    StorePeer current(loop, host.port());
    current.send({{Opcode::set, {"/k", "v"}}});
    StorePeer old(loop, host.port());
    old.send({{Opcode::wait, {"/k"}}, {Opcode::get, {"/k"}}}, Dialect::v1_13);
    EXPECT_EQ(old.receive(1), std::string(1, store::kStopWaiting));
    EXPECT_EQ(old.receive_text(), "v");
    agent.say(testing::running(RoundId{1}));
    EXPECT_TRUE(agent.expect<Alive>());
}

// The first request of an older client, in pieces of any size.
TEST_F(DaemonStore, OlderClientIsRecognizedByAnyFirstRequest) {
    for (const Request& request : std::vector<Request>{
             {Opcode::set, {"/k", "v"}},
             {Opcode::set, {"/" + std::string(255, 'k'), "v"}},
             {Opcode::set, {"/" + std::string(0xcd, 'k'), "v"}},
             {Opcode::set, {"/" + std::string(8191, 'k'), ""}},
             {Opcode::add, {"init/"}, 1},
             {Opcode::num_keys, {}},
             {Opcode::watch_key, {"/k"}},
         }) {
        StorePeer peer(loop, host.port());
        std::string bytes;
        store::encode(request, bytes, Dialect::v1_13);
        store::encode({Opcode::compare_set, {"/end", "", "is seen"}}, bytes, Dialect::v1_13);
        for (const char byte : bytes.substr(0, 20)) {
            peer.send(std::string_view(&byte, 1));
            loop.run_for(milliseconds(1));
        }
        peer.send(bytes.substr(std::min<std::size_t>(20, bytes.size())));
        StorePeer other(loop, host.port());
        EXPECT_EQ(other.get("/end"), "is seen");
        other.send({{Opcode::delete_key, {"/end"}}});
        EXPECT_EQ(other.receive(8).size(), 8U);
    }
    EXPECT_FALSE(host.has_logged("disconnected"));
    EXPECT_FALSE(host.has_logged("refused"));
}

TEST(DaemonStoreHandler, ConnectionWithTheStoreProtocolGoesToItsHandler) {
    Loop loop;
    DaemonHost host(loop);
    std::vector<std::string> handed;
    host.daemon().set_store_handler(
        [&](boost::asio::ip::tcp::socket socket, std::string first_bytes) {
            EXPECT_TRUE(socket.is_open());
            EXPECT_EQ(socket.available(), 0U);
            handed.push_back(std::move(first_bytes));
        });
    const std::string validate("\x00\xCE\xF7\x85\x3C", 5);
    Peer at_once(loop, host.port());
    at_once.send(validate);
    ASSERT_TRUE(loop.until([&] { return handed.size() == 1; }));
    EXPECT_EQ(handed[0], validate);
    // The handler dropped the socket, and no session is left behind.
    EXPECT_TRUE(at_once.is_closed_by_peer());

    Peer in_pieces(loop, host.port());
    in_pieces.send(validate.substr(0, 1));
    loop.run_for(milliseconds(20));
    EXPECT_EQ(handed.size(), 1U);
    in_pieces.send(validate.substr(1, 1));
    ASSERT_TRUE(loop.until([&] { return handed.size() == 2; }));
    EXPECT_EQ(handed[1], validate.substr(0, 2));
    EXPECT_TRUE(loop.until([&] { return host.daemon().sessions_count() == 0; }));
}

TEST(DaemonWithoutTorchrun, StoreClientIsRefusedAtOnceAndTheLogNamesTheFlag) {
    Loop loop;
    DaemonHost host(loop);
    for (const Dialect dialect : {Dialect::current, Dialect::v1_13}) {
        StorePeer client(loop, host.port());
        client.send({{Opcode::set, {"/key", "value"}}, {Opcode::get, {"/key"}}}, dialect);
        EXPECT_TRUE(client.is_closed_by_peer(milliseconds(5000)));
    }
    EXPECT_TRUE(host.has_logged("--serve-torchrun"));
    EXPECT_EQ(host.daemon().sessions_count(), 0U);
    // PyTorch 1.13 opens a second connection that says nothing; it waits for nobody here.
    DaemonLimits hasty;
    hasty.hello_limit = milliseconds(300);
    DaemonHost other(loop, hasty);
    StorePeer first(loop, other.port());
    first.send({{Opcode::num_keys, {}}}, Dialect::v1_13);
    EXPECT_TRUE(first.is_closed_by_peer());
    StorePeer second(loop, other.port());
    EXPECT_TRUE(second.is_closed_by_peer());
}

TEST(DaemonWithoutTorchrun, LogOfRefusedStoreClientsIsBounded) {
    Loop loop;
    DaemonHost host(loop);
    for (int i = 0; i < 100; ++i) {
        StorePeer client(loop, host.port());
        client.send({{Opcode::num_keys, {}}});
        ASSERT_TRUE(client.is_closed_by_peer());
    }
    EXPECT_LT(host.count_logged("--serve-torchrun"), 100U);
}

/// True if a process of another user gets no answer from the store on `port`. Requires root.
bool other_user_is_refused(Loop& loop, std::uint16_t port) {
    constexpr uid_t kOtherUser = 65534;
    const pid_t child = ::fork();
    if (child == 0) {
        if (::setuid(kOtherUser) != 0) {
            ::_exit(2);
        }
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(port);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
        std::string request;
        store::encode({Opcode::validate, {}, store::kMagic}, request);
        store::encode({Opcode::num_keys, {}}, request);
        const bool sent = ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 &&
                          ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) > 0;
        char answer = 0;
        ::_exit(!sent ? 2 : ::recv(fd, &answer, 1, 0) > 0 ? 1 : 0);
    }
    int status = -1;
    EXPECT_TRUE(loop.until([&] { return ::waitpid(child, &status, WNOHANG) == child; }));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 2) << status;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(DaemonStore, AnotherUserOfThisHostIsRefused) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "only root can become another user";
    }
    EXPECT_TRUE(other_user_is_refused(loop, host.port()));
    EXPECT_TRUE(host.has_logged("it belongs to user "));
    EXPECT_TRUE(host.has_logged("--insecure"));
    // The store of the workers, which has a port of its own.
    LaunchersOwnStore own(loop);
    auto first = launcher("job");
    publish(*first, "job", 0, own.port);
    const std::string port = first->get(key("job", 0, "MASTER_PORT"));
    EXPECT_NE(port, std::to_string(own.port));
    EXPECT_TRUE(other_user_is_refused(loop, static_cast<std::uint16_t>(std::stoul(port))));

    DaemonHost trusting(loop, {}, 0, [](DaemonSetup& setup) {
        setup.credentials.insecure = true;
        setup.serves_torchrun = true;
    });
    EXPECT_FALSE(other_user_is_refused(loop, trusting.port()));
}

class DaemonStoreInHaste : public DaemonStore {
   protected:
    DaemonStoreInHaste() : DaemonStore(limits()) {}

    static DaemonLimits limits() {
        DaemonLimits result;
        result.hello_limit = milliseconds(300);
        return result;
    }
};

TEST_F(DaemonStoreInHaste, SilentSecondConnectionOfAnOlderClientIsKept) {
    StorePeer silent(loop, host.port());
    EXPECT_TRUE(silent.is_closed_by_peer()) << "nobody knows what it wants";
    StorePeer first(loop, host.port());
    first.send({{Opcode::num_keys, {}}}, Dialect::v1_13);
    EXPECT_EQ(first.receive(8).size(), 8U);
    StorePeer second(loop, host.port());
    EXPECT_FALSE(second.is_closed_by_peer(milliseconds(2500)));
    EXPECT_EQ(host.daemon().sessions_count(), 0U);
    second.send({{Opcode::watch_key, {"/k"}}}, Dialect::v1_13);
    EXPECT_EQ(second.receive(1), std::string(1, store::kKeyWatched));
}

/// Shakes hands, and says nothing more. Returns when the connection has ended.
asio::awaitable<void> be_silent(security::Stream& stream, security::Ssl ssl, bool& ended) {
    EXPECT_TRUE(co_await stream.shake_hands(std::move(ssl)));
    std::array<char, 16> buffer{};
    EXPECT_TRUE(std::get<0>(co_await stream.read_some(asio::buffer(buffer))));
    ended = true;
}

TEST_F(DaemonStoreInHaste, SilentConnectionByTlsIsNotHandedToTheStore) {
    security::Credentials credentials;
    credentials.token = security::Token::generate();
    DaemonHost secured(loop, limits(), 0, [&](DaemonSetup& setup) {
        setup.credentials = credentials;
        setup.serves_torchrun = true;
    });
    StorePeer older(loop, secured.port());
    older.send({{Opcode::num_keys, {}}}, Dialect::v1_13);
    EXPECT_EQ(older.receive(8).size(), 8U);

    const security::Scope observer{security::Role::observer, ""};
    credentials.token = credentials.token->limited_to(observer);
    const auto tls = security::Tls::client(credentials, observer);
    asio::ip::tcp::socket socket(loop.io());
    socket.connect({asio::ip::make_address("127.0.0.1"), secured.port()});
    security::Stream stream(std::move(socket));
    bool ended = false;
    asio::co_spawn(loop.io(), be_silent(stream, tls->connection(), ended), asio::detached);
    EXPECT_TRUE(loop.until([&] { return ended; }));
}

// ---- Launchers.

TEST_F(DaemonStore, WorkersThatServeTheirOwnStoreAreNotServedHere) {
    const auto first = launcher("job");
    const std::uint16_t port = testing::unused_port();
    publish(*first, "job", 0, port);
    EXPECT_EQ(first->get(key("job", 0, "MASTER_ADDR")), "node0.cluster");
    EXPECT_EQ(first->get(key("job", 0, "MASTER_PORT")), std::to_string(port));
    publish(*first, "job", 1, 4242);
    EXPECT_EQ(first->get(key("job", 1, "MASTER_PORT")), "4242");
    EXPECT_FALSE(first->has(key("job", 2, "MASTER_PORT")));
}

TEST_F(DaemonStore, InvalidAddressIsStoredLikeAnyKey) {
    const auto first = launcher("job");
    first->send({{Opcode::set, {key("job", 0, "MASTER_PORT"), "ninety"}},
                 {Opcode::set, {key("job", 0, "MASTER_ADDR"), "node0"}}});
    EXPECT_EQ(first->get(key("job", 0, "MASTER_PORT")), "ninety");
}

TEST_F(DaemonStore, DaemonServesTheWorkersStoreOfALauncherInEveryRound) {
    LaunchersOwnStore own(loop);
    const auto early = launcher("job");
    const auto first = launcher("job");
    // Requested in a round that its publisher never names.
    early->send({{Opcode::wait, {key("job", 1, "MASTER_PORT")}}});
    publish(*first, "job", 0, own.port);
    EXPECT_EQ(first->get(key("job", 0, "MASTER_ADDR")), "127.0.0.1");
    const std::string port = first->get(key("job", 0, "MASTER_PORT"));
    EXPECT_NE(port, std::to_string(own.port));
    EXPECT_EQ(early->receive(1), std::string(1, store::kStopWaiting));
    EXPECT_EQ(early->get(key("job", 1, "MASTER_PORT")), port);
    EXPECT_EQ(early->get(key("job", 7, "MASTER_ADDR")), "127.0.0.1");
    // A later first node publishes another address; the address that clients know stays valid.
    publish(*early, "job", 8, own.port);
    EXPECT_EQ(early->get(key("job", 8, "MASTER_PORT")), port);
    // Two jobs do not share it.
    const auto other = launcher("job2");
    publish(*other, "job2", 0, own.port);
    EXPECT_NE(other->get(key("job2", 0, "MASTER_PORT")), port);
}

TEST_F(DaemonStore, NewRoundEmptiesTheWorkersStore) {
    LaunchersOwnStore own(loop);
    const auto first = launcher("job");
    publish(*first, "job", 0, own.port);
    const auto port =
        static_cast<std::uint16_t>(std::stoi(first->get(key("job", 0, "MASTER_PORT"))));
    StorePeer worker(loop, port);
    worker.send({{Opcode::set, {"/address", "of rank 0"}}});
    EXPECT_EQ(worker.get("/address"), "of rank 0");
    first->send({{Opcode::set, {key("job", 0, "torchelastic/role_info/0"), "{}"}}});
    EXPECT_TRUE(worker.has("/address")) << "it is still the same round";

    first->send({{Opcode::set, {key("job", 1, "torchelastic/role_info/0"), "{}"}}});
    EXPECT_TRUE(worker.is_closed_by_peer());
    StorePeer next(loop, port);
    EXPECT_FALSE(next.has("/address"));
    next.send({{Opcode::set, {"/address", "of the new rank 0"}}});
    first->send({{Opcode::set, {key("job", 0, "torchelastic/late"), "{}"}}});
    EXPECT_TRUE(first->has(key("job", 0, "torchelastic/late")));
    EXPECT_EQ(next.get("/address"), "of the new rank 0") << "a word of an older round is none";
}

TEST_F(DaemonStore, JobIsForgottenSoonAfterItsLastLauncher) {
    LaunchersOwnStore own(loop);
    auto first = launcher("job");
    auto second = launcher("job.1");  // Its keys look like those of a round of the other one.
    publish(*first, "job", 0, own.port);
    EXPECT_FALSE(first->get(key("job", 0, "MASTER_PORT")).empty());
    StorePeer plain(loop, host.port());
    plain.send({{Opcode::set, {"/mine", "stays"}}});
    first->hang_up();
    ASSERT_TRUE(loop.until([&] { return host.has_logged("job job: its last torchrun is gone"); }));
    EXPECT_FALSE(plain.has("/torch.rendezvous.job"));
    EXPECT_FALSE(plain.has(key("job", 0, "MASTER_PORT")));
    EXPECT_TRUE(plain.has("/torch.rendezvous.job.1"));
    EXPECT_TRUE(plain.has("/mine"));
    EXPECT_FALSE(host.has_logged("job job.1: its last"));

    // The id is free: the next launcher finds no state and no address.
    first = launcher("job");
    EXPECT_FALSE(first->has(key("job", 0, "MASTER_PORT")));
}

}  // namespace
}  // namespace regroup::rendezvous
