// SPDX-License-Identifier: Apache-2.0
// Addresses, and the peers that an acceptor accepts.
#include <regroup/context.h>
#include <regroup/error.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "rendezvous/security/key.h"
#include "tests/conformance/process_group_ranks.h"
#include "tests/support/matchers.h"
#include "tests/support/program.h"
#include "worker_sdk/src/net/acceptor.h"
#include "worker_sdk/src/net/outbound.h"
#include "worker_sdk/src/store/member_store.h"

namespace regroup {
namespace {

TEST(SocketAddress, AddressIsReadAsWritten) {
    for (const std::string text :
         {"127.0.0.1:80", "10.1.2.3:65535", "[::1]:4711", "[fe80::1%2]:1"}) {
        EXPECT_EQ(net::SocketAddress::parse(text).text(), text);
    }
}

TEST(SocketAddress, InvalidAddressIsRefused) {
    for (const std::string text : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:8x",
                                   "host:80", "[::1]", "::1:80", "[::1:80"}) {
        EXPECT_THROW((void)net::SocketAddress::parse(text), Error) << text;
    }
}

TEST(LocalAddress, AddressIsTheOneOfTheRouteToTheHost) {
    EXPECT_EQ(net::local_address_towards("127.0.0.1", 80).text(), "127.0.0.1:0");
    EXPECT_EQ(net::local_address_towards("", 0).text(), "127.0.0.1:0");
    EXPECT_THROW((void)net::local_address_towards("no such host", 80), Error);
}

TEST(OwnAddress, RouteToTheMastersNodeDecides) {
    Context context;
    context.master_addr = "127.0.0.1";
    context.master_port = 80;
    EXPECT_EQ(net::own_address(context).text(), "127.0.0.1:0");
    context.master_node_addr = "::1";
    EXPECT_EQ(net::own_address(context).text(), "[::1]:0");
}

using net::Acceptor;
using net::HandshakeAnswer;
using net::Introduction;
using net::Outbound;
using net::Partial;
using net::Proof;
using net::Protection;
using net::Welcome;

constexpr std::uint32_t kMessages = 2;

Protection secret(const std::string& text) {
    return {.key = security::Key::from_hex(std::string(64, '0'))->derive(text)};
}

/// An acceptor of rank 1 in a world of 3, and its callers.
class Door : public ::testing::Test {
   protected:
    explicit Door(const Protection& protection = {})
        : Door(protection, net::listen_on(net::SocketAddress::parse("127.0.0.1:0"))) {}

    [[nodiscard]] Outbound call(const net::Hello& hello, const Protection& protection) const {
        return {address, hello, protection};
    }
    /// Returns the reason why the caller with this Hello is refused; empty if it is accepted.
    std::string refusal_of(const net::Hello& hello, const Protection& protection) {
        Outbound caller = call(hello, protection);
        greet(caller);
        EXPECT_TRUE(caller.ready() || caller.ended());
        return caller.ending();
    }
    bool lets_in(const net::Hello& hello) { return refusal_of(hello, own).empty(); }

    void greet(Outbound& caller) {
        while (!caller.ready() && !caller.ended() && SteadyClock().now() < deadline) {
            turn(&caller);
        }
    }
    /// The acceptor's clock stands still, so that no caller is late.
    void turn(Outbound* caller = nullptr) {
        net::PollSet poll;
        acceptor.watch(poll);
        if (caller != nullptr) {
            caller->watch(poll);
        }
        poll.wait(
            after(SteadyClock().now(), std::chrono::milliseconds(caller != nullptr ? 50 : 1)));
        for (Acceptor::Accepted& accepted : acceptor.progress(start)) {
            accepted.welcome();
            let_in.push_back(std::move(accepted));
        }
        if (caller != nullptr) {
            caller->progress();
        }
    }

    /// A connection that the tests write themselves.
    [[nodiscard]] net::Stream dial() const {
        net::Stream stream(net::begin_connect(address));
        net::PollSet poll;
        stream.writable = false;
        poll.want_write(stream);
        poll.wait(deadline);
        return stream;
    }
    /// The acceptor's next message on it; nothing if it hangs up.
    template <class T>
    std::optional<T> hear(net::Stream& stream) {
        Partial<T> message;
        while (!message.complete() && !stream.ended() && SteadyClock().now() < deadline) {
            turn();
            stream.readable = true;
            message.filled(stream.read_some(message.space()));
        }
        return message.complete() ? std::optional(message.value()) : std::nullopt;
    }

