// SPDX-License-Identifier: Apache-2.0
//
// HTTP clients that are slow, greedy or hostile: from a host without a token, with an observer's
// token, and pages of other sites in a browser of the job's own user.
#include <thread>
#include <unistd.h>

#include "tests/attack/strangers.h"
#include "tests/support/matchers.h"

namespace regroup::attack {
namespace {

using security::Role;
using security::Token;

constexpr std::size_t kHttpClientsConnections = 300;
constexpr std::size_t kHttpClientsMemoryMax = std::size_t{128} << 20U;

class HttpClients : public StrangersTest<kHttpClientsConnections, kHttpClientsMemoryMax> {
   protected:
    static std::string bearer(const security::Scope& scope) {
        return "Authorization: Bearer " + victim_->token().limited_to(scope).text() + "\r\n";
    }
    /// "GET /path" or the like, with a field Host that is right.
    static std::string request(const std::string& what, const std::string& fields = "",
                               const std::string& body = "") {
        return what + " HTTP/1.1\r\nHost: " + victim_->daemon().text() + "\r\n" + fields +
               (body.empty() ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") +
               "\r\n" + body;
    }
    /// "200"; empty without an answer.
    static std::string status_of_answer(Siege& siege, const std::string& bytes) {
        const int fd = siege.dial(victim_->daemon(), bytes);
        const std::string line = Siege::receive(fd, 12);
        ::close(fd);
        return line.size() == 12 ? line.substr(9) : "";
    }
};

TEST_F(HttpClients, SlowRequestsHoldNothingUp) {
    const std::string bytes = request("GET /healthz", "A: " + std::string(4000, 'a') + "\r\n");
    endure([&](Siege& siege) {
        std::vector<int> slow;
        for (std::size_t i = 0; i < kHttpClientsConnections; ++i) {
            slow.push_back(siege.dial(victim_->daemon(), "GET /"));
        }
        for (std::size_t at = 5; siege.goes_on() && at < bytes.size(); ++at) {
            for (const int fd : slow) {
                Siege::send(fd, std::string_view(bytes).substr(at, 1));
            }
        }
        return "";
    });
}

TEST_F(HttpClients, LargeHeadsAndBodiesAreRefused) {
    endure_connections_with("GET /healthz HTTP/1.1\r\nA: " + std::string(20000, 'a'));
    std::string fields;
    for (int i = 0; i < 3000; ++i) {
        fields += "A: a\r\n";
    }
    endure_connections_with(request("GET /healthz", fields));
    endure_connections_with(request("POST /api/v1/jobs/victim/stop", "", std::string(100000, '{')));
}

TEST_F(HttpClients, RequestsWithoutPauseLeaveOthersTheirTurn) {
    std::string requests;
    for (int i = 0; i < 500; ++i) {
        requests += request("GET /healthz");
    }
    endure([&](Siege& siege) {
        std::vector<int> all;
        for (std::size_t i = 0; i < 20; ++i) {
            all.push_back(siege.dial(victim_->daemon()));
        }
        std::string answer;
        while (siege.goes_on()) {
            for (const int fd : all) {
                Siege::send(fd, requests);
                answer = Siege::receive(fd, 100000, milliseconds(1));
            }
        }
        return "";
    });
}

TEST_F(HttpClients, ConnectionsDisplaceOnlyEachOther) {
    endure([&](Siege& siege) -> std::string {
        // A viewer with a token is not displaced by those without one.
        const int viewer = siege.dial(victim_->daemon(),
                                      request("GET /api/v1/stream", bearer({Role::observer, ""})));
        if (Siege::receive(viewer, 12) != "HTTP/1.1 200") {
            return "the observer's token is not accepted";
        }
        for (std::size_t i = 0; i < 2 * kHttpClientsConnections; ++i) {
            siege.dial(victim_->daemon(), "GET /");
        }
        while (siege.goes_on()) {
            siege.dial(victim_->daemon(), request("GET /healthz"));
        }
        Siege::receive(viewer, std::size_t{1} << 20U, milliseconds(200));
        return Siege::receive(viewer, 1, seconds(3)).empty() ? "the viewer was displaced" : "";
    });
    EXPECT_THAT(victim_->daemon_log(),
                HasSubstr("the longest idle or slowest of 256 HTTP clients"));
}

TEST_F(HttpClients, ViewersThatDoNotReadAreBounded) {
    const std::string stream = request("GET /api/v1/stream", bearer({Role::observer, ""}));
    endure([&](Siege& siege) {
        for (std::size_t i = 0; i < 100; ++i) {
            siege.dial(victim_->daemon(), stream);
        }
        siege.hold();
        return "";
    });
}

TEST_F(HttpClients, StrangersSeeNothing) {
    endure([&](Siege& siege) -> std::string {
        const std::string wrong = "Authorization: Bearer " +
                                  Token::generate().limited_to({Role::observer, ""}).text() +
                                  "\r\n";
        const std::string of_other_job = bearer({Role::observer, "mine"});
        while (siege.goes_on()) {
            for (const auto& [bytes, status] : std::vector<std::pair<std::string, std::string>>{
                     {request("GET /"), "200"},
                     {request("GET /api/v1/jobs"), "401"},
                     {request("GET /api/v1/stream"), "401"},
                     {request("GET /metrics"), "401"},
                     {request("GET /api/v1/jobs", wrong), "401"},
                     {request("GET /api/v1/jobs/victim", of_other_job), "404"},
                     {request("GET /api/v1/jobs", bearer({Role::node, ""})), "403"},
                     {request("GET /api/v1/jobs", bearer({Role::operator_role, ""})), "403"},
                     {request("POST /api/v1/jobs/victim/stop", bearer({Role::observer, ""}), "{}"),
                      "403"},
                     {request("DELETE /api/v1/jobs/victim"), "405"},
                     {request("GET /healthz"), "200"}}) {
                if (const std::string got = status_of_answer(siege, bytes); got != status) {
                    return bytes.substr(0, bytes.find('\r')) + ": " + got;
                }
            }
        }
        return "";
    });
}

TEST_F(HttpClients, PagesOfOtherSitesGetNothingFromTheUsersBrowser) {
    victim_->endure(kFirstHost, 0, [&](Siege& siege) -> std::string {
        const auto with_host = [](std::string bytes, const std::string& host) {
            const std::string own = victim_->daemon().text();
            return bytes.replace(bytes.find(own), own.size(), host);
        };
        const std::string json = "Content-Type: application/json\r\n";
        const std::string own = "Origin: http://" + victim_->daemon().text() + "\r\n";
        const std::string stop = "POST /api/v1/jobs/victim/stop";
        while (siege.goes_on()) {
            for (const auto& [bytes, status] : std::vector<std::pair<std::string, std::string>>{
                     {request("GET /api/v1/jobs"), "200"},
                     {with_host(request("GET /api/v1/jobs"), "evil.example.org:29400"), "421"},
                     {request("GET /api/v1/jobs", "Origin: http://evil.example.org\r\n"), "403"},
                     {request("GET /api/v1/jobs", "Sec-Fetch-Site: cross-site\r\n"), "403"},
                     {request(stop, json + own, "{}"), "401"},
                     {request(stop, json, "{}"), "401"},
                     {request(stop, "Content-Type: text/plain\r\n", "{}"), "401"},
                     {request(stop,
                              json + "Origin: http://evil.example.org\r\n" +
                                  bearer({Role::operator_role, ""}),
                              "{}"),
                      "403"},
                     {request(
                          stop,
                          own + "Content-Type: text/plain\r\n" + bearer({Role::operator_role, ""}),
                          "{}"),
                      "415"},
                     {request(stop, json + own + bearer({Role::node, ""}), "{}"), "403"}}) {
                if (const std::string got = status_of_answer(siege, bytes); got != status) {
                    return bytes.substr(0, bytes.find('\r')) + ": " + got + ", not " + status;
                }
            }
        }
        return "";
    });
}

}  // namespace
}  // namespace regroup::attack
