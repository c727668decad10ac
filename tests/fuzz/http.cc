// SPDX-License-Identifier: Apache-2.0
//
// Two HTTP clients of a door: the daemon's user, and a stranger. They do not know its token. Their
// bytes arrive interleaved and in pieces, by chance as requests. The clock moves. Afterwards the
// door still answers an honest client.
#include <array>
#include <fcntl.h>
#include <memory>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "rendezvous/http/assets.h"
#include "rendezvous/http/door.h"
#include "tests/fuzz/fuzz.h"

namespace regroup::fuzz_http {
namespace {

using boost::asio::ip::tcp;

constexpr std::size_t kClients = 2;
constexpr int kEventsMax = 100;

class MovedClock final : public Clock {
   public:
    [[nodiscard]] Instant now() const noexcept override { return now_; }
    void pass(Duration time) { now_ += time; }

   private:
    Instant now_ = SteadyClock().now();
};

/// Checks what it is asked: nobody has a token, so nobody may act, and only the user may read.
class CheckedPages final : public http::Pages {
   public:
    [[nodiscard]] bool is_public(const std::string& path) const override {
        return path == "/healthz";
    }
    void answer(const http::Request& request, Reply reply) override {
        fuzz::require(request.method == http::Request::Method::get, "nobody may act");
        fuzz::require(request.peer.name == "user ann" || is_public(request.path),
                      "strangers see public paths only");
        fuzz::require(request.path.starts_with('/'), "a path begins with a slash");
        fuzz::require(request.path.find('\0') == std::string::npos, "a path is text");
        if (request.path == "/api/v1/stream") {
            http::Answer stream;
            stream.stream = [this](const std::shared_ptr<http::Viewer>& viewer) {
                viewers.push_back(viewer);
            };
            reply(std::move(stream));
        } else if (request.path == "/late") {
            late = std::move(reply);
        } else if (const http::Answer* file = http::asset(request.path)) {
            reply(*file);
        } else {
            reply(http::sentence(200, "page of " + request.path));
        }
    }

    std::vector<std::weak_ptr<http::Viewer>> viewers;
    Reply late;
};

class Story {
   public:
    explicit Story(fuzz::Input& input)
        : input_(input),
          door_({io_, clock_, pages_, credentials(), hosts_}, http::Limits(),
                [](const std::string&, const std::string&, const std::string&) {}) {}
    ~Story() {
        for (int& fd : fds_) {
            hang_up(fd);
        }
    }
    Story(const Story&) = delete;
    Story& operator=(const Story&) = delete;

    void run() {
        for (int events = 0; events < kEventsMax && !input_.empty(); ++events) {
            one_event();
            io_.restart();
            io_.poll();
        }
        ask_honestly();
    }

   private:
    /// One for all stories: to make a token takes time.
    static const security::Credentials& credentials() {
        static const security::Credentials all = [] {
            security::Credentials made;
            made.token = security::Token::generate();
            return made;
        }();
        return all;
    }

    static void hang_up(int& fd) {
        if (fd >= 0) {
            ::close(std::exchange(fd, -1));
        }
    }

    void connect(int& fd, bool is_owner) {
        std::array<int, 2> ends{};
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) !=
            0) {
            fuzz::fail("there is no socket");
        }
        tcp::socket socket(io_);
        socket.assign(tcp::v4(), ends[0]);
        fd = ends[1];
        http::Client client;
        client.peer = "10.0.0.4:1";
        client.address = "10.0.0.4";
        client.objection = "no";
        if (is_owner) {
            client.proven = security::Peer{security::Scope(), "user ann"};
        }
        door_.adopt(security::Stream(std::move(socket)), "", std::move(client));
    }

    void one_event() {
        const std::uint8_t kind = input_.byte();
        const std::size_t which = kind % kClients;
        int& fd = fds_.at(which);
        if (fd < 0) {
            connect(fd, which == 0);
        }
        switch (kind / kClients % 8) {
            case 0:
                hang_up(fd);
                break;
            case 1:
                send(fd, input_.bytes(input_.byte()));
                break;
            case 2:
                clock_.pass(std::chrono::seconds(input_.byte()));
                door_.sweep();
                break;
            case 3:
                for (const auto& viewer : pages_.viewers) {
                    if (const auto open = viewer.lock()) {
                        open->push(std::make_shared<const std::string>(input_.text(100)));
                        open->show(std::make_shared<const std::string>(std::size_t{1} << 20U, 'x'));
                    }
                }
                break;
            case 4:
                if (pages_.late) {
                    std::exchange(pages_.late, nullptr)(http::sentence(200, "late"));
                }
                break;
            case 5:
                receive(fd);
                break;
            default:
                send(fd, request());
        }
    }

    /// One that is right in most parts.
    std::string request() {
        std::string text(input_.one_of({"GET ", "HEAD ", "POST ", "PUT ", "OPTIONS ", "get "}));
        text += input_.one_of({"/", "/healthz", "/api/v1/jobs", "/api/v1/stream?job=a", "/late",
                               "/api/v1/jobs/a/stop", "/%2e%2e/a", "*", "http://localhost/"});
        text += input_.chance(32) ? input_.text(64) : "";
        text += input_.chance(16) ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n";
        text += std::string("Host: ") +
                input_.one_of({"localhost", "node0:29400", "[::1]:1", "evil.org", "", "1.2.3.4"}) +
                "\r\n";
        for (std::size_t fields = input_.below(4); fields > 0; --fields) {
            text += input_.one_of(
                {"Origin: ", "Sec-Fetch-Site: ", "Sec-Fetch-Mode: ", "Authorization: Bearer ",
                 "Authorization: Basic ", "Content-Type: ", "Content-Length: ",
                 "Transfer-Encoding: ", "Connection: ", "Expect: ", "If-None-Match: ", "Host: "});
            text += input_.one_of({"http://localhost", "cross-site", "navigate", "application/json",
                                   "0", "2", "17000", "chunked", "close", "100-continue", "upgrade",
                                   "regroup1.operator.00000000.", "bm9ib2R5OnRva2Vu"});
            text += input_.chance(64) ? input_.text(200) : "";
            text += "\r\n";
        }
        text += "\r\n";
        text += input_.chance(64) ? input_.text(100) : "{}";
        return text.substr(0, input_.chance(32) ? input_.below(text.size()) : text.size());
    }

    static void send(int fd, std::string_view bytes) {
        (void)::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    static std::string receive(int fd) {
        std::string bytes(std::size_t{64} << 10U, '\0');
        const ssize_t count = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
        bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
        return bytes;
    }

    void ask_honestly() {
        int fd = -1;
        connect(fd, true);
        send(fd, "GET /end HTTP/1.1\r\nHost: localhost\r\n\r\n");
        io_.restart();
        io_.poll();
        const std::string answer = receive(fd);
        hang_up(fd);
        fuzz::require(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("page of /end\n"),
            "an honest client is answered");
    }

    fuzz::Input& input_;
    boost::asio::io_context io_{1};
    MovedClock clock_;
    CheckedPages pages_;
    const std::set<std::string> hosts_{"node0"};
    http::Door door_;
    std::array<int, kClients> fds_{-1, -1};
};

std::vector<std::string> seeds() {
    return fuzz::random_seeds();
}

void test(const std::uint8_t* bytes, std::size_t count) {
    fuzz::Input input(bytes, count);
    Story(input).run();
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_http
