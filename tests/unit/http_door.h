// SPDX-License-Identifier: Apache-2.0
//
// The door over real sockets, with pages of the test behind it.
#pragma once

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

namespace regroup::http::testing {

namespace asio = boost::asio;
using asio::ip::tcp;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

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
        io_.run_one_for(milliseconds(1));
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
    HttpDoor() { open({}); }
    /// A new door in place of the present one.
    void open(const Limits& its_limits) {
        limits = its_limits;
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
    std::unique_ptr<Browser> connect_viewer(const std::string& name = "user ann") {
        auto viewer = connect_as(name);
        viewer->get("/stream");
        viewer->await("\r\n\r\n");
        return viewer;
    }
    /// One that has had the page /a.
    std::unique_ptr<Browser> connect_reader(const std::string& name = "user ann") {
        auto reader = connect_as(name);
        reader->get("/a");
        reader->await("page /a\n");
        return reader;
    }
    /// One that does not read what it asked for.
    std::unique_ptr<Browser> connect_slow(const std::string& name = "user ann") {
        auto slow = connect_as(name);
        slow->reads = false;
        slow->get("/big");
        EXPECT_TRUE(slow->stays_open());
        return slow;
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
    Limits limits;
    std::string log;
    std::unique_ptr<Door> door;
    tcp::acceptor acceptor{io, tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0)};
};

}  // namespace regroup::http::testing
