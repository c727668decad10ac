// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/etcd_client.h"

#include <fcntl.h>
#include <optional>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "rendezvous/base/ensure.h"

namespace regroup::journal {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using nlohmann::json;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
// A page of entries, each of which is at most a frame and a third.
constexpr std::uint64_t kAnswerBytesMax = std::uint64_t{256} << 20U;

}  // namespace

namespace {

/// A DNS look-up cannot be cancelled, only abandoned: callers wait on the timer.
struct Lookup {
    explicit Lookup(asio::io_context& io) : resolver(io), timer(io) {}

    tcp::resolver resolver;
    asio::steady_timer timer;
    ErrorCode error = beast::error::timeout;
    tcp::resolver::results_type found;
};

}  // namespace

struct EtcdClient::Connection {
    Connection(asio::io_context& io_in, std::vector<rendezvous::Endpoint> endpoints_in)
        : io(io_in), endpoints(std::move(endpoints_in)) {}

    static asio::awaitable<ErrorCode> connect(std::shared_ptr<Connection> self, Duration limit);
    static asio::awaitable<ErrorCode> exchange(std::shared_ptr<Connection> self,
                                               http::request<http::string_body>* request,
                                               http::response<http::string_body>* response);

    [[nodiscard]] const rendezvous::Endpoint& endpoint() const { return endpoints[next]; }
    void drop() {
        stream.reset();
        next = (next + 1) % endpoints.size();
    }

    asio::io_context& io;
    const std::vector<rendezvous::Endpoint> endpoints;
    std::size_t next = 0;
    std::shared_ptr<Lookup> lookup;  // While a connection is being opened.
    std::unique_ptr<beast::tcp_stream> stream;
    beast::flat_buffer buffer;
    bool closed = false;
};

EtcdClient::EtcdClient(asio::io_context& io, std::vector<rendezvous::Endpoint> endpoints)
    : connection_(std::make_shared<Connection>(io, std::move(endpoints))) {
    ENSURE(!connection_->endpoints.empty());
}

EtcdClient::~EtcdClient() {
    close();
}

void EtcdClient::close() {
    connection_->closed = true;
    if (connection_->lookup) {
        connection_->lookup->timer.cancel();
    }
    if (connection_->stream) {
        connection_->stream->close();
    }
}

asio::awaitable<ErrorCode> EtcdClient::Connection::connect(std::shared_ptr<Connection> self,
                                                           Duration limit) {
    const rendezvous::Endpoint endpoint = self->endpoint();
    self->buffer.clear();
    const auto lookup = std::make_shared<Lookup>(self->io);
    self->lookup = lookup;
    lookup->timer.expires_after(limit);
    lookup->resolver.async_resolve(
        endpoint.host, std::to_string(endpoint.port),
        [lookup](ErrorCode resolve_error, tcp::resolver::results_type found) {
            lookup->error = resolve_error;
            lookup->found = std::move(found);
            lookup->timer.cancel();
        });
    static_cast<void>(co_await lookup->timer.async_wait(kAwait));
    lookup->resolver.cancel();
    self->lookup.reset();
    if (lookup->error || self->closed) {
        co_return lookup->error ? lookup->error : ErrorCode(asio::error::operation_aborted);
    }
    const auto [error, reached] = co_await self->stream->async_connect(lookup->found, kAwait);
    if (error) {
        co_return error;
    }
    ErrorCode ignored;
    self->stream->socket().set_option(tcp::no_delay(true), ignored);
    ::fcntl(self->stream->socket().native_handle(), F_SETFD, FD_CLOEXEC);
    co_return ErrorCode();
}

asio::awaitable<ErrorCode> EtcdClient::Connection::exchange(
    std::shared_ptr<Connection> self, http::request<http::string_body>* request,
    http::response<http::string_body>* response) {
    const auto [write_error, written] = co_await http::async_write(*self->stream, *request, kAwait);
    if (write_error) {
        co_return write_error;
    }
    http::response_parser<http::string_body> parser;
    parser.body_limit(kAnswerBytesMax);
    const auto [read_error, count] =
        co_await http::async_read(*self->stream, self->buffer, parser, kAwait);
    if (read_error) {
        co_return read_error;
    }
    *response = parser.release();
    co_return ErrorCode();
}

asio::awaitable<Result<json>> EtcdClient::call(std::string path, json request_body,
                                               Duration limit) {
    const std::shared_ptr<Connection> self = connection_;
    const std::string where = "etcd at " + self->endpoint().text();
    http::request<http::string_body> request(http::verb::post, path, 11);
    request.set(http::field::host, self->endpoint().text());
    request.set(http::field::content_type, "application/json");
    request.body() = request_body.dump(-1, ' ', false, json::error_handler_t::replace);
    request.prepare_payload();
    http::response<http::string_body> response;
    ErrorCode error = asio::error::operation_aborted;
    if (!self->closed) {
        const bool fresh = !self->stream;
        if (fresh) {
            self->stream = std::make_unique<beast::tcp_stream>(self->io);
        }
        self->stream->expires_after(limit);
        error = ErrorCode();
        if (fresh) {
            error = co_await Connection::connect(self, limit);
        }
    }
    if (!error && !self->closed) {
        error = co_await Connection::exchange(self, &request, &response);
    }
    if (self->closed) {
        co_return Failure(Errc::disconnected, where + ": closed");
    }
    if (error) {
        self->drop();
        const bool late = error == beast::error::timeout;
        co_return Failure(
            Errc::disconnected,
            where + ": " + (late ? "no answer within " + format_duration(limit) : error.message()));
    }
    self->stream->expires_never();
    if (!response.keep_alive()) {
        self->stream.reset();
    }
    json answer = json::parse(response.body(), nullptr, /*allow_exceptions=*/false);
    const bool good = response.result() == http::status::ok && answer.is_object();
    if (!good) {
        const bool ours = response.result() == http::status::bad_request;
        if (!ours) {
            self->drop();
        }
        co_return Failure(ours ? Errc::invalid_argument : Errc::disconnected,
                          where + " answers " + path + " with HTTP " +
                              std::to_string(response.result_int()) + ": " +
                              response.body().substr(0, 200));
    }
    co_return answer;
}

}  // namespace regroup::journal
