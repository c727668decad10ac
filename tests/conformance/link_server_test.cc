// SPDX-License-Identifier: Apache-2.0
//
// The SDK versions that an agent serves.
#include "agent/link/link_server.h"

#include <cerrno>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "agent/link/round_key.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/worker_link/packet.h"
#include "tests/support/matchers.h"

namespace regroup::agent {

namespace {

using worker_link::kLinkVersion;
using worker_link::kOldestLinkVersion;

constexpr std::uint64_t kKey = 7;

class LinkServerTest : public ::testing::Test {
   protected:
    void SetUp() override {
        LinkServer::Handlers handlers;
        handlers.on_hello = [this](std::uint64_t, pid_t, const worker_link::Hello&, bool) {
            ++hellos_;
        };
        handlers.on_message = [this](std::uint64_t, const worker_link::FromWorker&) { ++words_; };
        handlers.on_trouble = [this](const std::string& line) { troubles_.push_back(line); };
        auto server = LinkServer::open(io_, std::move(handlers));
        auto page = SharedPage::create();
        ASSERT_TRUE(server);
        ASSERT_TRUE(page);
        server_ = *std::move(server);
        id_ = server_->expect(kKey, *page);
    }

    /// A worker that has said Hello; none if there is no connection.
    UniqueFd connect(std::uint32_t version) {
        UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        sockaddr_un name{};
        name.sun_family = AF_UNIX;
        server_->address().copy(name.sun_path, server_->address().size());
        name.sun_path[0] = '\0';
        const auto bytes =
            static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + server_->address().size());
        worker_link::Hello hello;
        hello.worker_id = id_;
        hello.version = version;
        if (!socket ||
            ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), bytes) != 0 ||
            !worker_link::send_packet(socket.get(), worker_link::encode(hello),
                                      worker_link::WhenFull::wait)) {
            ADD_FAILURE() << "no connection";
            socket.reset();
        }
        return socket;
    }

    /// Whether a worker whose SDK is of that version gets its page. Else the connection is closed.
    bool is_served(std::uint32_t version) {
        const UniqueFd socket = connect(version);
        char answer[64];
        ssize_t count = -1;
        const Instant deadline = after(SteadyClock().now(), std::chrono::seconds(60));
        do {
            io_.run_for(std::chrono::milliseconds(1));
            count = ::recv(socket.get(), answer, sizeof answer, MSG_DONTWAIT);
        } while (count < 0 && errno == EAGAIN && SteadyClock().now() < deadline);
        EXPECT_GE(count, 0) << "no answer";
        return count > 0;
    }

    boost::asio::io_context io_{1};
    std::unique_ptr<LinkServer> server_;
    std::string id_;
    std::vector<std::string> troubles_;
    int hellos_ = 0;
    int words_ = 0;
};

TEST_F(LinkServerTest, WorkersOfKnownVersionsAreServed) {
    for (std::uint32_t version = kOldestLinkVersion; version <= kLinkVersion; ++version) {
        EXPECT_TRUE(is_served(version)) << version;
        EXPECT_TRUE(server_->is_attached(kKey));
    }
    EXPECT_EQ(hellos_, static_cast<int>(kLinkVersion - kOldestLinkVersion + 1));
    EXPECT_THAT(troubles_, IsEmpty());
}

TEST_F(LinkServerTest, WelcomeBringsTheKeyOfTheRound) {
    const worker_link::Welcome welcome{.round = 7, .key = std::string(64, 'c')};
    const auto page = SharedPage::create();
    ASSERT_TRUE(page);
    id_ = server_->expect(kKey, *page, welcome);
    const UniqueFd socket = connect(kLinkVersion);
    std::string answer(worker_link::kMessageLimit, '\0');
    ssize_t count = -1;
    const Instant deadline = after(SteadyClock().now(), std::chrono::seconds(60));
    while (count < 0 && SteadyClock().now() < deadline) {
        io_.run_for(std::chrono::milliseconds(1));
        count = ::recv(socket.get(), answer.data(), answer.size(), MSG_DONTWAIT);
    }
    ASSERT_GT(count, 0);
    answer.resize(static_cast<std::size_t>(count));
    const Result<worker_link::ToWorker> heard = worker_link::decode_to_worker(answer);
    ASSERT_TRUE(heard) << heard.error().detail;
    EXPECT_EQ(*heard, worker_link::ToWorker(welcome));
}

TEST(RoundKey, KeyIsThatOfTheRoundOnAllNodesAndDoesNotShowTheStoreKey) {
    rendezvous::Assignment first;
    first.round = rendezvous::RoundId{7};
    first.store_key = std::string(64, '5');
    rendezvous::Assignment second = first;
    second.group_rank = 1;
    EXPECT_EQ(round_key(first).size(), 64U);
    EXPECT_EQ(round_key(first), round_key(second));
    EXPECT_NE(round_key(first), first.store_key);
    second.round = rendezvous::RoundId{8};
    EXPECT_NE(round_key(first), round_key(second));
    second.store_key.clear();
    EXPECT_EQ(round_key(second), "");
}

TEST_F(LinkServerTest, LastMessageOfAnEndedWorkerIsRead) {
    for (const bool is_sent_to : {true, false}) {
        words_ = 0;
        UniqueFd socket = connect(kLinkVersion);
        const Instant deadline = after(SteadyClock().now(), std::chrono::seconds(60));
        while (!server_->is_attached(kKey) && SteadyClock().now() < deadline) {
            io_.run_for(std::chrono::milliseconds(1));
        }
        ASSERT_TRUE(worker_link::send_packet(socket.get(),
                                             worker_link::encode(worker_link::Suspended{}),
                                             worker_link::WhenFull::wait));
        socket.reset();  // With the unread Welcome.
        if (is_sent_to) {
            server_->send(kKey, worker_link::EndRound{1, "it is lost"});
        }
        EXPECT_THAT(troubles_, IsEmpty());
        server_->hear_out(kKey);
        EXPECT_EQ(words_, 1) << is_sent_to;
        EXPECT_FALSE(server_->is_attached(kKey));
    }
}

TEST_F(LinkServerTest, NewerSdkIsRefusedWithOneMessage) {
    EXPECT_FALSE(is_served(kLinkVersion + 1));
    EXPECT_FALSE(is_served(kLinkVersion + 1));
    EXPECT_FALSE(server_->is_attached(kKey));
    EXPECT_EQ(hellos_, 0);
    EXPECT_THAT(troubles_,
                ElementsAre(AllOf(HasSubstr("was built with a newer SDK"),
                                  HasSubstr("start it with a regroup that is at least as new"))));
    EXPECT_TRUE(is_served(kLinkVersion)) << "the place is still free";
}

TEST_F(LinkServerTest, TooOldSdkIsRefusedWithAMessage) {
    EXPECT_FALSE(is_served(kOldestLinkVersion - 1));
    EXPECT_THAT(troubles_, ElementsAre(AllOf(HasSubstr("was built with an older SDK"),
                                             HasSubstr("build the program again"))));
}

}  // namespace

}  // namespace regroup::agent
