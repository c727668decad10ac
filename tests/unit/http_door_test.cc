// SPDX-License-Identifier: Apache-2.0
//
// The door over real sockets, with pages of the test behind it.
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/http/door.h"

namespace regroup::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ManualClock final : public Clock {
   public:
    [[nodiscard]] Instant now() const noexcept override { return now_; }
    void pass(Duration time) { now_ += time; }

   private:
    Instant now_ = SteadyClock().now();
};

class TestPages final : public Pages {
   public:
    [[nodiscard]] bool is_public(const std::string& path) const override {
        return path == "/healthz";
    }
    void answer(const Request& request, Reply reply) override {
        requests.push_back(request);
        if (request.path == "/later") {
            late.push_back(std::move(reply));
        } else if (request.path == "/stream") {
            Answer stream;
            stream.content_type = "text/event-stream";
            stream.stream = [this](const std::shared_ptr<Viewer>& viewer) {
                viewers.push_back(viewer);
            };
            reply(std::move(stream));
        } else if (request.path == "/big") {
            reply(sentence(200, std::string(std::size_t{8} << 20U, 'x')));
        } else {
            Answer file = sentence(200, "page " + request.path);
            file.etag = "\"tag\"";
            reply(std::move(file));
        }
    }

    std::vector<Request> requests;
    std::vector<Reply> late;
    std::vector<std::weak_ptr<Viewer>> viewers;
};

/// The client's end of a connection. Each wait runs the door.
class Browser {
   public:
    Browser(asio::io_context& io, tcp::socket socket) : io_(io), socket_(std::move(socket)) {
        socket_.non_blocking(true);
    }