    const net::Hello right = {
        .kind = kMessages, .source = 2, .target = 1, .round = 7, .group = 1234, .token = 5678};
    const Instant start = SteadyClock().now();
    const Instant deadline = after(start, kPatience);
    const Protection own;
    net::SocketAddress address;
    Acceptor acceptor;
    std::vector<Acceptor::Accepted> let_in;

   private:
    Door(const Protection& protection, UniqueFd listener)
        : own(protection),
          address(net::bound_address(listener)),
          acceptor(std::move(listener),
                   {.hello = right, .world_size = 3, .kinds = 3, .protection = protection}) {}
};

TEST_F(Door, RanksOfTheGroupAreAccepted) {
    EXPECT_TRUE(lets_in(right));
    ASSERT_EQ(let_in.size(), 1U);
    EXPECT_EQ(let_in[0].source, 2U);
    EXPECT_EQ(let_in[0].kind, kMessages);
    net::Hello other_kind = right;
    other_kind.kind = 1;
    EXPECT_TRUE(lets_in(other_kind));
    net::Hello other_rank = right;
    other_rank.source = 0;
    EXPECT_TRUE(lets_in(other_rank));
}

TEST_F(Door, StrangersAreRefused) {
    const std::vector<std::function<void(net::Hello&)>> wrong = {
        [](net::Hello& hello) { hello.magic = 0x20544547; },  // "GET "
        [](net::Hello& hello) { hello.kind = 9; },
        [](net::Hello& hello) { hello.source = 1; },  // Ourselves.
        [](net::Hello& hello) { hello.source = 3; },  // Beyond the world.
        [](net::Hello& hello) { hello.target = 0; },
        [](net::Hello& hello) { hello.round = 6; },
        [](net::Hello& hello) { hello.group = 0; },
        [](net::Hello& hello) { hello.token = 0; },
    };
    for (const auto& spoil : wrong) {
        net::Hello hello = right;
        spoil(hello);
        EXPECT_FALSE(lets_in(hello));
    }
    EXPECT_TRUE(let_in.empty());
    EXPECT_TRUE(lets_in(right));
    EXPECT_FALSE(lets_in(right));  // One of each.
}

TEST_F(Door, SilentStrangersAreGoneAtTheirDeadline) {
    std::vector<UniqueFd> strangers;
    for (int i = 0; i < 10; ++i) {
        strangers.push_back(net::begin_connect(address));
    }
    EXPECT_TRUE(lets_in(right));
    EXPECT_LT(acceptor.next_deadline(), Instant::max());
    EXPECT_TRUE(acceptor.progress(acceptor.next_deadline() + kPatience).empty());
    EXPECT_EQ(acceptor.next_deadline(), Instant::max());
}

TEST_F(Door, FloodOfSilentStrangersDoesNotDelayRanks) {
    std::vector<UniqueFd> strangers;
    for (std::size_t i = 0; i < 5 * Acceptor::kVisitorsMax; ++i) {
        strangers.push_back(net::begin_connect(address));
    }
    EXPECT_TRUE(lets_in(right)) << "no stranger has reached its deadline";
}

TEST_F(Door, StrangersThatSayHalfAnIntroductionDoNotDelayRanks) {
    std::vector<net::Stream> strangers;
    for (std::size_t i = 0; i < 2 * Acceptor::kVisitorsMax; ++i) {
        strangers.push_back(dial());
        strangers.back().write_some(net::bytes_of(right));
    }
    EXPECT_TRUE(lets_in(right));
}

TEST_F(Door, CallerThatAFloodHasDisplacedCallsAgain) {
    Outbound caller = call(right, own);
    while (acceptor.next_deadline() == Instant::max()) {
        turn();  // The caller has a place, and has not spoken yet.
    }
    std::vector<net::Stream> strangers;
    for (std::size_t i = 0; i < Acceptor::kVisitorsMax; ++i) {
        strangers.push_back(dial());
    }
    for (int i = 0; i < 10; ++i) {
        turn();  // All of them have a place.
    }
    greet(caller);
    EXPECT_TRUE(caller.ready()) << caller.ending();
}

/// The same, and the group has a key.
class LockedDoor : public Door {
   protected:
    LockedDoor() : Door(secret("of round 7")) {}

