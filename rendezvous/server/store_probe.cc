// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/store_probe.h"

#include <array>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "rendezvous/net/await.h"
#include "rendezvous/net/descriptor.h"
#include "rendezvous/store/store_wire.h"

namespace regroup::rendezvous {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

using net::kAwait;

struct Probe {
    Probe(asio::io_context& io, const tcp::endpoint& endpoint_in)
        : endpoint(endpoint_in), socket(io), timer(io) {
        // The only request that all those releases answer in the same way and that changes nothing.
        store::encode({store::Opcode::validate, {}, store::kMagic}, question);
        store::encode({store::Opcode::num_keys, {}}, question);
    }

    tcp::endpoint endpoint;
    tcp::socket socket;
    asio::steady_timer timer;
    std::string question;
    std::array<char, 8> answer{};
    std::function<void(bool)> done;
};

asio::awaitable<bool> ask(std::shared_ptr<Probe> probe) {
    const auto [not_connected] = co_await probe->socket.async_connect(probe->endpoint, kAwait);
    if (not_connected) {
        co_return false;
    }
    net::set_close_on_exec(probe->socket.native_handle());
    const auto [not_sent, sent] =
        co_await asio::async_write(probe->socket, asio::buffer(probe->question), kAwait);
    if (not_sent) {
        co_return false;
    }
    const auto [not_received, received] =
        co_await asio::async_read(probe->socket, asio::buffer(probe->answer), kAwait);
    constexpr std::int64_t kKeysMax = 1 << 30;
    const std::int64_t keys_count = store::read_i64(probe->answer.data());
    co_return !not_received && keys_count >= 0 && keys_count < kKeysMax;
}

asio::awaitable<void> run(std::shared_ptr<Probe> probe) {
    const bool is_store = co_await ask(probe);
    probe->timer.cancel();
    probe->done(is_store);
}

}  // namespace

void probe_store(asio::io_context& io, const tcp::endpoint& endpoint, Duration limit,
                 std::function<void(bool is_store)> done) {
    auto probe = std::make_shared<Probe>(io, endpoint);
    probe->done = std::move(done);
    probe->timer.expires_after(limit);
    probe->timer.async_wait([probe](ErrorCode error) {
        if (!error) {
            ErrorCode ignored;
            probe->socket.close(ignored);
        }
    });
    asio::co_spawn(io, run(probe), asio::detached);
}

}  // namespace regroup::rendezvous
