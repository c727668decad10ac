// SPDX-License-Identifier: Apache-2.0
//
// The clients that leave when those of the door are too many or take too much.
#include "tests/unit/http_door.h"

namespace regroup::http {
namespace {

using std::chrono::seconds;
using testing::Browser;
using ::testing::HasSubstr;
using testing::HttpDoor;
using ::testing::StartsWith;

TEST_F(HttpDoor, StrangersDisplaceOnlyEachOther) {
    open({.connections_max = 3});
    const auto viewer = connect_viewer();
    const auto owner = connect_reader();
    const auto first = connect(false, "GET /");
    clock.pass(seconds(1));
    const auto second = connect(false, "GET /");
    EXPECT_TRUE(first->is_closed_by_peer());
    EXPECT_EQ(door->connections_count(), 3U);
    EXPECT_TRUE(viewer->stays_open());
    owner->get("/b");
    owner->await("page /b\n");
}

TEST_F(HttpDoor, FloodOfOneAddressDisplacesNoStrangerOfAnother) {
    open({.connections_max = 3});
    std::vector<std::unique_ptr<Browser>> flood;
    const auto add = [&] {
        flood.push_back(connect(false, "GET /", "", "10.0.0.66"));
        clock.pass(seconds(1));
    };
    for (int i = 0; i < 3; ++i) {
        add();
    }
    const auto probe = connect(false, "", "", "10.0.0.1");
    for (int i = 0; i < 10; ++i) {
        add();
    }
    EXPECT_EQ(door->connections_count(), 3U);
    probe->get("/healthz");
    probe->await("page /healthz\n");
}

TEST_F(HttpDoor, LongestIdleOfAllLeavesWhereNoStrangerIs) {
    open({.connections_max = 3});
    std::vector<std::unique_ptr<Browser>> browsers;
    for (int i = 0; i < 3; ++i) {
        browsers.push_back(connect_reader());
        clock.pass(seconds(1));
    }
    const auto stranger = connect(false, "GET /");
    EXPECT_TRUE(browsers[0]->is_closed_by_peer());
    const auto newest = connect();
    EXPECT_TRUE(stranger->is_closed_by_peer());
    newest->get("/b");
    newest->await("page /b\n");
    EXPECT_EQ(door->connections_count(), 3U);
}

TEST_F(HttpDoor, PeerThatHoldsAllPlacesKeepsNoProbeOut) {
    open({.connections_max = 3});
    const auto other = connect_reader("token 2");
    clock.pass(seconds(1));
    const auto viewer = connect_viewer("token 1");
    const auto half = connect_as("token 1");
    half->send("GET /a HTTP/1.1\r\n");
    EXPECT_TRUE(half->stays_open());

    const auto probe = connect(false);
    probe->get("/healthz");
    EXPECT_THAT(probe->await("page /healthz"), StartsWith("HTTP/1.1 200 "));
    EXPECT_TRUE(half->is_closed_by_peer()) << "its peer holds more than the other";
    EXPECT_TRUE(other->stays_open());
}

TEST_F(HttpDoor, NewClientIsTurnedAwayIfAllAreBusy) {
    open({.connections_max = 3});
    std::vector<std::unique_ptr<Browser>> viewers;
    for (int i = 0; i < 3; ++i) {
        viewers.push_back(connect_viewer());
    }
    EXPECT_TRUE(connect()->is_closed_by_peer());
    EXPECT_THAT(log, HasSubstr("there are 3 HTTP clients already"));
    EXPECT_EQ(door->connections_count(), 3U);
}

TEST_F(HttpDoor, ViewersLeaveRoomForOthers) {
    open({.staying_max = 2});
    std::vector<std::unique_ptr<Browser>> viewers;
    for (int i = 0; i < 3; ++i) {
        viewers.push_back(connect_viewer());
    }
    EXPECT_THAT(viewers[1]->received(), StartsWith("HTTP/1.1 200 "));
    EXPECT_THAT(viewers[2]->received(), StartsWith("HTTP/1.1 503 "));
    EXPECT_TRUE(viewers[2]->is_closed_by_peer());
    viewers[2].reset();
    viewers[0]->hang_up();
    ASSERT_TRUE(viewers[1]->until([&] { return door->connections_count() == 1; }));
    const auto next = connect();
    next->get("/stream");
    EXPECT_THAT(next->await("\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpDoor, PeerWithAllViewersGivesOneUpForAnotherPeer) {
    open({.staying_max = 2});
    const auto stream = [this](const std::string& name) {
        auto viewer = connect_viewer(name);
        clock.pass(seconds(1));
        return viewer;
    };
    const auto first = stream("token 1");
    const auto second = stream("token 1");

    const auto other = stream("token 2");

    EXPECT_THAT(other->received(), StartsWith("HTTP/1.1 200 "));
    EXPECT_TRUE(second->is_closed_by_peer()) << "the newest";
    EXPECT_TRUE(first->stays_open());
    EXPECT_THAT(stream("token 1")->received(), StartsWith("HTTP/1.1 503 "));
    EXPECT_THAT(stream("token 3")->received(), StartsWith("HTTP/1.1 503 ")) << "each has one";
    EXPECT_TRUE(other->stays_open());
}

TEST_F(HttpDoor, SlowestReaderOfThePeerThatHoldsTheMostIsDisconnected) {
    open({.texts_bytes_max = std::size_t{20} << 20U});  // Two of /big.
    std::vector<std::unique_ptr<Browser>> slow;
    for (int i = 0; i < 2; ++i) {
        slow.push_back(connect_slow("token 1"));
        clock.pass(seconds(1));
    }

    const auto other = connect_as("token 2");
    other->get("/big");
    other->await("HTTP/1.1 200 ");

    EXPECT_TRUE(other->until([&] { return door->connections_count() == 2; }));
    EXPECT_THAT(log, HasSubstr("slowest reader of token 1"));
    slow[1]->reads = true;
    EXPECT_TRUE(slow[1]->until([&] { return slow[1]->received().size() > 8U << 20U; }));
    EXPECT_TRUE(other->until([&] { return other->received().size() > 8U << 20U; }));
}

TEST_F(HttpDoor, ReadersOfOneTextShareIt) {
    open({.texts_bytes_max = std::size_t{20} << 20U});  // Two of /big.
    std::vector<std::unique_ptr<Browser>> viewers;
    for (int i = 0; i < 8; ++i) {
        viewers.push_back(connect());
        viewers.back()->reads = false;
        viewers.back()->get("/stream");
        EXPECT_TRUE(
            viewers.back()->until([&] { return pages.viewers.size() > viewers.size() - 1; }));
    }
    const auto state = std::make_shared<const std::string>(std::string(std::size_t{8} << 20U, 'x'));
    for (const auto& viewer : pages.viewers) {
        viewer.lock()->show(state);
    }
    EXPECT_TRUE(viewers[0]->stays_open());
    EXPECT_EQ(door->connections_count(), 8U);
    EXPECT_EQ(log, "");
}

TEST_F(HttpDoor, SlowReaderMakesRoomWhenAllAreBusy) {
    open({.connections_max = 3});
    std::vector<std::unique_ptr<Browser>> slow;
    for (int i = 0; i < 3; ++i) {
        slow.push_back(connect_slow());
    }
    EXPECT_TRUE(connect(false, "GET /healthz").get()->is_closed_by_peer())
        << "they may be fast yet";
    clock.pass(limits.slow_limit + seconds(1));

    const auto probe = connect(false);
    probe->get("/healthz");
    EXPECT_THAT(probe->await("page /healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpDoor, ManyIdleConnectionsAreNotKept) {
    open({.staying_max = 2});
    std::vector<std::unique_ptr<Browser>> browsers;
    for (int i = 0; i < 3; ++i) {
        browsers.push_back(connect_reader());
    }
    EXPECT_THAT(browsers[1]->received(), HasSubstr("Connection: keep-alive\r\n"));
    EXPECT_THAT(browsers[2]->received(), HasSubstr("Connection: close\r\n"));
    EXPECT_TRUE(browsers[2]->is_closed_by_peer());
}

}  // namespace
}  // namespace regroup::http