    /// The answer to `introduction` on a new connection.
    std::optional<Welcome> answer_to(const Introduction& introduction, net::Stream& stream) {
        stream.write_some(net::bytes_of(introduction));
        return hear<Welcome>(stream);
    }
    std::optional<HandshakeAnswer> verdict_on(const Introduction& introduction) {
        net::Stream stream = dial();
        const auto welcome = answer_to(introduction, stream);
        return welcome ? std::optional(welcome->answer) : std::nullopt;
    }
    /// The message that a rank of the group gets from the caller that was let in last, which sends
    /// `bytes`.
    std::string heard(net::Stream& caller, std::string_view bytes) {
        caller.write_some(std::as_bytes(std::span(bytes)));
        std::array<std::byte, 64> space{};
        net::Stream& stream = let_in.back().stream;
        std::size_t count = 0;
        while (count == 0 && !stream.ended() && SteadyClock().now() < deadline) {
            stream.readable = true;
            count = stream.read_some(space);
        }
        return {reinterpret_cast<const char*>(space.data()), count};
    }
};

TEST_F(LockedDoor, RanksWithTheKeyAreAccepted) {
    EXPECT_EQ(refusal_of(right, own), "");
    EXPECT_EQ(let_in.size(), 1U);
}

TEST_F(LockedDoor, StrangerThatKnowsAllButTheKeyIsRefused) {
    EXPECT_THAT(refusal_of(right, {}), HasSubstr("asks for the group's secret"));
    Introduction said = net::introduce(right, own);
    said.code = {};
    EXPECT_EQ(verdict_on(said), HandshakeAnswer::no_secret);
    EXPECT_TRUE(let_in.empty());
    EXPECT_TRUE(lets_in(right)) << "its place is still free";
}

TEST_F(LockedDoor, KeyOfAnotherRoundIsRefused) {
    EXPECT_THAT(refusal_of(right, secret("of round 6")), HasSubstr("different secrets"));
    EXPECT_TRUE(let_in.empty());
}

TEST_F(LockedDoor, IntroductionForAnotherPlaceIsRefused) {
    Introduction said = net::introduce(right, own);
    said.hello.source = 0;
    EXPECT_EQ(verdict_on(said), HandshakeAnswer::no_secret);
    EXPECT_TRUE(let_in.empty());
}

TEST_F(LockedDoor, IntroductionRecordedInAnotherGroupIsRefused) {
    net::Hello elsewhere = right;
    elsewhere.token = 8765;  // Each listener has its own.
    Introduction recorded = net::introduce(elsewhere, own);
    EXPECT_EQ(verdict_on(recorded), HandshakeAnswer::stranger);
    recorded.hello.token = right.token;
    EXPECT_EQ(verdict_on(recorded), HandshakeAnswer::no_secret);
}

TEST_F(LockedDoor, RecordedConversationIsNotHeard) {
    const Introduction recorded = net::introduce(right, own);
    const Welcome old = net::make_welcome(HandshakeAnswer::welcome, recorded, own);
    const Proof proof = net::result_of(net::End::dialling, recorded, old, own).proof;
    net::Stream replayed = dial();
    ASSERT_TRUE(answer_to(recorded, replayed));
    ASSERT_EQ(let_in.size(), 1U) << "it may come earlier than the rank itself";
    replayed.write_some(net::bytes_of(proof));
    EXPECT_EQ(heard(replayed, "data"), "");
    EXPECT_TRUE(let_in.back().stream.ended());
}

TEST_F(LockedDoor, RankIsHeardAfterItsProof) {
    const Introduction introduction = net::introduce(right, own);
    net::Stream stream = dial();
    const auto welcome = answer_to(introduction, stream);
    ASSERT_TRUE(welcome);
    const Proof proof = net::result_of(net::End::dialling, introduction, *welcome, own).proof;
    stream.write_some(net::bytes_of(proof));
    EXPECT_EQ(heard(stream, "data"), "data");
}

/// A listener that the test answers for itself, in place of rank 1.
class FalseDoor : public ::testing::Test {
   protected:
    /// The caller's objection to this answer; empty if nothing.
    std::string objection(const std::function<Welcome(const Introduction&)>& say) {
        net::Pollable listener{.fd = net::listen_on(net::SocketAddress::parse("127.0.0.1:0"))};
        Outbound caller(net::bound_address(listener.fd), right, own);
        std::optional<net::Stream> stream;
        Partial<Introduction> introduction;
        const Instant deadline = after(SteadyClock().now(), kPatience);
        while (!caller.ended() && !caller.ready() && SteadyClock().now() < deadline) {
            if (!stream) {
                UniqueFd socket(
                    ::accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
                if (socket) {
                    stream.emplace(std::move(socket));
                }
            } else if (!introduction.complete()) {
                stream->readable = true;
                introduction.filled(stream->read_some(introduction.space()));
                if (introduction.complete()) {
                    stream->write_some(net::bytes_of(say(introduction.value())));
                }
            }
            net::PollSet poll;
            caller.watch(poll);
            poll.wait(after(SteadyClock().now(), std::chrono::milliseconds(1)));
            caller.progress();
        }
        return caller.ending();
    }

    const net::Hello right = {.source = 2, .target = 1, .round = 7, .group = 1234, .token = 5678};
    const Protection own = secret("of round 7");
};

TEST_F(FalseDoor, RankWithoutTheKeyIsNotTrusted) {
    EXPECT_THAT(objection([&](const Introduction& introduction) {
                    return net::make_welcome(HandshakeAnswer::welcome, introduction, {});
                }),
                HasSubstr("has no secret of the group"));
    EXPECT_EQ(objection([&](const Introduction& introduction) {
                  Welcome welcome = net::make_welcome(HandshakeAnswer::welcome, introduction, own);
                  welcome.code = {};
                  return welcome;
              }),
              "does not know the group's secret");
}

TEST_F(FalseDoor, OwnCodeIsNoAnswer) {
    EXPECT_EQ(objection([](const Introduction& introduction) {
                  return Welcome{.traits = introduction.traits,
                                 .nonce = introduction.nonce,
                                 .code = introduction.code};
              }),
              "does not know the group's secret");
}

TEST_F(FalseDoor, AnswerToAnEarlierCallIsRefused) {
    Welcome recorded;
    EXPECT_EQ(objection([&](const Introduction& introduction) {
                  return recorded = net::make_welcome(HandshakeAnswer::welcome, introduction, own);
              }),
              "");
    EXPECT_EQ(objection([&](const Introduction&) { return recorded; }),
              "does not know the group's secret");
}

TEST(Outbound, FailedConnectionHasAReason) {
    const std::string closed = "127.0.0.1:" + std::to_string(testing::unused_port());
    Outbound caller(net::SocketAddress::parse(closed), {}, {});
    const Instant deadline = after(SteadyClock().now(), kPatience);
    while (!caller.ended() && SteadyClock().now() < deadline) {
        net::PollSet poll;
        caller.watch(poll);
        poll.wait(deadline);
        caller.progress();
    }
    EXPECT_EQ(caller.ending().find("cannot be reached"), 0U) << caller.ending();
}

TEST(MemberStore, ValuesAreGoodForTheRanksWithTheKeyAlone) {
    const std::shared_ptr<Store> store = make_local_store(kPatience);
    const auto key = secret("of round 7").key;
    MemberStore member("group", store, key);
    member.set("addr/1", "10.0.0.1:4711");
    EXPECT_EQ(member.get("addr/1"), "10.0.0.1:4711");
    EXPECT_EQ(store->get("group/addr/1").find("10.0.0.1"), std::string::npos) << "it is encrypted";
    const auto refused = [](MemberStore& reader, const std::string& entry) {
        return testing::error_of([&] { static_cast<void>(reader.get(entry)); });
    };
    store->set("group/addr/2", store->get("group/addr/1"));
    store->set("group/addr/3", "10.6.6.6:666");
    for (const std::string entry : {"addr/2", "addr/3"}) {
        const auto error = refused(member, entry);
        ASSERT_TRUE(error) << entry;
        EXPECT_THAT(error->what(), HasSubstr("\"group/" + entry + "\""));
    }
    MemberStore older("group", store, secret("of round 6").key);
    MemberStore stranger("group", store, std::nullopt);
    EXPECT_TRUE(refused(older, "addr/1"));
    EXPECT_TRUE(refused(stranger, "addr/1"));
    EXPECT_EQ(stranger.get("addr/3"), "10.6.6.6:666") << "without a key all is as it is";
}

}  // namespace
}  // namespace regroup
