// SPDX-License-Identifier: Apache-2.0
//
// The agents of two nodes give each other copies of saved parts, and images to load.
#include <sys/wait.h>

#include <boost/asio/ip/tcp.hpp>

#include "agent/snapshot/copier.h"
#include "agent/snapshot/peer_client.h"
#include "tests/conformance/snapshot_support.h"

namespace regroup::agent {
namespace {

constexpr std::size_t kLong = 9'000'000;  // Three pieces of a connection.
/// Two nodes of one round. Parametrised by how they trust each other.
class SnapshotCopies : public ::testing::TestWithParam<StoreMode> {
   protected:
    SnapshotCopies() { begin(1); }

    void begin(std::uint64_t round) {
        a_.begin(round, 0, 2);
        b_.begin(round, 1, 2);
    }
    void copy_to_b() {
        const auto reply = on_a_.ask(
            {.kind = Ask::Kind::copies_to, .id = kPart, .endpoint = on_b_.holdings().endpoint});
        EXPECT_EQ(reply.answer.error, "");
    }
    std::vector<std::uint64_t> copies_on_b() {
        std::vector<std::uint64_t> steps;
        for (const Holding& holding : on_b_.holdings().holdings) {
            if (holding.place == Place::copy) {
                steps.push_back(holding.version.step);
            }
        }
        return steps;
    }
    bool wait_for_copies(const std::vector<std::uint64_t>& steps) {
        return wait_until([&] { return copies_on_b() == steps; });
    }

