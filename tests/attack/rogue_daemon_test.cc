// SPDX-License-Identifier: Apache-2.0
//
// Somebody else listens where agents and operators expect their daemon: another user of the host,
// a host without the token, one with a token of another job. Nobody obeys it.
#include <filesystem>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/protocol/codec.h"
#include "tests/attack/attack.h"
#include "tests/support/matchers.h"

namespace regroup::attack {
namespace {

using rendezvous::FromDaemon;
using security::Role;
using security::Token;
using testing::Program;

constexpr const char* kLie = "all is well";

std::string frame(const FromDaemon& message) {
    return protocol::make_frame(protocol::encode(message));
}

/// Orders for an agent, and an answer for an operator: to run in a round, and that the job has
/// succeeded.
std::string orders() {
    rendezvous::Assign assign;
    assign.assignment.round = rendezvous::RoundId{1};
    assign.assignment.master_addr = "127.0.0.1";
    assign.assignment.master_port = 1;
    assign.assignment.store_key = std::string(64, '0');
    rendezvous::Closed closed;
    closed.verdict.outcome = rendezvous::Outcome::succeeded;
    closed.verdict.exit_code = 0;
    return frame(rendezvous::Operated{true, kLie}) + frame(assign) + frame(closed);
}

/// Accepts a connection on `port` of all addresses until the attack ends.
std::string serve_lies(Siege& siege, std::uint16_t port, const std::optional<Token>& token) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener, SOMAXCONN) != 0) {
        return "the rogue daemon cannot listen";
    }
    std::string complaint;
    while (siege.goes_on()) {
        pollfd waiting{listener, POLLIN, 0};
        if (::poll(&waiting, 1, 10) <= 0) {
            continue;
        }
        const int fd = ::accept(listener, nullptr, nullptr);
        if (!token) {
            Siege::send(fd, orders());
            Siege::receive(fd, 1, milliseconds(200));
            ::close(fd);
            continue;
        }
        security::Credentials credentials;
        credentials.token = token;
        Caller caller(siege, fd);
        if (caller.secure(*security::Tls::server(credentials))) {
            complaint = "the handshake with a rogue daemon succeeded";
            caller.send(orders());
            caller.next(milliseconds(200));
        }
    }
    ::close(listener);
    return complaint;
}

class RogueDaemon : public ::testing::Test {
   protected:
    void SetUp() override {
        auto laid = chaos::Network::lay(2);
        if (!laid) {
            GTEST_SKIP() << laid.error().detail;
        }
        network_ = std::make_unique<chaos::Network>(*std::move(laid));
        ASSERT_TRUE(security::write_token(folder_.path() + "/token", token_));
    }

    [[nodiscard]] std::unique_ptr<Program> start(const Words& words, bool has_token) const {
        Words command = Words{testing::regroup_program()} + words;
        if (has_token) {
            command.insert(command.begin() + 2, "--token-file=" + folder_.path() + "/token");
        }
        std::unique_ptr<Program> program;
        network_->within(0, "node-a", [&] {
            program = std::make_unique<Program>(testing::ProgramSpec{command, {}, folder_.path()});
        });
        return program;
    }

    /// On this host, as another user, or on the other host as root.
    void expect_disobedience(bool is_here, const std::optional<Token>& rogue, bool has_token) {
        const std::uint16_t port = testing::unused_port();
        Attacker attacker(network_.get(), is_here ? 0 : 1, is_here ? kOtherUser : 0,
                          [&](Siege& siege) { return serve_lies(siege, port, rogue); });
        ASSERT_TRUE(attacker.is_in_force());
        const std::string endpoint =
            (is_here ? "127.0.0.1:" : chaos::Network::address(1) + ":") + std::to_string(port);
        const std::string ran = folder_.path() + "/ran";
        std::vector<std::unique_ptr<Program>> programs;
        programs.push_back(start({"run", "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint,
                                  "--rdzv-conf=is_host=false", "--rdzv-id=victim", "--nnodes=2",
                                  "--join-timeout=1", "/usr/bin/touch", ran},
                                 has_token));
        for (const Words& words : {Words{"status"}, Words{"stop"}, Words{"drain", "node-a"}}) {
            programs.push_back(start(
                words + Words{"--job=victim", "--timeout=1", "--endpoint=" + endpoint}, has_token));
        }
        for (const auto& program : programs) {
            EXPECT_THAT(program->wait().value_or(0), ::testing::Ne(0)) << program->output();
            EXPECT_THAT(program->output(), Not(HasSubstr(kLie)));
        }
        EXPECT_FALSE(std::filesystem::exists(ran)) << programs[0]->output();
        EXPECT_EQ(attacker.end(), "");
    }

    std::unique_ptr<chaos::Network> network_;
    testing::TemporaryDirectory folder_;
    Token token_ = Token::generate();
};

TEST_F(RogueDaemon, OtherUserOfTheHostIsNotObeyed) {
    expect_disobedience(true, std::nullopt, false);
    expect_disobedience(true, std::nullopt, true);
}

TEST_F(RogueDaemon, OtherHostWithoutTheTokenIsNotObeyed) {
    expect_disobedience(false, std::nullopt, false);
    expect_disobedience(false, std::nullopt, true);
}

TEST_F(RogueDaemon, OtherTokenIsNotObeyed) {
    expect_disobedience(false, Token::generate(), true);
    expect_disobedience(true, Token::generate(), true);
}

TEST_F(RogueDaemon, NarrowerTokenServesNobodyWithTheFullOne) {
    expect_disobedience(false, token_.limited_to({Role::node, "mine"}), true);
    expect_disobedience(false, token_.limited_to({Role::node, ""}), true);
    expect_disobedience(false, token_.limited_to({Role::observer, ""}), true);
}

}  // namespace
}  // namespace regroup::attack
