// SPDX-License-Identifier: Apache-2.0
//
// HTTP clients of a real daemon, beside the agents of a job.
#include <array>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <nlohmann/json.hpp>

#include "daemon_shelf.h"
#include "rendezvous/security/stream.h"
#include "rendezvous/security/tls.h"
#include "rendezvous/security/token.h"
#include "rendezvous/text/describe.h"
#include "tests/support/matchers.h"

namespace regroup::rendezvous {
namespace {

using nlohmann::json;
using security::Role;
using security::Token;
namespace asio = boost::asio;
using testing::Shelf;
using testing::ShelfJournal;

class DaemonHttp : public ::testing::Test {
   protected:
    DaemonHttp()
        : host(loop, {}, 0,
               [this](DaemonSetup& setup) {
                   setup.credentials.token = token;
                   setup.http_hosts = {"Node0"};
               }),
          a(loop, host.port()),
          b(loop, host.port()) {
        a.say(join_of("healthy", "a", 2));
        b.say(join_of("healthy", "b", 2));
        for (Peer* peer : {&a, &b}) {
            if (const auto assign = peer->expect<Assign>()) {
                round = assign->assignment.round;
            }
        }
    }

    static std::string get(const std::string& target, const std::string& fields = "") {
        return "GET " + target + " HTTP/1.1\r\nHost: node0:29400\r\nConnection: close\r\n" +
               fields + "\r\n";
    }
    [[nodiscard]] std::string bearer(const security::Scope& scope) const {
        return "Authorization: Bearer " + token.limited_to(scope).text() + "\r\n";
    }
    [[nodiscard]] std::string post(const std::string& target, const std::string& body) const {
        return "POST " + target + " HTTP/1.1\r\nHost: node0\r\nConnection: close\r\n" +
               bearer({Role::operator_role, ""}) +
               "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
               "\r\n\r\n" + body;
    }
    /// The whole answer to a request after which the daemon closes the connection.
    std::string ask(const std::string& request) {
        Peer client(loop, host.port());
        EXPECT_TRUE(client.send(request));
        return client.rest();
    }
    /// The same by TLS, with the token for `scope`.
    std::string ask_by_tls(const security::Scope& scope, const std::string& request) {
        security::Credentials credentials;
        credentials.token = token.limited_to(scope);
        const auto tls = security::Tls::client(credentials, scope);
        asio::ip::tcp::socket socket(loop.io());
        socket.connect({asio::ip::make_address("127.0.0.1"), host.port()});
        security::Stream stream(std::move(socket));
        Exchange exchange{request, "", false};
        asio::co_spawn(loop.io(), talk(stream, tls->connection(), exchange), asio::detached);
        EXPECT_TRUE(loop.until([&] { return exchange.ended; }));
        return exchange.answer;
    }
    struct Exchange {
        std::string request;
        std::string answer;
        bool ended = false;
    };
    static asio::awaitable<void> talk(security::Stream& stream, security::Ssl ssl,
                                      Exchange& exchange) {
        EXPECT_TRUE(co_await stream.shake_hands(std::move(ssl)));
        co_await stream.write(asio::buffer(exchange.request));
        std::array<char, 4096> buffer{};
        for (;;) {
            const auto [error, count] = co_await stream.read_some(asio::buffer(buffer));
            if (error) {
                break;
            }
            exchange.answer.append(buffer.data(), count);
        }
        exchange.ended = true;
    }
    static json body_of(const std::string& answer) {
        const std::size_t at = answer.find("\r\n\r\n");
        return at == answer.npos ? json() : json::parse(answer.substr(at + 4), nullptr, false);
    }
    void expect_healthy() {
        for (Peer* peer : {&a, &b}) {
            EXPECT_TRUE(peer->say(running(round)));
            EXPECT_TRUE(peer->expect<Alive>());
        }
    }