    SnapshotNode a_{"a", {}, GetParam()};
    SnapshotNode b_{"b", {}, GetParam()};
    WorkerChannel on_a_ = a_.open();
    WorkerChannel on_b_ = b_.open();
};

INSTANTIATE_TEST_SUITE_P(Trust, SnapshotCopies,
                         ::testing::Values(StoreMode::local, StoreMode::relay),
                         [](const auto& each) {
                             return each.param == StoreMode::local ? "SameUser" : "Key";
                         });

TEST_P(SnapshotCopies, SavedPartIsCopiedAndSurvivesItsNode) {
    const auto room = on_a_.room(kPart, 2 * kLong);
    on_a_.save(*room, kPart, version(10), kLong);
    copy_to_b();  // Also copies versions that were saved before.
    ASSERT_TRUE(wait_for_copies({10}));
    on_a_.save(*room, kPart, version(20), kLong);
    ASSERT_TRUE(wait_for_copies({10, 20}));
    EXPECT_TRUE(wait_until([&] { return room->contents().front().is_copied; }));
    on_b_.kept(kPart, version(20));
    EXPECT_TRUE(wait_for_copies({20}));
    a_.end();
    EXPECT_EQ(on_b_.image(kPart, version(20), Place::copy), image_of(kPart, version(20), kLong));
}

TEST_P(SnapshotCopies, OnlyCopyOfAKeptVersionIsNotGivenUp) {
    const auto room = on_a_.room(kPart, 2 * kLong);
    copy_to_b();
    for (const std::uint64_t step : {10U, 20U}) {
        on_a_.save(*room, kPart, version(step), kLong);
        ASSERT_TRUE(wait_for_copies(step == 10 ? std::vector<std::uint64_t>{10}
                                               : std::vector<std::uint64_t>{10, 20}));
    }
    on_b_.kept(kPart, version(10));
    // Without the news that 20 is kept, 10 stays, and there is no place for 30.
    on_a_.save(*room, kPart, version(30), kLong);
    EXPECT_THAT(copies_on_b(), ElementsAre(10, 20));
    on_a_.kept(kPart, version(20));  // Comes with the next attempt.
    EXPECT_TRUE(wait_for_copies({20, 30}));
}

TEST_P(SnapshotCopies, WorkersReadImagesOfAnotherNode) {
    const auto room = on_a_.room(kPart, 2 * kLong);
    on_a_.save(*room, kPart, version(10), kLong);
    const std::string endpoint = on_a_.holdings().endpoint;
    const std::string image = image_of(kPart, version(10), kLong);
    EXPECT_EQ(on_b_.image(kPart, version(10), Place::room, endpoint), image);
    EXPECT_THAT(on_b_.image(kPart, version(11), Place::room, endpoint),
                saying(endpoint, "step 11", "any more"));
    a_.end();
    // Fetched once for all workers of the node, until a later version is whole.
    WorkerChannel other = b_.open();
    EXPECT_EQ(other.image(kPart, version(10), Place::room, endpoint), image);
    other.whole(kPart, version(11));
    EXPECT_THAT(other.image(kPart, version(10), Place::room, endpoint),
                saying(endpoint, "cannot be reached"));
}

TEST_P(SnapshotCopies, WorkersReadRangesOfAnImage) {
    const auto room = on_a_.room(kPart, 2 * kLong);
    on_a_.save(*room, kPart, version(10), kLong);
    const std::string image = image_of(kPart, version(10), kLong);
    const auto range = [&](WorkerChannel& worker, std::uint64_t begin, std::uint64_t bytes) {
        const auto reply = worker.ask({.kind = Ask::Kind::image,
                                       .id = kPart,
                                       .version = version(10),
                                       .endpoint = on_a_.holdings().endpoint,
                                       .begin = begin,
                                       .bytes = bytes});
        EXPECT_EQ(reply.answer.error, "");
        return bytes_in(reply.file.get(), reply.answer.offset, reply.answer.bytes);
    };
    for (WorkerChannel* const worker : {&on_a_, &on_b_}) {
        EXPECT_EQ(range(*worker, 0, 100), image.substr(0, 100));
        EXPECT_EQ(range(*worker, 5'000, 8'000), image.substr(5'000, 8'000));
        EXPECT_EQ(range(*worker, image.size() - 3, 8'000), image.substr(image.size() - 3));
    }
    const auto beyond = on_b_.ask({.kind = Ask::Kind::image,
                                   .id = kPart,
                                   .version = version(10),
                                   .endpoint = on_a_.holdings().endpoint,
                                   .begin = image.size(),
                                   .bytes = 1});
    EXPECT_THAT(beyond.answer.error, saying("ends before byte"));
}

TEST_P(SnapshotCopies, AdoptedImageStaysUntilALaterVersionIsKept) {
    const auto room = on_a_.room(kPart, 2 * kLong);
    on_a_.save(*room, kPart, version(10), kLong);
    const std::string endpoint = on_a_.holdings().endpoint;
    const Ask adopt{
        .kind = Ask::Kind::adopt, .id = kPart, .version = version(10), .endpoint = endpoint};
    EXPECT_THAT(on_b_.ask(adopt).answer.error, saying("step 10", "any more"));  // Not fetched.
    const std::string image = image_of(kPart, version(10), kLong);
    EXPECT_EQ(on_b_.image(kPart, version(10), Place::room, endpoint), image);
    on_b_.whole(kPart, version(10));  // Can be loaded: all workers say so at the start of a round.
    EXPECT_EQ(on_b_.ask(adopt).answer.error, "");
    a_.end();
    EXPECT_THAT(copies_on_b(), ElementsAre(10));
    EXPECT_EQ(on_b_.image(kPart, version(10), Place::copy), image);
    on_b_.whole(kPart, version(20));
    EXPECT_THAT(copies_on_b(), ElementsAre(10));
    on_b_.kept(kPart, version(20));
    EXPECT_THAT(copies_on_b(), ElementsAre());
}

TEST_P(SnapshotCopies, StrangerWithoutTheKeyOfTheRoundGetsNothing) {
    if (GetParam() == StoreMode::local) {
        return;  // There, all processes of this user are trusted.
    }
    const auto room = on_a_.room(kPart, 2 * kLong);
    on_a_.save(*room, kPart, version(10), kLong);
    SnapshotNode stranger("c", {}, StoreMode::relay);
    stranger.begin(1, 1, 2, "another secret of that many letters");
    WorkerChannel its_worker = stranger.open();
    const std::string endpoint = on_a_.holdings().endpoint;
    const std::string why = its_worker.image(kPart, version(10), Place::room, endpoint);
    EXPECT_THAT(why, HasSubstr(endpoint));
    EXPECT_LT(why.size(), 1000U);
    EXPECT_TRUE(wait_until([&] { return !a_.loop().sentences().empty(); }));
    EXPECT_THAT(a_.loop().sentences().front(), HasSubstr("was refused"));
}

TEST_P(SnapshotCopies, SilentStrangersDoNotKeepNodesApart) {
    if (GetParam() == StoreMode::local) {
        return;  // There, a stranger is known at once.
    }
    const auto room = on_a_.room(kPart, kLong);
    on_a_.save(*room, kPart, version(10), 2000);
    const std::string endpoint = on_a_.holdings().endpoint;
    const auto place = rendezvous::Endpoint::parse(endpoint);
    boost::asio::io_context io;
    std::vector<boost::asio::ip::tcp::socket> strangers;
    for (int i = 0; i < 200; ++i) {
        strangers.emplace_back(io).connect(
            {boost::asio::ip::make_address(place->host), place->port});
    }
    // Less than what a stranger has for a handshake.
    SnapshotNode node("c", {.fetch_limit = std::chrono::seconds(5)}, StoreMode::relay);
    node.begin(1, 1, 2);
    EXPECT_EQ(node.open().image(kPart, version(10), Place::room, endpoint, true),
              image_of(kPart, version(10), 2000));
}

TEST(SnapshotCopier, WorkersGoOnWhenNoCopyCanBeMade) {
    Shelf shelf({1 << 30, false});
    shelf.begin_round(1, true);
    const auto room = shelf.room({.id = kPart, .bytes = kLong});
    ASSERT_TRUE(room);
    (*room)->publish(0, version(10), 100);
    std::mutex mutex;
    std::vector<std::string> said;
    Copier copier(
        shelf,
        [&](const std::string& sentence) {
            const std::lock_guard lock(mutex);
            said.push_back(sentence);
        },
        Duration::zero());
    copier.begin_round(true);
    copier.saved(kPart, version(10), false);
    EXPECT_FALSE((*room)->contents().front().is_copied);
    copier.set_target({"127.0.0.1:1", {.same_user = true}});
    EXPECT_TRUE(wait_until([&] { return (*room)->contents().front().is_copied; }));
    EXPECT_TRUE((*room)->contents().front().has_no_copy);
    (*room)->publish(1, version(20), 100);
    copier.saved(kPart, version(20), false);  // Does not wait for the failure.
    EXPECT_TRUE((*room)->contents().front().is_copied);
    EXPECT_TRUE((*room)->contents().front().has_no_copy);
    EXPECT_TRUE(wait_until([&] {
        const std::lock_guard lock(mutex);
        return said.size() == 1;
    }));
    EXPECT_THAT(said.front(), saying("127.0.0.1:1", "no copy", "cannot be reached"));
    EXPECT_TRUE(copier.copied().empty());
}

/// The server of one node, asked without a keeper on the other side.
class SnapshotPeer : public ::testing::Test {
   protected:
    SnapshotPeer() { node_.begin(1, 1, 2); }

    [[nodiscard]] PeerPlace place() {
        return {worker_.holdings().endpoint, {.same_user = true}, sockets_};
    }
    Result<void> put(const std::string& image) {
        return put_copy(place(), kPart, version(10), std::as_bytes(std::span(image)), {});
    }

    OpenSockets sockets_;
    SnapshotNode node_{"b"};
    WorkerChannel worker_ = node_.open();
};

TEST_F(SnapshotPeer, DamagedCopyIsNotKept) {
    const std::string whole = image_of(kPart, version(10), 2000);
    for (std::size_t at = 0; at < whole.size(); at += 13) {
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
        const Result<void> kept = put(damaged);
        ASSERT_FALSE(kept) << "byte " << at;
        EXPECT_THAT(kept.error().detail, saying("step 10", "part 0"));
    }
    EXPECT_THAT(worker_.holdings().holdings, IsEmpty());
    EXPECT_TRUE(put(whole));
    EXPECT_THAT(worker_.holdings().holdings, SizeIs(1));
    EXPECT_TRUE(put(whole));  // It has it.
}

TEST_F(SnapshotPeer, ImageOfAnotherPartIsNotKept) {
    const Result<void> kept = put(image_of({"state", 1, 2}, version(10), 2000));
    ASSERT_FALSE(kept);
    EXPECT_THAT(kept.error().detail, HasSubstr("another version or part"));
}

TEST_F(SnapshotPeer, PeerThatGoesAwayInTheMiddleLeavesNothing) {
    const std::string image = image_of(kPart, version(10), 2000);
    {
        auto stream = PeerStream::connect(*rendezvous::Endpoint::parse(place().endpoint),
                                          place().trust, sockets_);
        ASSERT_TRUE(stream);
        ASSERT_TRUE((*stream)->send(Ask{
            .kind = Ask::Kind::saved, .id = kPart, .version = version(10), .bytes = image.size()}));
        ASSERT_TRUE((*stream)->receive_answer());
        ASSERT_TRUE((*stream)->send(std::as_bytes(std::span(image)).first(1000)));
    }
    EXPECT_TRUE(put(image));
    EXPECT_THAT(worker_.holdings().holdings, SizeIs(1));
}

TEST_F(SnapshotPeer, ServerThatGoesAwayInTheMiddleIsAnError) {
    boost::asio::io_context io;
    boost::asio::ip::tcp::acceptor acceptor = store::listen(io);
    const std::string endpoint = "127.0.0.1:" + std::to_string(acceptor.local_endpoint().port());
    const std::vector<std::byte> part(1000);
    std::thread server([&] {
        auto socket = acceptor.accept();
        auto stream = PeerStream::accept(UniqueFd(socket.release()), {.same_user = true}, sockets_);
        ASSERT_TRUE(stream);
        ASSERT_TRUE((*stream)->receive_ask());
        ASSERT_TRUE((*stream)->send(Answer{.bytes = 5000}));
        ASSERT_TRUE((*stream)->send(std::span<const std::byte>(part)));
    });
    EXPECT_THAT(worker_.image(kPart, version(10), Place::room, endpoint),
                saying(endpoint, "closed the connection"));
    server.join();
    EXPECT_THAT(worker_.image(kPart, version(10), Place::room, "nowhere"),
                saying("'nowhere' is no address"));
}

TEST_F(SnapshotPeer, NodeThatCannotBeReachedIsAskedAgain) {
    SnapshotNode patient("c", {.fetch_limit = std::chrono::minutes(1)});
    patient.begin(1, 0, 2);
    WorkerChannel worker = patient.open();
    boost::asio::io_context io;
    boost::asio::ip::tcp::acceptor acceptor = store::listen(io);
    const std::string image = image_of(kPart, version(10), 2000);
    std::thread server([&] {
        acceptor.accept().close();  // As a node with too many connections does.
        auto socket = acceptor.accept();
        auto stream = PeerStream::accept(UniqueFd(socket.release()), {.same_user = true}, sockets_);
        ASSERT_TRUE(stream);
        ASSERT_TRUE((*stream)->receive_ask());
        ASSERT_TRUE((*stream)->send(Answer{.bytes = image.size()}));
        ASSERT_TRUE((*stream)->send(std::as_bytes(std::span(image))));
    });
    const std::string endpoint = "127.0.0.1:" + std::to_string(acceptor.local_endpoint().port());
    EXPECT_EQ(worker.image(kPart, version(10), Place::room, endpoint, true), image);
    server.join();
}

TEST_F(SnapshotPeer, ProcessOfAnotherUserGetsNothing) {
    const PeerPlace here = place();
    const pid_t child = ::fork();
    if (child == 0) {
        constexpr uid_t kOtherUser = 54321;
        if (::setuid(kOtherUser) != 0) {
            ::_exit(99);
        }
        boost::asio::io_context io;
        boost::asio::ip::tcp::socket socket(io);
        boost::system::error_code error;
        const auto port = rendezvous::Endpoint::parse(here.endpoint)->port;
        socket.connect({boost::asio::ip::address_v4::loopback(), port}, error);
        char byte = 0;  // The server waits for a message of those whom it trusts.
        ::_exit(error ? 98 : ::recv(socket.native_handle(), &byte, 1, 0) == 0 ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WEXITSTATUS(status) == 99) {
        GTEST_SKIP() << "only root can become another user";
    }
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(wait_until([&] { return !node_.loop().sentences().empty(); }));
    EXPECT_THAT(node_.loop().sentences().front(), saying("was refused", "user 54321"));
}

TEST_F(SnapshotPeer, AttemptToReachASilentHostEndsWithTheKeeper) {
    // Nobody answers there, not even with a refusal.
    std::thread asking(
        [&] { EXPECT_NE(worker_.image(kPart, version(10), Place::room, "192.0.2.77:7"), ""); });
    std::this_thread::yield();
    node_.end();
    asking.join();
}

TEST_F(SnapshotPeer, MessagesOfWorkersAreRefused) {
    auto stream = PeerStream::connect(*rendezvous::Endpoint::parse(place().endpoint), place().trust,
                                      sockets_);
    ASSERT_TRUE(stream);
    ASSERT_TRUE((*stream)->send(Ask{.id = kPart, .bytes = 1 << 20}));
    EXPECT_THAT((*stream)->receive_answer()->error, HasSubstr("own agent"));
}

}  // namespace
}  // namespace regroup::agent
