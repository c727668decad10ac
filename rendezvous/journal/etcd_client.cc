// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/etcd_client.h"

#include <fcntl.h>
#include <optional>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "rendezvous/base/ensure.h"
#include "rendezvous/journal/etcd_requests.h"
#include "rendezvous/journal/etcd_tls.h"
#include "rendezvous/net/await.h"
#include "rendezvous/security/secret_file.h"

namespace regroup::journal {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using nlohmann::json;

using net::kAwait;

// A page of entries, each of which is at most a frame and a third.
constexpr std::uint64_t kAnswerBytesMax = std::uint64_t{256} << 20U;
constexpr std::size_t kPasswordBytesMax = 1024;
constexpr const char* kLoginPath = "/v3/auth/authenticate";
// To check a password costs etcd much time, by design.
constexpr Duration kRefusedLoginPause = std::chrono::seconds(5);

/// A DNS look-up cannot be cancelled, only abandoned: callers wait on the timer.
struct Lookup {
    explicit Lookup(asio::io_context& io) : resolver(io), timer(io) {}

    tcp::resolver resolver;
    asio::steady_timer timer;
    ErrorCode error = beast::error::timeout;
    tcp::resolver::results_type found;
};

Result<std::string> read_password(const EtcdAccess& access) {
    return security::read_secret_line(access.password_file, "the --etcd-password-file",
                                      kPasswordBytesMax);
}

bool is_hang_up(const ErrorCode& error) {
    return error == http::error::end_of_stream || etcd::is_hang_up(error);
}

}  // namespace

/// All of it works on the io_context's one thread. Coroutines hold it by a shared pointer.
struct EtcdClient::Connection {
    using Self = std::shared_ptr<Connection>;
    using Request = http::request<http::string_body>;
    using Reply = http::response<http::string_body>;

    Connection(asio::io_context& io_in, Options options_in)
        : io(io_in), options(std::move(options_in)), login_pause(io_in) {}

    /// Connects, if it is not connected. `limit` is for all that follows, until the next `open`.
    static asio::awaitable<std::optional<Failure>> open(Self self, Duration limit);
    static asio::awaitable<ErrorCode> connect(Self self, Duration limit);
    template <class Stream>
    static asio::awaitable<ErrorCode> exchange(Stream* stream, beast::flat_buffer* buffer,
                                               Request* request, Reply* reply);
    /// POSTs one request on the open connection. Nothing if there is a reply.
    static asio::awaitable<std::optional<Failure>> post(Self self, std::string path, json body,
                                                        Reply* reply);
    /// Gets a token, or learns that etcd asks for none. Nothing if that worked.
    static asio::awaitable<std::optional<Failure>> log_in(Self self);

    [[nodiscard]] const rendezvous::Endpoint& endpoint() const { return options.endpoints[next]; }
    [[nodiscard]] std::string where() const { return "etcd at " + endpoint().text(); }
    [[nodiscard]] bool is_open() const { return plain || tls; }
    [[nodiscard]] beast::tcp_stream& stream() { return tls ? tls->next_layer() : *plain; }
    [[nodiscard]] Failure lost(const std::string& why) const {
        return {Errc::disconnected, where() + ": " + why};
    }
    [[nodiscard]] std::string text_of(const ErrorCode& error) const {
        return error == beast::error::timeout ? "no answer within " + format_duration(limit)
                                              : error.message();
    }
    [[nodiscard]] std::string explain_silence(const ErrorCode& error) const;
    [[nodiscard]] Failure explain(const std::string& path, const Reply& reply,
                                  etcd::Refusal refusal) const;
    void hang_up() {
        plain.reset();
        tls.reset();
    }
    /// After a call.
    void rest(bool stays) {
        stream().expires_never();
        if (!stays) {
            hang_up();
        }
    }
    /// The next call goes to the next endpoint.
    void drop() {
        hang_up();
        next = (next + 1) % options.endpoints.size();
    }
    /// The next calls fail like this one, without asking etcd.
    void pause_logins(const Failure& failure);

    asio::io_context& io;
    const Options options;
    std::size_t next = 0;
    std::shared_ptr<Lookup> lookup;  // While a connection is being opened.
    std::unique_ptr<asio::ssl::context> context;
    std::unique_ptr<beast::tcp_stream> plain;
    std::unique_ptr<etcd::TlsStream> tls;
    beast::flat_buffer buffer;
    Duration limit{};       // Of the call in progress.
    bool answered = false;  // etcd has answered on this connection.
    // Of the login. Empty: etcd asks for none. Nothing: not logged in.
    std::optional<std::string> token;
    asio::steady_timer login_pause;
    std::optional<Failure> login_refused;  // During the pause.
    bool closed = false;
    std::shared_ptr<const bool> lifetime = std::make_shared<const bool>(true);
};

