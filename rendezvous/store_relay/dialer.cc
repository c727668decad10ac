// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_relay/dialer.h"

#include <tuple>
#include <utility>

#include "rendezvous/net/await.h"
#include "rendezvous/net/descriptor.h"
#include "rendezvous/store/peer_socket.h"

namespace regroup::store {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using net::kAwait;

constexpr Duration kConnectLimit = std::chrono::seconds(5);

}  // namespace

asio::awaitable<Result<Dialer::Endpoints>> Dialer::addresses() {
    error_code error;
    const auto numeric = asio::ip::make_address(host_, error);
    if (!error) {
        co_return Endpoints{{numeric, port_}};
    }
    if (!lookup_) {
        lookup_ = std::make_unique<net::NameLookup>(io_, host_, port_);
    }
    co_await lookup_->wait(kConnectLimit);
    if (closed_ || !lookup_->is_done()) {
        co_return Failure(Errc::disconnected, "has no known address: no name server answers");
    }
    const auto answer = std::move(lookup_);
    if (!answer->error().empty()) {
        co_return Failure(Errc::disconnected, "has no known address: " + answer->error());
    }
    co_return answer->found();
}

asio::awaitable<Result<std::unique_ptr<security::Stream>>> Dialer::dial(Instant last) {
    const Result<Endpoints> places = co_await addresses();
    if (!places) {
        co_return places.error();
    }
    error_code error;
    for (const tcp::endpoint& place : *places) {
        if (closed_) {
            break;
        }
        tcp::socket socket(io_);
        socket.open(place.protocol(), error);
        if (error) {
            continue;
        }
        net::set_close_on_exec(socket.native_handle());
        prepare_socket(socket.native_handle());
        stream_ = std::make_unique<security::Stream>(std::move(socket));
        limit_attempt(after(SteadyClock().now(), kConnectLimit));
        std::tie(error) = co_await stream_->socket().async_connect(place, kAwait);
        if (!error && !closed_) {
            limit_attempt(last);
            const Result<void> shaken = co_await stream_->shake_hands(tls_.connection());
            limit_.cancel();
            if (!shaken) {
                co_return shaken.error();
            }
            co_return std::move(stream_);
        }
        limit_.cancel();
    }
    const bool is_late = error == asio::error::operation_aborted;
    co_return Failure(Errc::disconnected,
                      "cannot be reached: " + (is_late ? "no answer in time" : error.message()));
}

void Dialer::limit_attempt(Instant end) {
    limit_.expires_at(end);
    limit_.async_wait([this, alive = std::weak_ptr(alive_)](const error_code& error) {
        if (!error && !alive.expired() && stream_) {
            stream_->close();
        }
    });
}

void Dialer::close() {
    closed_ = true;
    lookup_.reset();
    limit_.cancel();
    if (stream_) {
        stream_->close();
    }
}

}  // namespace regroup::store
