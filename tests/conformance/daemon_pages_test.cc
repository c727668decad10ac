// SPDX-License-Identifier: Apache-2.0
//
// The pages of a daemon, without the door before them.
#include "rendezvous/server/daemon_pages.h"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <gtest/gtest.h>

#include "rendezvous/server/event_followers.h"
#include "rendezvous/server/session.h"

namespace regroup::rendezvous {
namespace {

/// Counts what is allocated and not yet freed.
template <typename T>
struct Counting {
    using value_type = T;

    explicit Counting(int& count_in) : count(&count_in) {}
    template <typename U>
    explicit Counting(const Counting<U>& other) : count(other.count) {}
    T* allocate(std::size_t size) {
        ++*count;
        return std::allocator<T>().allocate(size);
    }
    void deallocate(T* place, std::size_t size) {
        --*count;
        std::allocator<T>().deallocate(place, size);
    }
    friend bool operator==(const Counting& a, const Counting& b) { return a.count == b.count; }

    int* count;
};

class TestClock final : public Clock {
   public:
    [[nodiscard]] Instant now() const noexcept override { return time; }
    Instant time{std::chrono::hours(1)};
};

class TestViewer final : public http::Viewer {
   public:
    [[nodiscard]] bool is_open() const override { return true; }
    void push(std::shared_ptr<const std::string> /*event*/) override {}
    void show(std::shared_ptr<const std::string> /*state*/) override {}
    void close() override {}
};

TEST(DaemonPages, ViewersThatAreGoneAreForgottenWhileOthersCome) {
    int viewers = 0;
    boost::asio::io_context io;  // It never runs, as if all viewers came at once.
    const SteadyClock clock;
    DaemonCounters counters;
    PeerLog peers_log(clock, counters, [](const std::string&) {});
    JobTable jobs(io, clock, {}, peers_log, [](const std::string&) {});
    DaemonPages pages(io, clock, jobs, [] { return DaemonCounters(); }, [](const std::string&) {});
    for (int i = 0; i < 1000; ++i) {
        http::Request request;
        request.path = "/api/v1/stream";
        pages.answer(request, [&](const http::Answer& answer) {
            ASSERT_TRUE(answer.stream);
            answer.stream(std::allocate_shared<TestViewer>(Counting<TestViewer>(viewers)));
        });
    }
    EXPECT_LE(viewers, 2);
}

class FollowersOfEvents : public ::testing::Test {
   protected:
    /// The session of a connected peer that has proved to be `name`.
    std::shared_ptr<Session> session_of(const std::string& name) {
        peers.emplace_back(io);
        peers.back().connect(acceptor.local_endpoint());
        auto session =
            Session::create(acceptor.accept(), std::weak_ptr<SessionOwner>(), 1, Duration::zero());
        session->peer.proven = security::Peer{security::Scope(), name};
        return session;
    }
    std::shared_ptr<Session> follow(const std::string& name) {
        auto session = session_of(name);
        Operate wish;
        wish.follow = true;
        followers.add(session, "job", wish);
        return session;
    }

    boost::asio::io_context io;
    boost::asio::ip::tcp::acceptor acceptor{io, {boost::asio::ip::make_address("127.0.0.1"), 0}};
    std::vector<boost::asio::ip::tcp::socket> peers;
    JobHistory history{"job"};
    EventFollowers followers{io.get_executor(), [this](const std::string&) {
                                 return EventFollowers::Source{&history, 1, false};
                             }};
};

TEST_F(FollowersOfEvents, PeerWithAllPlacesGivesOneUpForAnotherPeer) {
    std::vector<std::shared_ptr<Session>> greedy;
    for (std::size_t i = 0; i < EventFollowers::kMax; ++i) {
        greedy.push_back(follow("token 1"));
    }
    EXPECT_FALSE(followers.make_room(session_of("token 1")));

    EXPECT_TRUE(followers.make_room(session_of("token 2")));

    EXPECT_FALSE(greedy.back()->stream.is_open());
    EXPECT_TRUE(greedy.front()->stream.is_open());
    const auto other = follow("token 2");
    EXPECT_FALSE(followers.make_room(session_of("token 1")));
    EXPECT_TRUE(other->stream.is_open());
}

TEST(SharedTexts, TextIsRenderedOnceForAllWhoAskAtTheSameTime) {
    TestClock clock;
    SharedTexts texts(clock, 1000);
    int rendered = 0;
    const auto render = [&] { return std::to_string(++rendered); };

    EXPECT_EQ(*texts.get("a", render), "1");
    EXPECT_EQ(*texts.get("a", render), "1");
    EXPECT_EQ(*texts.get("b", render), "2");
    EXPECT_EQ(*texts.renew("a", render), "3");
    EXPECT_EQ(*texts.get("a", render), "3");
    clock.time += std::chrono::milliseconds(250);
    EXPECT_EQ(*texts.get("a", render), "4");
}

TEST(SharedTexts, RenewalsTakeASmallPartOfTheTime) {
    TestClock clock;
    SharedTexts texts(clock, 1000);
    int rendered = 0;
    const auto render = [&] {
        clock.time += std::chrono::milliseconds(10);
        return std::to_string(++rendered);
    };
    for (int i = 0; i < 1000; ++i) {
        texts.renew("a", render);
    }
    const int at_once = rendered;
    EXPECT_GT(at_once, 10);
    EXPECT_LT(at_once, 100);
    clock.time += std::chrono::seconds(1);
    for (int i = 0; i < 1000; ++i) {
        texts.renew("a", render);
    }
    EXPECT_LT(rendered, at_once + 10) << "a twentieth of a second";
}

TEST(SharedTexts, TextsOfSlowReadersAreCountedUntilTheyAreGone) {
    TestClock clock;
    SharedTexts texts(clock, 100);
    const auto render = [] { return std::string(60, 'x'); };

    SharedTexts::Text first = texts.get("a", render);
    const SharedTexts::Text second = first;
    EXPECT_EQ(texts.bytes_held(), 60U) << "it is in memory once";
    SharedTexts::Text too_much = texts.get("b", render);
    EXPECT_EQ(texts.bytes_held(), 120U);
    too_much.reset();
    EXPECT_EQ(texts.bytes_held(), 60U) << "it was not kept for others";
    clock.time += std::chrono::seconds(10);
    const SharedTexts::Text next = texts.get("a", render);
    EXPECT_EQ(texts.bytes_held(), 120U) << "the old one is still being read";
}

}  // namespace
}  // namespace regroup::rendezvous