EtcdClient::EtcdClient(asio::io_context& io, Options options)
    : connection_(std::make_shared<Connection>(io, std::move(options))) {
    ENSURE(!connection_->options.endpoints.empty());
}

EtcdClient::~EtcdClient() {
    close();
}

void EtcdClient::close() {
    connection_->closed = true;
    connection_->login_pause.cancel();
    if (connection_->lookup) {
        connection_->lookup->timer.cancel();
    }
    if (connection_->is_open()) {
        connection_->stream().close();
    }
}

Result<void> EtcdClient::check(const EtcdAccess& access) {
    if (access.tls) {
        const auto context = etcd::make_tls(access);
        if (!context) {
            return context.error();
        }
    }
    if (!access.user.empty()) {
        const Result<std::string> password = read_password(access);
        if (!password) {
            return password.error();
        }
    }
    return {};
}

asio::awaitable<ErrorCode> EtcdClient::Connection::connect(Self self, Duration limit) {
    const rendezvous::Endpoint endpoint = self->endpoint();
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
    const auto [error, reached] = co_await self->stream().async_connect(lookup->found, kAwait);
    if (error) {
        co_return error;
    }
    ErrorCode ignored;
    self->stream().socket().set_option(tcp::no_delay(true), ignored);
    ::fcntl(self->stream().socket().native_handle(), F_SETFD, FD_CLOEXEC);
    co_return ErrorCode();
}

asio::awaitable<std::optional<Failure>> EtcdClient::Connection::open(Self self, Duration limit) {
    if (self->closed) {
        co_return self->lost("closed");
    }
    self->limit = limit;
    if (self->is_open()) {
        self->stream().expires_after(limit);
        co_return std::nullopt;
    }
    self->buffer.clear();
    self->answered = false;
    const EtcdAccess& access = self->options.access;
    const std::string host = self->endpoint().host;
    if (access.tls) {
        auto made = etcd::make_tls(access);
        if (!made) {
            co_return self->lost(made.error().detail);
        }
        self->context = std::move(*made);
        self->tls = std::make_unique<etcd::TlsStream>(self->io, *self->context);
        const Result<void> named = etcd::expect_host(*self->tls, host);
        if (!named) {
            co_return self->lost(named.error().detail);
        }
    } else {
        self->plain = std::make_unique<beast::tcp_stream>(self->io);
    }
    self->stream().expires_after(limit);
    const ErrorCode not_connected = co_await connect(self, limit);
    if (not_connected) {
        co_return self->lost(self->text_of(not_connected));
    }
    if (!self->tls || self->closed) {
        co_return std::nullopt;
    }
    const auto [error] =
        co_await self->tls->async_handshake(asio::ssl::stream_base::client, kAwait);
    if (error == beast::error::timeout) {
        co_return self->lost("no TLS handshake within " + format_duration(limit));
    }
    if (error) {
        co_return self->lost(etcd::explain_handshake(error, *self->tls, host, access));
    }
    co_return std::nullopt;
}

template <class Stream>
asio::awaitable<ErrorCode> EtcdClient::Connection::exchange(Stream* stream,
                                                            beast::flat_buffer* buffer,
                                                            Request* request, Reply* reply) {
    const auto [not_written, written] = co_await http::async_write(*stream, *request, kAwait);
    // Where etcd hangs up, its reason may be there to read.
    if (not_written && !is_hang_up(not_written)) {
        co_return not_written;
    }
    http::response_parser<http::string_body> parser;
    parser.body_limit(kAnswerBytesMax);
    const auto [not_read, count] = co_await http::async_read(*stream, *buffer, parser, kAwait);
    if (not_read) {
        co_return not_read;
    }
    *reply = parser.release();
    co_return ErrorCode();
}

asio::awaitable<std::optional<Failure>> EtcdClient::Connection::post(Self self, std::string path,
                                                                     json body, Reply* reply) {
    if (self->closed) {
        co_return self->lost("closed");
    }
    Request request(http::verb::post, path, 11);
    request.set(http::field::host, self->endpoint().text());
    request.set(http::field::content_type, "application/json");
    if (self->token && !self->token->empty()) {
        request.set(http::field::authorization, *self->token);
    }
    request.body() = body.dump(-1, ' ', false, json::error_handler_t::replace);
    request.prepare_payload();
    ErrorCode error;
    if (self->tls) {
        error = co_await exchange(self->tls.get(), &self->buffer, &request, reply);
    } else {
        error = co_await exchange(self->plain.get(), &self->buffer, &request, reply);
    }
    if (error) {
        co_return self->lost(self->explain_silence(error));
    }
    self->answered = true;
    co_return std::nullopt;
}

