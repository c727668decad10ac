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
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/worker_link/packet.h"

namespace regroup::agent {

namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using worker_link::kLinkVersion;
using worker_link::kOldestLinkVersion;

constexpr std::uint64_t kKey = 7;

class LinkServerTest : public testing::Test {
   protected:
    void SetUp() override {
        LinkServer::Handlers handlers;
        handlers.on_hello = [this](std::uint64_t, pid_t, bool, bool) { ++hellos_; };
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
