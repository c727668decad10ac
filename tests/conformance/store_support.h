// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <future>
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
#include "rendezvous/store/store_client.h"
#include "rendezvous/store_server/store_server.h"

namespace regroup::store {

/// Longer than any operation here takes on a busy machine: a wait of this length has failed.
constexpr std::chrono::seconds kPatience{60};

/// A store server on a port of 127.0.0.1, run by a thread of its own.
class ServerThread {
   public:
    explicit ServerThread(Limits limits = {}) {
        auto acceptor = net::listen_on(io_, "127.0.0.1", 0);
        if (!acceptor) {
            ADD_FAILURE() << acceptor.error().detail;
            std::abort();
        }
        port_ = acceptor->local_endpoint().port();
        StoreServer::Options options;
        options.limits = limits;
        options.on_refusal = [this](const std::string& sentence) {
            const std::lock_guard lock(mutex_);
            refusals_.push_back(sentence);
        };
        server_ = std::make_unique<StoreServer>(io_, std::move(options));
        server_->serve(*std::move(acceptor));
        thread_ = std::thread([this] { io_.run(); });
    }
    ~ServerThread() {
        on_server([this](StoreServer&) { server_.reset(); });
        work_.reset();
        thread_.join();
    }

    [[nodiscard]] std::uint16_t port() const { return port_; }
    [[nodiscard]] boost::asio::io_context& io() { return io_; }
    [[nodiscard]] std::vector<std::string> refusals() {
        const std::lock_guard lock(mutex_);
        return refusals_;
    }

    /// Runs `work` on the server's thread and waits for its end.
    template <class Work>
    void on_server(Work work) {
        std::promise<void> done;
        boost::asio::post(io_, [&] {
            work(*server_);
            done.set_value();
        });
        done.get_future().wait();
    }

    std::unique_ptr<StoreClient> connect() {
        auto client = std::make_unique<StoreClient>();
        const auto connected = client->connect("127.0.0.1", port_, kPatience);
        EXPECT_TRUE(connected) << connected.error().detail;
        return client;
    }

   private:
    boost::asio::io_context io_{1};
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
        io_.get_executor()};
    std::uint16_t port_ = 0;
    std::mutex mutex_;
    std::vector<std::string> refusals_;
    std::unique_ptr<StoreServer> server_;
    std::thread thread_;
};

}  // namespace regroup::store
