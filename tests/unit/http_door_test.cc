// SPDX-License-Identifier: Apache-2.0
//
// Requests at the door, their answers, and its viewers.
#include "tests/unit/http_door.h"

namespace regroup::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::HttpDoor;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(HttpDoor, AnswersOneRequestAfterAnother) {
    const auto browser = connect(true, "GET /a HTT");
    browser->send("P/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(browser->await("page /a\n"), StartsWith("HTTP/1.1 200 OK\r\n"));
    browser->get("/b");
    browser->await("page /b\n");
    EXPECT_EQ(pages.requests.size(), 2U);
    EXPECT_EQ(pages.requests[0].peer.name, "user ann");
    EXPECT_EQ(door->connections_count(), 1U);
    browser->hang_up();
    EXPECT_TRUE(browser->until([&] { return door->connections_count() == 0; }));
}

TEST_F(HttpDoor, PipelinedRequestsAreAnsweredInOrder) {
    const auto browser = connect();
    std::string all;
    for (int i = 0; i < 100; ++i) {
        all += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    }
    browser->send(all);
    browser->await("page /99\n");
    std::size_t at = 0;
    for (int i = 0; i < 100; ++i) {
        at = browser->received().find("page /" + std::to_string(i) + "\n", at);
        ASSERT_NE(at, std::string::npos) << i;
    }
}

TEST_F(HttpDoor, HeadAndUnchangedFilesHaveNoBody) {
    const auto browser = connect();
    browser->send("HEAD /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    browser->send("GET /a HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: W/\"x\", \"tag\"\r\n\r\n");
    browser->await("304 Not Modified");
    EXPECT_THAT(browser->received(), HasSubstr("Content-Length: 8\r\n"));
    browser->get("/b");
    browser->await("page /b\n");
    EXPECT_THAT(browser->received(), Not(HasSubstr("page /a\n")));
}

TEST_F(HttpDoor, RefusedRequestsLeaveTheConnectionOpen) {
    const auto browser = connect(false);
    browser->get("/a");
    browser->await("HTTP/1.1 403 ");
    browser->get("/healthz");
    browser->await("page /healthz\n");
    EXPECT_EQ(pages.requests.size(), 1U);
    EXPECT_THAT(log, HasSubstr("has proved nothing"));
}

TEST_F(HttpDoor, InvalidRequestIsAnsweredAndDisconnected) {
    for (const auto& [bytes, status] : std::vector<std::pair<std::string, std::string>>{
             {"GET / HTTP/1.1\r\nnonsense\r\n\r\n", "400"},
             {"GET / HTTP/1.1\r\nA: " + std::string(100000, 'a'), "431"},
             {"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" +
                  std::string(1000000, 'a'),
              "413"}}) {
        const auto browser = connect();
        browser->send(bytes);
        browser->await("HTTP/1.1 " + status + " ");
        EXPECT_TRUE(browser->is_closed_by_peer());
    }
    EXPECT_TRUE(pages.requests.empty());
}

TEST_F(HttpDoor, RefusedClientThatDoesNotCloseIsDisconnected) {
    const auto browser = connect();
    browser->send("GET / nonsense\r\n\r\n");
    browser->await("HTTP/1.1 400 ");
    EXPECT_TRUE(browser->is_closed_by_peer());
    EXPECT_EQ(door->connections_count(), 1U);
    pass(seconds(2));
    EXPECT_TRUE(browser->until([&] { return door->connections_count() == 0; }));
}

TEST_F(HttpDoor, ClientThatAsksWhetherToSendItsBodyIsTold) {
    credentials.token = security::Token::generate();
    const auto browser = connect();
    browser->send(
        "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: 2\r\nExpect: 100-continue\r\nAuthorization: Bearer " +
        credentials.token->text() + "\r\n\r\n");
    browser->await("HTTP/1.1 100 Continue\r\n\r\n");
    browser->send("{}");
    browser->await("page /a\n");
    EXPECT_EQ(pages.requests.at(0).body, "{}");
}

TEST_F(HttpDoor, SlowRequestIsDisconnected) {
    const auto browser = connect();
    browser->send("GET /");
    pass(limits.request_limit - seconds(1));
    browser->send("a");
    EXPECT_TRUE(browser->stays_open());
    pass(seconds(1));
    EXPECT_TRUE(browser->is_closed_by_peer());
    EXPECT_EQ(door->connections_count(), 0U);
}

TEST_F(HttpDoor, SlowSecondRequestIsDisconnectedToo) {
    const auto browser = connect_reader();
    pass(limits.request_limit * 2);
    browser->send("G");
    EXPECT_TRUE(browser->stays_open());
    pass(limits.request_limit);
    EXPECT_TRUE(browser->is_closed_by_peer());
}

TEST_F(HttpDoor, IdleConnectionIsClosed) {
    const auto browser = connect_reader();
    pass(limits.idle_limit - seconds(1));
    EXPECT_TRUE(browser->stays_open());
    pass(seconds(1));
    EXPECT_TRUE(browser->is_closed_by_peer());
}

TEST_F(HttpDoor, ClientThatDoesNotReadItsAnswerIsDisconnected) {
    const auto browser = connect_slow();
    pass(limits.write_limit);
    EXPECT_TRUE(browser->until([&] { return door->connections_count() == 0; }));
}

TEST_F(HttpDoor, LateAnswerIsAwaited) {
    const auto browser = connect();
    browser->get("/later");
    ASSERT_TRUE(browser->until([&] { return !pages.late.empty(); }));
    EXPECT_EQ(browser->received(), "");
    pages.late.front()(sentence(200, "at last"));
    browser->await("at last\n");
}

TEST_F(HttpDoor, AnswerThatDoesNotComeIsReplacedByAnError) {
    open({.answer_limit = milliseconds(1), .viewer_interval = milliseconds(1)});
    const auto browser = connect();
    browser->get("/later");
    browser->await("HTTP/1.1 504 ");
    EXPECT_TRUE(browser->is_closed_by_peer());
    pages.late.front()(sentence(200, "too late"));
    browser->hang_up();
    const auto other = connect();
    EXPECT_TRUE(other->until([&] { return door->connections_count() == 1; }));
    EXPECT_THAT(browser->received(), Not(HasSubstr("too late")));
}

TEST_F(HttpDoor, ViewerGetsSignsOfLife) {
    open({.answer_limit = milliseconds(1), .viewer_interval = milliseconds(1)});
    const auto browser = connect();
    browser->get("/stream");
    browser->await(": still here\n\n: still here\n\n");
}

TEST_F(HttpDoor, ViewerGetsWhatIsPushed) {
    const auto browser = connect();
    browser->get("/stream");
    EXPECT_THAT(browser->await("\r\n\r\n"), HasSubstr("Content-Type: text/event-stream\r\n"));
    ASSERT_EQ(pages.viewers.size(), 1U);
    const auto viewer = pages.viewers[0].lock();
    ASSERT_TRUE(viewer && viewer->is_open());
    viewer->push(std::make_shared<const std::string>(event_text("job", "1")));
    viewer->show(std::make_shared<const std::string>(event_text("status", "old")));
    viewer->show(std::make_shared<const std::string>(event_text("status", "new")));
    browser->await("data: 1\n\nevent: status\ndata: new\n\n");
    EXPECT_THAT(browser->received(), Not(HasSubstr("old")));
    pass(limits.idle_limit * 10);
    EXPECT_TRUE(browser->stays_open()) << "a viewer has no end";
    browser->hang_up();
    EXPECT_TRUE(browser->until([&] { return door->connections_count() == 0; }));
    EXPECT_FALSE(viewer->is_open());
}

TEST_F(HttpDoor, ViewerThatDoesNotReadIsDisconnected) {
    const auto browser = connect_viewer();
    const auto other = connect_viewer();
    browser->reads = false;
    const auto event =
        std::make_shared<const std::string>(event_text("job", std::string(50000, 'x')));
    const auto viewer = pages.viewers[0].lock();
    EXPECT_TRUE(other->until([&] {
        pages.viewers[1].lock()->push(event);
        viewer->push(event);
        return !viewer->is_open();
    }));
    EXPECT_TRUE(other->until([&] { return door->connections_count() == 1; }));
    EXPECT_THAT(log, HasSubstr("it does not read what it is sent"));
    EXPECT_TRUE(pages.viewers[1].lock()->is_open());
}

TEST_F(HttpDoor, ViewerThatReadsNoStatesIsDisconnectedInTime) {
    const auto browser = connect_viewer();
    browser->reads = false;
    const auto state = std::make_shared<const std::string>(std::string(std::size_t{8} << 20U, 'x'));
    const auto viewer = pages.viewers[0].lock();
    viewer->show(state);
    EXPECT_TRUE(browser->stays_open());
    viewer->show(state);
    EXPECT_TRUE(viewer->is_open());
    pass(limits.write_limit);
    EXPECT_TRUE(browser->until([&] { return door->connections_count() == 0; }));
}

TEST_F(HttpDoor, ViewerThatSendsIsDisconnected) {
    const auto browser = connect_viewer();
    browser->send(std::string(100000, 'x'));
    EXPECT_TRUE(browser->is_closed_by_peer());
}

TEST_F(HttpDoor, EndOfTheDoorEndsAllConnections) {
    const auto viewer = connect_viewer();
    const auto waiting = connect();
    waiting->get("/later");
    ASSERT_TRUE(waiting->until([&] { return !pages.late.empty(); }));
    const auto reading = connect(true, "GET /");
    door.reset();
    EXPECT_TRUE(viewer->is_closed_by_peer());
    EXPECT_TRUE(waiting->is_closed_by_peer());
    EXPECT_TRUE(reading->is_closed_by_peer());
    pages.late.front()(sentence(200, "too late"));
}

}  // namespace
}  // namespace regroup::http