    Loop loop;
    Token token = Token::generate();
    DaemonHost host;
    Peer a;
    Peer b;
    RoundId round = RoundId::none;
};

TEST_F(DaemonHttp, TellsThatItLives) {
    EXPECT_THAT(ask(get("/healthz")), EndsWith("\r\n\r\nalive\n"));
    EXPECT_THAT(ask(get("/readyz")), EndsWith("\r\n\r\nready: leads\n"));
    EXPECT_EQ(host.daemon().sessions_count(), 2U);
    EXPECT_TRUE(loop.until([&] { return host.daemon().http_clients_count() == 0; }));
    expect_healthy();
}

TEST_F(DaemonHttp, ShowsItsJobs) {
    const json all = body_of(ask(get("/api/v1/jobs")));
    ASSERT_EQ(all["jobs"].size(), 1U);
    EXPECT_EQ(all["jobs"][0]["job"], "healthy");
    EXPECT_EQ(all["jobs"][0]["nodes"].size(), 2U);
    EXPECT_EQ(body_of(ask(get("/api/v1/jobs/healthy")))["jobs"][0]["job"], "healthy");
    const std::string events = ask(get("/api/v1/jobs/healthy/events"));
    EXPECT_THAT(events, HasSubstr("Content-Type: application/x-ndjson\r\n"));
    EXPECT_THAT(ask(get("/api/v1/jobs/other")), StartsWith("HTTP/1.1 404 "));
    EXPECT_THAT(ask(get("/api/v1/jobs/")), StartsWith("HTTP/1.1 404 "));
    EXPECT_THAT(ask(get("/api/v2")), StartsWith("HTTP/1.1 404 "));
    EXPECT_THAT(ask(get("/other.html")), StartsWith("HTTP/1.1 404 "));
}

TEST_F(DaemonHttp, EventsAreShownWithoutTheirNodesOnRequest) {
    const auto line_of_round = [](const std::string& lines) {
        const std::size_t at = lines.find(R"("event":"assigned")");
        const std::size_t begin = lines.rfind('{', at);
        return json::parse(lines.substr(begin, lines.find('\n', at) - begin));
    };
    const json whole = line_of_round(ask(get("/api/v1/jobs/healthy/events")));
    EXPECT_EQ(whole["nodes"].size(), 2U);
    const json brief = line_of_round(ask(get("/api/v1/jobs/healthy/events?nodes=0")));
    EXPECT_FALSE(brief.contains("nodes"));
    EXPECT_FALSE(brief.contains("nodes_left_out"));
    EXPECT_EQ(brief["number"], whole["number"]);
    EXPECT_EQ(brief["group_world_size"], 2);
}

TEST_F(DaemonHttp, ViewersGetEventsWithoutTheirNodesOnRequest) {
    Peer viewer(loop, host.port());
    viewer.send(get("/api/v1/stream?nodes=0"));
    viewer.await("event: status\n");
    Peer other(loop, host.port());
    other.send(get("/api/v1/stream"));
    other.await("event: status\n");

    Peer c(loop, host.port());
    c.say(join_of("next", "c", 1));
    EXPECT_TRUE(c.expect<Assign>());

    viewer.await(R"("group_world_size":1})");
    other.await(R"("group_world_size":1,"nodes":[{"node":"c",)");
}

TEST_F(DaemonHttp, ServesThePage) {
    const std::string page = ask(get("/"));
    EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(page, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
    const std::size_t at = page.find("ETag: ");
    ASSERT_NE(at, page.npos);
    const std::string tag = page.substr(at + 6, page.find('\r', at) - at - 6);
    EXPECT_THAT(ask(get("/index.html", "If-None-Match: " + tag + "\r\n")),
                StartsWith("HTTP/1.1 304 "));
}

TEST_F(DaemonHttp, StrangeHostsAreRefused) {
    std::string request = get("/api/v1/jobs");
    request.replace(request.find("node0"), 5, "evil0");
    const std::string answer = ask(request);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 421 "));
    EXPECT_THAT(answer, HasSubstr("--http-host"));
    EXPECT_TRUE(host.has_logged("asked for the host evil0"));
}

TEST_F(DaemonHttp, TokenOfOneJobShowsThatJobOnly) {
    Peer c(loop, host.port());
    c.say(join_of("other", "c", 1));
    ASSERT_TRUE(c.expect<Assign>());
    ASSERT_EQ(body_of(ask(get("/api/v1/jobs")))["jobs"].size(), 2U);
    const std::string fields = bearer({Role::observer, "other"});
    const json all = body_of(ask(get("/api/v1/jobs", fields)));
    ASSERT_EQ(all["jobs"].size(), 1U);
    EXPECT_EQ(all["jobs"][0]["job"], "other");
    for (const char* target :
         {"/api/v1/jobs/healthy", "/api/v1/jobs/healthy/events", "/api/v1/stream?job=healthy"}) {
        EXPECT_THAT(ask(get(target, fields)), StartsWith("HTTP/1.1 404 ")) << target;
    }
}

TEST_F(DaemonHttp, MetricsAreThoseOfTheDaemonAndItsJobs) {
    expect_healthy();
    const std::string all = ask(get("/metrics"));
    for (const char* line :
         {"Content-Type: text/plain; version=0.0.4; charset=utf-8\r", "# TYPE regroup_info gauge",
          "regroup_job_nodes{job_id=\"healthy\",place=\"member\"} 2",
          "regroup_daemon_connections{kind=\"node\"} 2", "regroup_daemon_leading 1",
          "regroup_rendezvous_requests_total{request=\"join\"} 2",
          "regroup_daemon_silence_ratio_count 2", "regroup_daemon_jobs{phase=\"training\"} 1"}) {
        EXPECT_THAT(all, HasSubstr(std::string(line) + "\n"));
    }
    EXPECT_THAT(all, Not(HasSubstr("regroup_node_")));
    EXPECT_THAT(ask(get("/metrics?nodes=1", "Accept: application/openmetrics-text\r\n")),
                saying("regroup_node_up{job_id=\"healthy\"", EndsWith("\n# EOF\n")));
    EXPECT_THAT(ask(get("/metrics?job=other")), StartsWith("HTTP/1.1 404 "));
}

TEST_F(DaemonHttp, TokenOfOneJobShowsTheMetricsOfThatJobOnly) {
    Peer c(loop, host.port());
    c.say(join_of("other", "c", 1));
    ASSERT_TRUE(c.expect<Assign>());
    const std::string fields = bearer({Role::observer, "other"});
    EXPECT_THAT(ask(get("/metrics", fields)), saying("job_id=\"other\"", Not(HasSubstr("healthy")),
                                                     Not(HasSubstr("regroup_daemon"))));
    EXPECT_THAT(ask(get("/metrics?job=healthy", fields)), StartsWith("HTTP/1.1 404 "));
}

TEST_F(DaemonHttp, StreamShowsTheStatusAndWhatHappens) {
    Peer viewer(loop, host.port());
    viewer.send(get("/api/v1/stream?job=healthy"));
    const std::string first = viewer.await("\n\n");
    EXPECT_THAT(first, HasSubstr("Content-Type: text/event-stream\r\n"));
    EXPECT_THAT(viewer.await("event: status\ndata: {"), HasSubstr("\"healthy\""));
    EXPECT_EQ(host.daemon().http_clients_count(), 1U);
    b.say(Leave{"enough"});
    EXPECT_THAT(viewer.await("event: job\ndata: {"), HasSubstr("\"healthy\""));
    viewer.hang_up();
    EXPECT_TRUE(loop.until([&] { return host.daemon().http_clients_count() == 0; }));
}

TEST_F(DaemonHttp, OperatorStopsAJob) {
    const std::string answer =
        ask(post("/api/v1/jobs/healthy/stop", R"({"reason":"maintenance"})"));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
    EXPECT_EQ(body_of(answer)["done"], true);
    const auto closed = a.expect<Closed>();
    ASSERT_TRUE(closed);
    EXPECT_TRUE(host.has_logged("job healthy: stop asked for by token"));
    EXPECT_TRUE(host.has_logged("(operator) over HTTP from 127.0.0.1:"));
    EXPECT_THAT(ask(post("/api/v1/jobs/healthy/stop", "{}")), StartsWith("HTTP/1.1 409 "));
}

TEST_F(DaemonHttp, OperatorDrainsANode) {
    const std::string answer = ask(post("/api/v1/jobs/healthy/drain", R"({"node":"b"})"));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
    EXPECT_THAT(body_of(answer)["text"].dump(), HasSubstr("node b of job healthy leaves"));
    EXPECT_THAT(ask(post("/api/v1/jobs/healthy/drain", R"({"node":"x"})")),
                StartsWith("HTTP/1.1 409 "));
}

TEST_F(DaemonHttp, NameThatIsNoUtf8IsAnsweredInUtf8) {
    for (const char* target : {"/api/v1/jobs/%ff%fe", "/metrics?job=%ff%fe"}) {
        const std::string answer = ask(get(target));
        EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 404 "), HasSubstr("xff")));
        EXPECT_THAT(answer, Not(HasSubstr("\xff"))) << target;
    }
    EXPECT_EQ(body_of(ask(get("/api/v1/jobs/%ff%fe")))["error"],
              "there is no job \\xff\\xfe; the daemon has healthy");
}

TEST_F(DaemonHttp, LongReasonIsCutBetweenTwoCharacters) {
    std::string reason = "x";
    for (int i = 0; i < 600; ++i) {
        reason += "\u00fc";
    }
    EXPECT_THAT(ask(post("/api/v1/jobs/healthy/stop", json{{"reason", reason}}.dump())),
                StartsWith("HTTP/1.1 200 "));
    const auto closed = a.expect<Closed>();
    ASSERT_TRUE(closed);
    EXPECT_THAT(describe(closed->verdict.reason), saying("\u00fc\u00fc", Not(HasSubstr("\ufffd"))));
}

TEST_F(DaemonHttp, OnlyAQuarantinedNodeIsReleased) {
    const std::string answer = ask(post("/api/v1/jobs/healthy/release", R"({"node":"b"})"));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 409 "));
    EXPECT_EQ(body_of(answer)["done"], false);
    EXPECT_TRUE(host.has_logged("job healthy: release of b asked for by token"));
    expect_healthy();
}

TEST_F(DaemonHttp, ActionsThatAreNoneAreRefused) {
    EXPECT_THAT(ask(post("/api/v1/jobs/healthy/release", "{}")), StartsWith("HTTP/1.1 400 "));
    EXPECT_THAT(ask(post("/api/v1/jobs/healthy/drain", "{}")), StartsWith("HTTP/1.1 400 "));
    EXPECT_THAT(ask(post("/api/v1/jobs/healthy/stop", "[]")), StartsWith("HTTP/1.1 400 "));
    EXPECT_THAT(ask(post("/api/v1/jobs/healthy/stop", std::string(10000, '['))),
                StartsWith("HTTP/1.1 400 "));
    EXPECT_THAT(ask(post("/api/v1/jobs/other/stop", "{}")), StartsWith("HTTP/1.1 404 "));
    EXPECT_THAT(ask(post("/api/v1/jobs/healthy", "{}")), StartsWith("HTTP/1.1 405 "));
    EXPECT_THAT(ask(get("/api/v1/jobs/healthy/stop")), HasSubstr("Allow: POST\r\n"));
    std::string without_token = post("/api/v1/jobs/healthy/stop", "{}");
    const std::string field = bearer({Role::operator_role, ""});
    without_token.erase(without_token.find(field), field.size());
    EXPECT_THAT(ask(without_token), HasSubstr("WWW-Authenticate: "));
    expect_healthy();
}

TEST_F(DaemonHttp, PeerThatSpeaksTlsDoesWhatItsRoleAllows) {
    EXPECT_EQ(body_of(ask_by_tls({Role::observer, ""}, get("/api/v1/jobs")))["jobs"].size(), 1U);
    EXPECT_THAT(ask_by_tls({Role::observer, "other"}, get("/api/v1/jobs/healthy")),
                StartsWith("HTTP/1.1 404 "));
    std::string drain = post("/api/v1/jobs/healthy/drain", R"({"node":"b"})");
    const std::string field = bearer({Role::operator_role, ""});
    drain.erase(drain.find(field), field.size());
    EXPECT_THAT(ask_by_tls({Role::observer, ""}, drain), StartsWith("HTTP/1.1 403 "));
    expect_healthy();
    EXPECT_THAT(ask_by_tls({Role::operator_role, "healthy"}, drain), StartsWith("HTTP/1.1 200 "));
}

class DaemonHttpAndJournal : public ::testing::Test {
   protected:
    std::unique_ptr<DaemonHost> start(bool leads) {
        return std::make_unique<DaemonHost>(loop, DaemonLimits(), std::uint16_t{0},
                                            [&](DaemonSetup& setup) {
                                                testing::with_shelf(shelf, leads)(setup);
                                                setup.credentials.token = token;
                                            });
    }
    std::string ask(const DaemonHost& host, const std::string& what,
                    const std::string& fields = "") {
        Peer client(loop, host.port());
        EXPECT_TRUE(client.send(what + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
                                fields + "\r\n"));
        return client.rest();
    }

    Loop loop;
    Shelf shelf;
    Token token = Token::generate();
};

TEST_F(DaemonHttpAndJournal, DaemonThatStandsByIsReadyAndHasNoJobs) {
    const auto host = start(false);
    shelf.hooks.follow("node7:29400");
    EXPECT_THAT(ask(*host, "GET /readyz"),
                EndsWith("\r\n\r\nready: stands by, another daemon leads\n"));
    const std::string answer = ask(*host, "GET /api/v1/jobs");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
    EXPECT_THAT(answer, HasSubstr("another daemon leads: node7:29400"));
}

TEST_F(DaemonHttpAndJournal, DaemonThatStandsByHasMetricsOfItsOwn) {
    const auto host = start(false);
    EXPECT_THAT(ask(*host, "GET /metrics"),
                AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("\nregroup_daemon_leading 0\n"),
                      Not(HasSubstr("job_id"))));
}

TEST_F(DaemonHttpAndJournal, ViewerOfADaemonThatLosesTheLeadIsDisconnected) {
    const auto host = start(true);
    Peer viewer(loop, host->port());
    viewer.send("GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    viewer.await("event: status");
    shelf.hooks.follow("node7:29400");
    EXPECT_TRUE(viewer.is_closed_by_peer());
}

TEST_F(DaemonHttpAndJournal, AnswerToAnActionWaitsForTheJournal) {
    const auto host = start(true);
    Peer node(loop, host->port());
    node.say(join_of("job", "a", 1));
    ASSERT_TRUE(node.expect<Assign>());
    shelf.slow = true;
    Peer client(loop, host->port());
    client.send(
        "POST /api/v1/jobs/job/stop HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Content-Type: application/json\r\nContent-Length: 2\r\nAuthorization: Bearer " +
        token.text() + "\r\n\r\n{}");
    ASSERT_TRUE(loop.until([&] { return !shelf.waiting.empty(); }));
    shelf.release();
    EXPECT_THAT(client.rest(), HasSubstr("job job is stopped on all its nodes"));
    EXPECT_TRUE(node.expect<Closed>());
}

}  // namespace
}  // namespace regroup::rendezvous