    void send(std::string_view bytes) {
        while (!bytes.empty()) {
            const ssize_t count = ::send(socket_.native_handle(), bytes.data(), bytes.size(),
                                         MSG_NOSIGNAL | MSG_DONTWAIT);
            if (count < 0 && errno != EAGAIN) {
                return;
            }
            bytes.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
            turn();
        }
    }
    void get(const std::string& target) {
        send("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    /// All that has come, once it contains `text`.
    std::string await(const std::string& text) {
        until([&] { return received_.find(text) != std::string::npos; });
        EXPECT_THAT(received_, HasSubstr(text));
        return received_;
    }
    [[nodiscard]] bool is_closed_by_peer() {
        return until([&] { return ended_; });
    }
    [[nodiscard]] bool stays_open() {
        for (int i = 0; i < 10; ++i) {
            turn();
        }
        return !ended_;
    }
    void forget() { received_.clear(); }
    void hang_up() { socket_.close(); }
    [[nodiscard]] const std::string& received() const { return received_; }

    bool until(const std::function<bool()>& condition) {
        const Instant end = SteadyClock().now() + seconds(20);
        while (!condition() && SteadyClock().now() < end) {
            turn();
        }
        return condition();
    }

   private:
    void turn() {
        io_.restart();
        io_.run_one_for(std::chrono::milliseconds(1));
        io_.poll();
        char buffer[65536];
        ssize_t count = 1;
        while (reads && count > 0) {
            count = ::recv(socket_.native_handle(), buffer, sizeof buffer, MSG_DONTWAIT);
            received_.append(buffer, static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
        }
        ended_ = ended_ || count == 0 || (count < 0 && errno != EAGAIN);
    }

    asio::io_context& io_;
    tcp::socket socket_;
    std::string received_;
    bool ended_ = false;

   public:
    bool reads = true;
};

class HttpDoor : public ::testing::Test {
   protected:
    explicit HttpDoor(const Limits& limits_in = {}) : limits(limits_in) {
        door = std::make_unique<Door>(Door::Inside{io, clock, pages, credentials, hosts}, limits,
                                      [this](const std::string&, const std::string&,
                                             const std::string& line) { log += line + "\n"; });
    }

    /// `is_owner`: the connection is of the daemon's user.
    std::unique_ptr<Browser> connect_as(const std::string& name) { return connect(true, "", name); }
    std::unique_ptr<Browser> connect(bool is_owner = true, const std::string& first_bytes = "",
                                     const std::string& name = "user ann",
                                     const std::string& address = "127.0.0.1") {
        tcp::socket socket(io);
        socket.connect(acceptor.local_endpoint());
        security::Stream stream(acceptor.accept());
        Client client;
        client.peer = address + ":1";
        client.address = address;
        client.is_here = true;
        client.objection = "no";
        if (is_owner) {
            client.proven = security::Peer{security::Scope(), name};
        }
        door->adopt(std::move(stream), first_bytes, std::move(client));
        return std::make_unique<Browser>(io, std::move(socket));
    }
    void pass(Duration time) {
        clock.pass(time);
        door->sweep();
    }

    asio::io_context io{1};
    ManualClock clock;
    TestPages pages;
    security::Credentials credentials;
    std::set<std::string> hosts;
    const Limits limits;
    std::string log;
    std::unique_ptr<Door> door;
    tcp::acceptor acceptor{io, tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0)};
};

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
    const auto browser = connect();
    browser->get("/a");
    browser->await("page /a\n");
    pass(limits.request_limit * 2);
    browser->send("G");
    EXPECT_TRUE(browser->stays_open());
    pass(limits.request_limit);
    EXPECT_TRUE(browser->is_closed_by_peer());
}

TEST_F(HttpDoor, IdleConnectionIsClosed) {
    const auto browser = connect();
    browser->get("/a");
    browser->await("page /a\n");
    pass(limits.idle_limit - seconds(1));
    EXPECT_TRUE(browser->stays_open());
    pass(seconds(1));
    EXPECT_TRUE(browser->is_closed_by_peer());
}

TEST_F(HttpDoor, ClientThatDoesNotReadItsAnswerIsDisconnected) {
    const auto browser = connect();
    browser->reads = false;
    browser->get("/big");
    EXPECT_TRUE(browser->stays_open());
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

class HttpDoorInAHurry : public HttpDoor {
   protected:
    HttpDoorInAHurry() : HttpDoor(hurried()) {}
    static Limits hurried() {
        Limits limits;
        limits.answer_limit = std::chrono::milliseconds(1);
        limits.viewer_interval = std::chrono::milliseconds(1);
        return limits;
    }
};

TEST_F(HttpDoorInAHurry, AnswerThatDoesNotComeIsReplacedByAnError) {
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

TEST_F(HttpDoorInAHurry, ViewerGetsSignsOfLife) {
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
    const auto browser = connect();
    const auto other = connect();
    browser->get("/stream");
    browser->await("\r\n\r\n");
    other->get("/stream");
    other->await("\r\n\r\n");
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
    const auto browser = connect();
    browser->get("/stream");
    browser->await("\r\n\r\n");
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
    const auto browser = connect();
    browser->get("/stream");
    browser->await("\r\n\r\n");
    browser->send(std::string(100000, 'x'));
    EXPECT_TRUE(browser->is_closed_by_peer());
}

class HttpDoorWithLittleRoom : public HttpDoor {
   protected:
    HttpDoorWithLittleRoom() : HttpDoor(little()) {}
    static Limits little() {
        Limits limits;
        limits.connections_max = 3;
        return limits;
    }
};

TEST_F(HttpDoorWithLittleRoom, StrangersDisplaceOnlyEachOther) {
    const auto viewer = connect();
    viewer->get("/stream");
    viewer->await("\r\n\r\n");
    const auto owner = connect();
    owner->get("/a");
    owner->await("page /a\n");
    const auto first = connect(false, "GET /");
    clock.pass(seconds(1));
    const auto second = connect(false, "GET /");
    EXPECT_TRUE(first->is_closed_by_peer());
    EXPECT_EQ(door->connections_count(), 3U);
    EXPECT_TRUE(viewer->stays_open());
    owner->get("/b");
    owner->await("page /b\n");
}

TEST_F(HttpDoorWithLittleRoom, FloodOfOneAddressDisplacesNoStrangerOfAnother) {
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

TEST_F(HttpDoorWithLittleRoom, LongestIdleOfAllLeavesWhereNoStrangerIs) {
    std::vector<std::unique_ptr<Browser>> browsers;
    for (int i = 0; i < 3; ++i) {
        browsers.push_back(connect());
        browsers.back()->get("/a");
        browsers.back()->await("page /a\n");
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

TEST_F(HttpDoorWithLittleRoom, PeerThatHoldsAllPlacesKeepsNoProbeOut) {
    const auto other = connect_as("token 2");
    other->get("/a");
    other->await("page /a\n");
    clock.pass(seconds(1));
    const auto viewer = connect_as("token 1");
    viewer->get("/stream");
    viewer->await("\r\n\r\n");
    const auto half = connect_as("token 1");
    half->send("GET /a HTTP/1.1\r\n");
    EXPECT_TRUE(half->stays_open());

    const auto probe = connect(false);
    probe->get("/healthz");
    EXPECT_THAT(probe->await("page /healthz"), StartsWith("HTTP/1.1 200 "));
    EXPECT_TRUE(half->is_closed_by_peer()) << "its peer holds more than the other";
    EXPECT_TRUE(other->stays_open());
}

TEST_F(HttpDoorWithLittleRoom, NewClientIsTurnedAwayIfAllAreBusy) {
    std::vector<std::unique_ptr<Browser>> viewers;
    for (int i = 0; i < 3; ++i) {
        viewers.push_back(connect());
        viewers.back()->get("/stream");
        viewers.back()->await("\r\n\r\n");
    }
    EXPECT_TRUE(connect()->is_closed_by_peer());
    EXPECT_THAT(log, HasSubstr("there are 3 HTTP clients already"));
    EXPECT_EQ(door->connections_count(), 3U);
}

class HttpDoorWhereFewStay : public HttpDoor {
   protected:
    HttpDoorWhereFewStay() : HttpDoor(few()) {}
    static Limits few() {
        Limits limits;
        limits.staying_max = 2;
        return limits;
    }
};

TEST_F(HttpDoorWhereFewStay, ViewersLeaveRoomForOthers) {
    std::vector<std::unique_ptr<Browser>> viewers;
    for (int i = 0; i < 3; ++i) {
        viewers.push_back(connect());
        viewers.back()->get("/stream");
        viewers.back()->await("\r\n\r\n");
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

TEST_F(HttpDoorWhereFewStay, PeerWithAllViewersGivesOneUpForAnotherPeer) {
    const auto stream = [this](const std::string& name) {
        auto viewer = connect_as(name);
        viewer->get("/stream");
        viewer->await("\r\n\r\n");
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

class HttpDoorWithLittleMemory : public HttpDoor {
   protected:
    HttpDoorWithLittleMemory() : HttpDoor(little()) {}
    static Limits little() {
        Limits limits;
        limits.texts_bytes_max = std::size_t{20} << 20U;  // Two of /big.
        return limits;
    }
};

TEST_F(HttpDoorWithLittleMemory, SlowestReaderOfThePeerThatHoldsTheMostIsDisconnected) {
    std::vector<std::unique_ptr<Browser>> slow;
    for (int i = 0; i < 2; ++i) {
        slow.push_back(connect_as("token 1"));
        slow.back()->reads = false;
        slow.back()->get("/big");
        EXPECT_TRUE(slow.back()->stays_open());
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

TEST_F(HttpDoorWithLittleMemory, ReadersOfOneTextShareIt) {
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

TEST_F(HttpDoorWithLittleRoom, SlowReaderMakesRoomWhenAllAreBusy) {
    std::vector<std::unique_ptr<Browser>> slow;
    for (int i = 0; i < 3; ++i) {
        slow.push_back(connect());
        slow.back()->reads = false;
        slow.back()->get("/big");
        EXPECT_TRUE(slow.back()->stays_open());
    }
    EXPECT_TRUE(connect(false, "GET /healthz").get()->is_closed_by_peer())
        << "they may be fast yet";
    clock.pass(limits.slow_limit + seconds(1));

    const auto probe = connect(false);
    probe->get("/healthz");
    EXPECT_THAT(probe->await("page /healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpDoorWhereFewStay, ManyIdleConnectionsAreNotKept) {
    std::vector<std::unique_ptr<Browser>> browsers;
    for (int i = 0; i < 3; ++i) {
        browsers.push_back(connect());
        browsers.back()->get("/a");
        browsers.back()->await("page /a\n");
    }
    EXPECT_THAT(browsers[1]->received(), HasSubstr("Connection: keep-alive\r\n"));
    EXPECT_THAT(browsers[2]->received(), HasSubstr("Connection: close\r\n"));
    EXPECT_TRUE(browsers[2]->is_closed_by_peer());
}

TEST_F(HttpDoor, EndOfTheDoorEndsAllConnections) {
    const auto viewer = connect();
    viewer->get("/stream");
    viewer->await("\r\n\r\n");
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