std::string EtcdClient::Connection::explain_silence(const ErrorCode& error) const {
    if (error == beast::error::timeout || answered) {
        return text_of(error);
    }
    if (tls) {
        return etcd::explain_first_request(error, options.access);
    }
    return is_hang_up(error) ? "it closed the connection without an answer; if it serves "
                               "https:// there, write etcds:// in --state"
                             : error.message();
}

asio::awaitable<std::optional<Failure>> EtcdClient::Connection::log_in(Self self) {
    const EtcdAccess& access = self->options.access;
    const Result<std::string> password = read_password(access);
    if (!password) {
        co_return self->lost(password.error().detail);
    }
    json body = {{"name", access.user}, {"password", *password}};
    Reply reply;
    std::optional<Failure> failure = co_await post(self, kLoginPath, std::move(body), &reply);
    if (failure || self->closed) {
        co_return failure;
    }
    const json answer = json::parse(reply.body(), nullptr, /*allow_exceptions=*/false);
    const json& token = etcd::field_of(answer, "token");
    if (reply.result() == http::status::ok && token.is_string()) {
        self->token = token.get<std::string>();
        co_return std::nullopt;
    }
    const etcd::Refusal refusal = etcd::refusal_in(reply.result_int(), answer);
    if (refusal == etcd::Refusal::login_off) {
        self->token = "";
        co_return std::nullopt;
    }
    failure = self->explain(kLoginPath, reply, refusal);
    if (refusal == etcd::Refusal::password) {
        self->pause_logins(*failure);
    }
    co_return failure;
}

void EtcdClient::Connection::pause_logins(const Failure& failure) {
    login_refused = failure;
    login_pause.expires_after(kRefusedLoginPause);
    login_pause.async_wait([this, alive = std::weak_ptr(lifetime)](const ErrorCode&) {
        if (!alive.expired()) {
            login_refused.reset();
        }
    });
}

Failure EtcdClient::Connection::explain(const std::string& path, const Reply& reply,
                                        etcd::Refusal refusal) const {
    const EtcdAccess& access = options.access;
    const std::string answers = where() + " answers " + path + " with HTTP " +
                                std::to_string(reply.result_int()) + ": " +
                                reply.body().substr(0, 200);
    switch (refusal) {
        case etcd::Refusal::request:
            return {Errc::invalid_argument, answers};
        case etcd::Refusal::token:
            return lost(access.user.empty() ? "it asks for a user name; give --etcd-user and "
                                              "--etcd-password-file"
                                            : "it does not accept the login that it has just given "
                                              "to user " +
                                                  access.user);
        case etcd::Refusal::password:
            return lost("it refuses user " + access.user + " with the password in " +
                        access.password_file + "; correct --etcd-user or the file");
        case etcd::Refusal::permission:
            return lost("user " + access.user + " may not " + path +
                        "; give the user a role with the permission readwrite on the prefix " +
                        options.prefix);
        default:
            break;
    }
    // etcd's gateway has such a rule: it takes a common name for a user name.
    const bool has_certificate = access.tls && !access.cert_file.empty();
    const bool is_plain_text = reply.result() == http::status::bad_request;
    return {Errc::disconnected,
            answers + (has_certificate && is_plain_text
                           ? "; while etcd asks for user names, give --etcd-cert a certificate "
                             "without a common name (CN)"
                           : "")};
}

asio::awaitable<Result<json>> EtcdClient::call(std::string path, json request, Duration limit) {
    const Connection::Self self = connection_;
    if (self->login_refused) {
        co_return *self->login_refused;
    }
    const bool has_user = !self->options.access.user.empty();
    std::optional<Failure> failure = co_await Connection::open(self, limit);
    bool has_logged_in = false;
    for (;;) {
        if (!failure && !self->closed && has_user && !self->token) {
            has_logged_in = true;
            failure = co_await Connection::log_in(self);
        }
        Connection::Reply reply;
        if (!failure && !self->closed) {
            failure = co_await Connection::post(self, path, request, &reply);
        }
        if (self->closed) {
            co_return self->lost("closed");
        }
        if (failure) {
            self->drop();
            co_return *failure;
        }
        json answer = json::parse(reply.body(), nullptr, /*allow_exceptions=*/false);
        const bool stays = reply.keep_alive();
        if (reply.result() == http::status::ok && answer.is_object()) {
            self->rest(stays);
            co_return answer;
        }
        const etcd::Refusal refusal = etcd::refusal_in(reply.result_int(), answer);
        if (refusal == etcd::Refusal::token && has_user) {
            self->token.reset();
            if (!has_logged_in && stays) {
                continue;
            }
        }
        Failure refused = self->explain(path, reply, refusal);
        if (refusal == etcd::Refusal::request) {
            self->rest(stays);
        } else {
            self->drop();
        }
        co_return refused;
    }
}

}  // namespace regroup::journal
