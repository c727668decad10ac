// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

#include "rendezvous/net/listen.h"
#include "rendezvous/security/tls.h"
#include "rendezvous/store/store_client.h"
#include "rendezvous/store_relay/relay_client.h"
#include "rendezvous/store_relay/relay_server.h"
#include "rendezvous/store_server/store_server.h"
#include "tests/conformance/store_support.h"

namespace regroup::store {

inline const std::string kName = "regroup store, round 7";

inline const security::Key& test_key() {
    static const security::Key key = security::Key::random();
    return key;
}

/// An event loop in a thread of its own.
class LoopThread {
   public:
    LoopThread() : thread_([this] { io_.run(); }) {}
    ~LoopThread() {
        work_.reset();
        thread_.join();
    }

    [[nodiscard]] boost::asio::io_context& io() { return io_; }

    /// Runs `work` on the loop's thread and returns what it returns.
    template <class Work>
    auto on_loop(Work work) {
        // Shared: the loop may still use it when the result is there.
        const auto task = std::make_shared<std::packaged_task<decltype(work())()>>(std::move(work));
        auto done = task->get_future();
        boost::asio::post(io_, [task] { (*task)(); });
        return done.get();
    }

    /// Collects sentences of any thread.
    [[nodiscard]] auto collector() {
        return [this](const std::string& sentence) {
            const std::lock_guard lock(mutex_);
            sentences_.push_back(sentence);
        };
    }
    [[nodiscard]] std::vector<std::string> sentences() {
        const std::lock_guard lock(mutex_);
        return sentences_;
    }

   private:
    boost::asio::io_context io_{1};
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
        io_.get_executor()};
    std::mutex mutex_;
    std::vector<std::string> sentences_;
    std::thread thread_;
};

inline boost::asio::ip::tcp::acceptor listen(boost::asio::io_context& io, std::uint16_t port = 0) {
    auto acceptor = net::listen_on(io, "127.0.0.1", port);
    if (!acceptor) {
        ADD_FAILURE() << acceptor.error().detail;
        std::abort();
    }
    return std::move(*acceptor);
}

/// The store of a round, at the agent of group rank 0.
class StoreNode {
   public:
    explicit StoreNode(Limits limits = {}, RelayServer::Options options = {})
        : limits_(limits), options_(std::move(options)), offered_(listen(loop_.io())) {
        port_ = offered_->local_endpoint().port();
    }
    ~StoreNode() { end(); }

    /// Begins the round.
    StoreNode& serve(const std::string& name = kName) {
        loop_.on_loop([&] {
            StoreServer::Options options;
            options.limits = limits_;
            options.on_refusal = loop_.collector();
            server_ = std::make_unique<StoreServer>(loop_.io(), std::move(options));
            RelayServer::Options relay = options_;
            relay.on_refusal = loop_.collector();
            relay_ = std::make_unique<RelayServer>(loop_.io(), *server_,
                                                   security::Tls::server(test_key(), name),
                                                   std::move(*offered_), std::move(relay));
            offered_.reset();
        });
        return *this;
    }
    /// As if the agent had died.
    void end() {
        loop_.on_loop([&] {
            relay_.reset();
            server_.reset();
            offered_.reset();
        });
    }
    void offer_again() {
        loop_.on_loop([&] { offered_ = listen(loop_.io(), port_); });
    }

    [[nodiscard]] std::uint16_t port() const { return port_; }
    [[nodiscard]] std::size_t connections() {
        return loop_.on_loop([&] { return relay_->connections_count(); });
    }
    [[nodiscard]] std::size_t handshakes() {
        return loop_.on_loop([&] { return relay_->handshakes_count(); });
    }
    [[nodiscard]] std::size_t clients() {
        return loop_.on_loop([&] { return server_->clients_count(); });
    }
    [[nodiscard]] std::vector<std::string> sentences() { return loop_.sentences(); }

   private:
    LoopThread loop_;
    const Limits limits_;
    const RelayServer::Options options_;
    std::optional<boost::asio::ip::tcp::acceptor> offered_;
    std::uint16_t port_ = 0;
    std::unique_ptr<StoreServer> server_;
    std::unique_ptr<RelayServer> relay_;
};

/// The relay of another node.
class RelayNode {
   public:
    RelayNode(LoopThread& loop, std::uint16_t server, RelayClient::Options options = {},
              const std::string& name = kName, const security::Key& key = test_key())
        : loop_(loop) {
        loop_.on_loop([&] {
            auto acceptor = listen(loop_.io());
            port_ = acceptor.local_endpoint().port();
            options.on_trouble = loop_.collector();
            relay_ = std::make_unique<RelayClient>(
                loop_.io(), std::move(acceptor), RelayClient::Server{"127.0.0.1", server},
                security::Tls::client(key, name), std::move(options));
        });
    }
    ~RelayNode() {
        loop_.on_loop([&] { relay_.reset(); });
    }
    RelayNode(const RelayNode&) = delete;
    RelayNode& operator=(const RelayNode&) = delete;

    [[nodiscard]] std::uint16_t port() const { return port_; }
    [[nodiscard]] std::size_t workers() {
        return loop_.on_loop([&] { return relay_->workers_count(); });
    }
    std::unique_ptr<StoreClient> connect() {
        auto client = std::make_unique<StoreClient>();
        const auto connected = client->connect("127.0.0.1", port_, kPatience);
        EXPECT_TRUE(connected) << connected.error().detail;
        return client;
    }

   private:
    LoopThread& loop_;
    std::uint16_t port_ = 0;
    std::unique_ptr<RelayClient> relay_;
};

/// Connects to `port` of this host, with reads that fail after a while.
class RawSocket {
   public:
    explicit RawSocket(std::uint16_t port) {
        socket_.connect({boost::asio::ip::address_v4::loopback(), port});
        const timeval patience{kPatience.count(), 0};
        ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    }

    void send(std::string_view bytes) {
        boost::system::error_code ignored;
        boost::asio::write(socket_, boost::asio::buffer(bytes), ignored);
    }
    /// As many bytes as asked for, or fewer when the connection ends before.
    std::string receive(std::size_t count) {
        std::string bytes(count, '\0');
        const ssize_t got =
            ::recv(socket_.native_handle(), bytes.data(), bytes.size(), MSG_WAITALL);
        bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
        return bytes;
    }
    /// True when the connection ends, whatever comes before.
    bool is_closed() {
        char bytes[4096];
        ssize_t got = 1;
        while (got > 0) {
            got = ::recv(socket_.native_handle(), bytes, sizeof bytes, 0);
        }
        return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    }

   private:
    boost::asio::io_context io_;
    boost::asio::ip::tcp::socket socket_{io_};
};

}  // namespace regroup::store
