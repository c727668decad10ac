// SPDX-License-Identifier: Apache-2.0
//
// A host that reaches the daemon and its job's nodes, and has no token, another token, or one that
// allows less than it tries.
#include "tests/attack/strangers.h"

#include <thread>

#include "tests/support/matchers.h"

namespace regroup::attack {
namespace {

using rendezvous::FromAgent;
using rendezvous::Operated;
using rendezvous::Refused;
using security::Role;
using security::Token;

constexpr std::size_t kStrangersConnections = 3000;
/// With 2,048 connections that have said nothing, each in the middle of a TLS handshake.
constexpr std::size_t kStrangersMemoryMax = std::size_t{256} << 20U;

/// The first bytes of a TLS client.
std::string client_hello() {
    Siege siege;
    testing::Listener listener;
    Caller caller(siege, {"127.0.0.1", static_cast<std::uint16_t>(std::stoi(listener.port()))});
    std::string hello;
    std::jthread reader([&] {
        const int fd = ::accept(listener.fd(), nullptr, nullptr);
        hello.resize(65536);
        hello.resize(static_cast<std::size_t>(::recv(fd, hello.data(), hello.size(), 0)));
        ::close(fd);
    });
    caller.secure(Token::generate());
    reader.join();
    return hello;
}

class Strangers : public StrangersTest<kStrangersConnections, kStrangersMemoryMax> {
   protected:
    /// A daemon that refuses must not do what `message` asks for.
    static std::string try_in_vain(Caller& caller, const FromAgent& message) {
        caller.say(message);
        const auto answer = caller.next();
        return !answer || std::holds_alternative<Refused>(*answer) ? "" : "it was not refused";
    }
};

TEST_F(Strangers, SilentConnectionsDisplaceOnlyEachOther) {
    endure_connections_with("");
    EXPECT_THAT(victim_->daemon_log(), HasSubstr("said nothing yet"));
}

TEST_F(Strangers, HalfTlsHandshakesAreBounded) {
    const std::string hello = client_hello();
    ASSERT_GT(hello.size(), 100U);
    endure_connections_with(hello.substr(0, 6));
    endure_connections_with(hello.substr(0, hello.size() - 1));
    endure_connections_with(hello);
}

TEST_F(Strangers, GreetingsOfStoreClientsAreBounded) {
    endure_connections_with(std::string("\x00\xCE\xF7\x85\x3C", 5));
    endure_connections_with(std::string("\x00\xCE", 2));
}

TEST_F(Strangers, GarbageIsRefused) {
    std::string garbage;
    for (std::size_t i = 0; i < 4096; ++i) {
        garbage += static_cast<char>(i * 7919 >> 3U);
    }
    endure_connections_with(garbage);
    endure_connections_with("GET / HTTP/1.1\r\nHost: node-a\r\n\r\n");
    endure_connections_with("\x16\x03\x01" + garbage);
}

TEST_F(Strangers, SlowBytesHoldNothingUp) {
    const std::string hello = client_hello();
    endure([&](Siege& siege) {
        std::vector<int> slow;
        for (std::size_t i = 0; i < 500; ++i) {
            slow.push_back(siege.dial(victim_->daemon()));
        }
        for (std::size_t at = 0; siege.goes_on() && at < hello.size(); ++at) {
            for (const int fd : slow) {
                Siege::send(fd, std::string_view(hello).substr(at, 1));
            }
        }
        return "";
    });
}

TEST_F(Strangers, PlainMessagesAreRefused) {
    endure([](Siege& siege) -> std::string {
        std::vector<FromAgent> messages{join_of("victim", "node-c", 2, 2),
                                        join_of("mine", "node-c", 1, 1), stop_of("victim"),
                                        drain_of("victim", "node-a"), logs_of("")};
        while (siege.goes_on()) {
            for (const FromAgent& message : messages) {
                Caller caller(siege, victim_->daemon());
                caller.say(message);
                const auto answer = caller.next();
                if (!answer || !std::holds_alternative<Refused>(*answer)) {
                    return "no refusal";
                }
                if (!caller.is_closed_by_peer()) {
                    return "the daemon keeps the connection of a refused stranger";
                }
            }
        }
        return "";
    });
    EXPECT_EQ(victim_->status()["jobs"].size(), 1U);
}

TEST_F(Strangers, AnotherTokenOpensNothing) {
    endure([](Siege& siege) -> std::string {
        const Token other = Token::generate();
        // With the names of tokens that the daemon knows, and other keys.
        const std::string victims = victim_->token().identity();
        const std::string nodes = victim_->token().limited_to({Role::node, "victim"}).identity();
        std::vector<security::Tls> impostors;
        for (const std::string& name : {victims, nodes, other.identity(), std::string("regroup1"),
                                        victims + ".victim", std::string(200, 'x')}) {
            impostors.push_back(security::Tls::client(other.key(), name));
        }
        while (siege.goes_on()) {
            for (const security::Tls& tls : impostors) {
                Caller caller(siege, victim_->daemon());
                if (!caller.is_connected()) {
                    return "no connection";
                }
                // The client hears of the refusal when it has finished its part of the handshake.
                if (caller.secure(tls) && caller.say(logs_of("victim")) && caller.next()) {
                    return "the daemon answers";
                }
            }
        }
        return "";
    });
}

TEST_F(Strangers, TokenOfAnotherJobReachesThatJobOnly) {
    const Token token = victim_->token().limited_to({Role::node, "mine"});
    endure([&](Siege& siege) -> std::string {
        const auto join = call(siege, victim_->daemon(), token);
        if (!join->is_connected()) {
            return "the token is not accepted at all";
        }
        std::string failed = try_in_vain(*join, join_of("victim", "node-c", 2, 2));
        const auto stop = call(siege, victim_->daemon(), token);
        failed += try_in_vain(*stop, stop_of("victim"));
        const auto logs = call(siege, victim_->daemon(), token);
        failed += try_in_vain(*logs, logs_of("victim"));
        // Without a name: not the status of all jobs.
        const std::string shown = call(siege, victim_->daemon(), token)->get("/api/v1/jobs");
        if (shown.find("\"jobs\"") == std::string::npos ||
            shown.find("victim") != std::string::npos) {
            failed += "it shows the job of others";
        }
        return failed;
    });
}

TEST_F(Strangers, ObserversTokenOnlyLooks) {
    const Token token = victim_->token().limited_to({Role::observer, ""});
    endure([&](Siege& siege) -> std::string {
        std::string failed;
        for (const FromAgent& message :
             {FromAgent(join_of("victim", "node-c", 2, 2)), FromAgent(join_of("mine", "c", 1, 1)),
              FromAgent(stop_of("victim")), FromAgent(drain_of("victim", "node-a"))}) {
            failed += try_in_vain(*call(siege, victim_->daemon(), token), message);
        }
        const auto caller = call(siege, victim_->daemon(), token);
        const std::string shown = caller->get("/api/v1/jobs?job=victim");
        return failed + (shown.find("victim") != shown.npos ? "" : "it cannot look");
    });
    EXPECT_EQ(victim_->status()["jobs"].size(), 1U);
}

/// Passes one connection on to the daemon, and keeps what the client sent and what it got.
struct Recording {
    std::string sent;
    std::string answered;
};
Recording record(const Target& daemon, const std::function<void(const Target&)>& use) {
    testing::Listener listener;
    Recording recording;
    std::jthread proxy([&] {
        Siege siege;
        const int client = ::accept(listener.fd(), nullptr, nullptr);
        const int server = siege.dial(daemon);
        const auto pass = [](int from, int to, std::string& kept) {
            for (std::string some; !(some = Siege::receive(from, 1, seconds(20))).empty();) {
                some.resize(65536);
                const ssize_t more = ::recv(from, some.data() + 1, some.size() - 1, MSG_DONTWAIT);
                some.resize(1 + static_cast<std::size_t>(std::max(ssize_t{0}, more)));
                Siege::send(to, some);
                kept += some;
            }
            ::shutdown(to, SHUT_WR);
        };
        std::jthread back([&] { pass(server, client, recording.answered); });
        pass(client, server, recording.sent);
        back.join();
        ::close(client);
    });
    use({"127.0.0.1", static_cast<std::uint16_t>(std::stoi(listener.port()))});
    proxy.join();
    return recording;
}

TEST_F(Strangers, ReplayedBytesDoNothing) {
    const std::string drained = "drain of node-z asked for by";
    const auto count_drains = [&] {
        std::size_t count = 0;
        for (const std::string& line : testing::lines_of(victim_->daemon_log())) {
            count += line.find(drained) != std::string::npos ? 1 : 0;
        }
        return count;
    };
    endure([](Siege& siege) -> std::string {
        const Recording recording = record(victim_->daemon(), [&](const Target& proxy) {
            const auto caller = call(siege, proxy, victim_->token());
            caller->say(drain_of("victim", "node-z"));
            caller->await<Operated>();
        });
        if (recording.sent.empty() || recording.answered.empty()) {
            return "nothing was recorded";
        }
        while (siege.goes_on()) {
            const int fd = siege.dial(victim_->daemon(), recording.sent);
            const std::string answer = Siege::receive(fd, recording.answered.size(), seconds(15));
            if (answer.size() >= recording.answered.size()) {
                return "the daemon answers a replay";
            }
        }
        return "";
    });
    EXPECT_EQ(count_drains(), 1U);
}

TEST_F(Strangers, NodeThatComesBackGetsThroughSilentConnections) {
    // The connections of both nodes break with the daemon.
    const Victim::State before = victim_->state();
    Attacker attacker(network_.get(), kStrangersHost, 0, [](Siege& siege) {
        const std::string hello = client_hello();
        while (siege.goes_on()) {
            siege.dial(victim_->daemon(), hello);
            siege.dial(victim_->daemon());
        }
        return std::string();
    });
    ASSERT_TRUE(attacker.is_in_force());
    victim_->restart_daemon();
    EXPECT_TRUE(victim_->trains_in_round(before.round));
    EXPECT_EQ(attacker.end(), "");
    EXPECT_EQ(victim_->state().round, before.round);
}

}  // namespace
}  // namespace regroup::attack
