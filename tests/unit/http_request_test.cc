// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gtest/gtest.h>

#include "rendezvous/http/pages.h"
#include "rendezvous/http/request_head.h"
#include "rendezvous/http/response.h"
#include "tests/support/matchers.h"

namespace regroup::http {
namespace {

using State = RequestReader::State;

constexpr std::size_t kHeadMax = 1024;
constexpr std::size_t kBodyMax = 100;

TEST(HttpRequest, IsReadByteByByte) {
    const std::string bytes =
        "POST /api/v1/jobs/a/stop HTTP/1.1\r\nHost: node0:29400\r\nContent-Type: "
        "application/json\r\n"
        "Content-Length: 2\r\n\r\n{}";
    RequestReader reader(kHeadMax, kBodyMax);
    EXPECT_EQ(reader.state(), State::idle);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        ASSERT_NE(reader.state(), State::complete) << i;
        ASSERT_NE(reader.state(), State::failed) << i << ": " << reader.why();
        reader.feed(bytes.substr(i, 1));
    }
    ASSERT_EQ(reader.state(), State::complete);
    EXPECT_EQ(reader.head().method, RequestHead::Method::post);
    EXPECT_EQ(reader.head().target, "/api/v1/jobs/a/stop");
    EXPECT_EQ(reader.head().host, "node0:29400");
    EXPECT_EQ(reader.body(), "{}");
    EXPECT_TRUE(reader.head().keep_alive);
}

TEST(HttpRequest, PipelinedRequestsWaitForEachOther) {
    RequestReader reader(kHeadMax, kBodyMax);
    reader.feed("GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\nGET /c");
    ASSERT_EQ(reader.state(), State::complete);
    EXPECT_EQ(reader.head().target, "/a");
    reader.next();
    ASSERT_EQ(reader.state(), State::complete);
    EXPECT_EQ(reader.head().target, "/b");
    reader.next();
    EXPECT_EQ(reader.state(), State::head);
}

TEST(HttpRequest, ChunkedBodyIsRead) {
    RequestReader reader(kHeadMax, kBodyMax);
    reader.feed(
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
        "chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n"
        "\r\n");
    ASSERT_EQ(reader.state(), State::complete);
    EXPECT_EQ(reader.body(), "abcd");
}

struct Wrong {
    std::string bytes;
    unsigned status;
};

TEST(HttpRequest, WrongRequestsFailWithTheirStatus) {
    const std::string head = "GET / HTTP/1.1\r\nHost: x\r\n";
    const std::string post = "POST / HTTP/1.1\r\nHost: x\r\n";
    const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
    for (const Wrong& wrong : {
             Wrong{"GET / HTTP/1.1\r\nbad line\r\n\r\n", 400},
             Wrong{"GET /\x01 HTTP/1.1\r\n\r\n", 400},
             Wrong{"GET / FTP/1.1\r\n\r\n", 400},
             Wrong{head + "A: " + std::string(kHeadMax, 'a') + "\r\n\r\n", 431},
             Wrong{std::string("GET /") + std::string(2 * kHeadMax, 'a'), 431},
             Wrong{post + "Content-Length: 101\r\n\r\n", 413},
             Wrong{post + "Content-Length: 99999999999999999999999\r\n\r\n", 400},
             Wrong{post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
             Wrong{post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
             Wrong{post + "Transfer-Encoding: gzip\r\n\r\nGET /b HTTP/1.1\r\n", 400},
             Wrong{post + "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400},
             Wrong{post + "Transfer-Encoding: gzip\r\nContent-Length: 1\r\n\r\na", 400},
             Wrong{chunked + "65\r\n" + std::string(101, 'a') + "\r\n0\r\n\r\n", 413},
             Wrong{chunked + "zz\r\n", 400},
             Wrong{chunked + "1;" + std::string(2 * kHeadMax, 'a'), 431},
         }) {
        RequestReader reader(kHeadMax, kBodyMax);
        reader.feed(wrong.bytes);
        ASSERT_EQ(reader.state(), State::failed) << wrong.bytes.substr(0, 100);
        EXPECT_EQ(reader.status(), wrong.status) << reader.why();
        EXPECT_FALSE(reader.why().empty());
    }
}

TEST(HttpRequest, TargetIsSplitAndUnescaped) {
    const auto target = parse_target("/api/v1/jobs/night%20run?job=a%2Fb&c=d+e&f&g=#part");
    ASSERT_TRUE(target);
    EXPECT_EQ(target->path, "/api/v1/jobs/night run");
    EXPECT_EQ(target->query.at("job"), "a/b");
    EXPECT_EQ(target->query.at("c"), "d e");
    EXPECT_EQ(target->query.at("f"), "");
    EXPECT_EQ(target->query.at("g"), "");
}

TEST(HttpRequest, TargetsThatAreNoPathAreRefused) {
    for (const char* target : {"", "*", "http://node0/", "a", "/%", "/%2", "/%zz", "/%00",
                               "/a/../b", "/%2e%2e/b", "/a?b=%", "/.."}) {
        EXPECT_FALSE(parse_target(target)) << target;
    }
}

TEST(HttpResponse, SaysWhatABrowserMayDo) {
    const std::string head = response_head(sentence(200, "yes"), true, false);
    EXPECT_THAT(head,
                saying("HTTP/1.1 200 OK\r\n", "Content-Length: 4\r\n", "Connection: keep-alive\r\n",
                       "Cache-Control: no-store\r\n",
                       "Content-Security-Policy: default-src 'none'; script-src 'self'; "
                       "style-src 'self'; img-src 'self' data:; connect-src 'self'; "
                       "base-uri 'none'; frame-ancestors 'none'; form-action 'none'\r\n",
                       "X-Content-Type-Options: nosniff\r\n", "Referrer-Policy: no-referrer\r\n",
                       Not(HasSubstr("Access-Control")), Not(HasSubstr("WWW-Authenticate"))));
    EXPECT_THAT(response_head(sentence(401, "no"), true, true),
                HasSubstr("WWW-Authenticate: Bearer realm=\"regroup\""));
}

TEST(HttpResponse, EventHasOneFieldForEachLine) {
    EXPECT_EQ(event_text("status", "{}"), "event: status\ndata: {}\n\n");
    EXPECT_EQ(event_text("job", "a\nb"), "event: job\ndata: a\ndata: b\n\n");
}

TEST(HttpResponse, ErrorIsJsonWhateverItSays) {
    EXPECT_EQ(*error_json(404, "no \"job\"\n\\").body,
              "{\"error\":\"no \\\"job\\\"\\\\x0a\\\\\"}\n");
    EXPECT_EQ(*error_json(404, "no \xff\xfe\t").body, "{\"error\":\"no \\\\xff\\\\xfe\\t\"}\n");
}

TEST(HttpResponse, SentenceIsPrintableWhateverItSays) {
    EXPECT_EQ(*sentence(404, "no job \xff\n\x1b[2J").body, "no job \\xff\\x0a\\x1b[2J\n");
}

}  // namespace
}  // namespace regroup::http
