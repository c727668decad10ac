// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/etcd_client.h"

#include <optional>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/ensure.h"
#include "rendezvous/client/http_exchange.h"
#include "rendezvous/journal/etcd_requests.h"
#include "rendezvous/journal/etcd_tls.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/net/await.h"
#include "rendezvous/net/descriptor.h"
#include "rendezvous/net/name_lookup.h"
#include "rendezvous/security/secret_file.h"
#include "rendezvous/security/stream.h"

namespace regroup::journal {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using nlohmann::json;

using net::kAwait;
using rendezvous::HttpAnswer;

constexpr unsigned kOk = 200;
constexpr unsigned kBadRequest = 400;
// A page of entries, each of which is at most a frame and a third.
constexpr std::uint64_t kAnswerBytesMax = std::uint64_t{256} << 20U;
constexpr std::size_t kPasswordBytesMax = 1024;
constexpr const char* kLoginPath = "/v3/auth/authenticate";
// To check a password costs etcd much time, by design.
constexpr Duration kRefusedLoginPause = std::chrono::seconds(5);

Result<std::string> read_password(const EtcdAccess& access) {
    return security::read_secret_line(access.password_file, "the --etcd-password-file",
                                      kPasswordBytesMax);
}

}  // namespace

/// All of it works on the io_context's one thread. Coroutines hold it by a shared pointer.
struct EtcdClient::Connection {
    using Self = std::shared_ptr<Connection>;

    Connection(asio::io_context& io_in, Options options_in)
        : io(io_in),
          options(std::move(options_in)),
          stream(tcp::socket(io_in)),
          deadline(io_in),
          login_pause(io_in) {}

    /// Connects, if it is not connected. `limit` is for all that follows, until the next `open`.
    static asio::awaitable<std::optional<Failure>> open(Self self, Duration limit);
    /// Why there is no connection; empty if there is one.
    static asio::awaitable<std::string> connect(Self self);
    /// POSTs one request on the open connection. Nothing if there is a reply.
    static asio::awaitable<std::optional<Failure>> post(Self self, std::string path, json body,
                                                        HttpAnswer* reply);
    /// Gets a token, or learns that etcd asks for none. Nothing if that worked.
    static asio::awaitable<std::optional<Failure>> log_in(Self self);

    [[nodiscard]] const rendezvous::Endpoint& endpoint() const { return options.endpoints[next]; }
    [[nodiscard]] std::string where() const { return "etcd at " + endpoint().text(); }
    [[nodiscard]] Failure lost(const std::string& why) const {
        return {Errc::disconnected, where() + ": " + why};
    }
    [[nodiscard]] std::string no_answer() const {
        return "no answer within " + format_duration(limit);
    }
    [[nodiscard]] std::string explain_silence(const ErrorCode& error) const;
    [[nodiscard]] Failure explain(const std::string& path, const HttpAnswer& reply,
                                  etcd::Refusal refusal) const;
    void begin_deadline(Duration limit_in);
    void hang_up() {
        deadline.cancel();
        lookup.reset();
        stream.close();
    }
    /// After a call.
    void rest(bool stays) {
        deadline.cancel();
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
    std::unique_ptr<net::NameLookup> lookup;  // While a connection is being opened.
    security::Stream stream;
    asio::steady_timer deadline;  // Of the call in progress; closes the stream.
    Duration limit{};             // The same.
    bool is_late = false;         // The deadline is over.
    bool answered = false;        // etcd has answered on this connection.
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
    connection_->hang_up();
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

void EtcdClient::Connection::begin_deadline(Duration limit_in) {
    limit = limit_in;
    is_late = false;
    deadline.expires_after(limit);
    deadline.async_wait([this, alive = std::weak_ptr(lifetime)](const ErrorCode& error) {
        if (!error && !alive.expired()) {
            is_late = true;
            hang_up();
        }
    });
}

asio::awaitable<std::string> EtcdClient::Connection::connect(Self self) {
    const rendezvous::Endpoint endpoint = self->endpoint();
    self->lookup = std::make_unique<net::NameLookup>(self->io, endpoint.host, endpoint.port);
    co_await self->lookup->wait(self->limit);
    if (!self->lookup || !self->lookup->is_done()) {
        co_return self->no_answer();
    }
    const std::unique_ptr<net::NameLookup> lookup = std::move(self->lookup);
    std::string reason = lookup->error();
    for (const tcp::endpoint& candidate : lookup->found()) {
        self->stream = security::Stream(tcp::socket(self->io));
        tcp::socket& socket = self->stream.socket();
        ErrorCode error;
        socket.open(candidate.protocol(), error);
        if (!error) {
            net::set_close_on_exec(socket.native_handle());
            std::tie(error) = co_await socket.async_connect(candidate, kAwait);
        }
        if (self->is_late || self->closed) {
            co_return self->no_answer();
        }
        if (!error) {
            socket.set_option(tcp::no_delay(true), error);
            co_return "";
        }
        reason = error.message();
    }
    co_return reason;
}

asio::awaitable<std::optional<Failure>> EtcdClient::Connection::open(Self self, Duration limit) {
    if (self->closed) {
        co_return self->lost("closed");
    }
    self->begin_deadline(limit);
    if (self->stream.is_open()) {
        co_return std::nullopt;
    }
    self->answered = false;
    const EtcdAccess& access = self->options.access;
    const std::string host = self->endpoint().host;
    security::Ssl ssl;
    if (access.tls) {
        const Result<security::Tls> tls = etcd::make_tls(access);
        if (!tls) {
            co_return self->lost(tls.error().detail);
        }
        Result<security::Ssl> made = etcd::connection_to(*tls, host);
        if (!made) {
            co_return self->lost(made.error().detail);
        }
        ssl = std::move(*made);
    }
    const std::string not_connected = co_await connect(self);
    if (!not_connected.empty()) {
        co_return self->lost(not_connected);
    }
    if (!ssl || self->closed) {
        co_return std::nullopt;
    }
    const Result<void> shaken = co_await self->stream.shake_hands(std::move(ssl));
    if (self->is_late) {
        co_return self->lost("no TLS handshake within " + format_duration(limit));
    }
    if (!shaken) {
        co_return self->lost(etcd::explain_handshake(self->stream, host, access));
    }
    co_return std::nullopt;
}

asio::awaitable<std::optional<Failure>> EtcdClient::Connection::post(Self self, std::string path,
                                                                     json body, HttpAnswer* reply) {
    if (self->closed) {
        co_return self->lost("closed");
    }
    rendezvous::HttpRequest request{"POST", std::move(path)};
    request.fields = {{"Host", self->endpoint().text()}, {"Content-Type", "application/json"}};
    if (self->token && !self->token->empty()) {
        request.fields.emplace_back("Authorization", *self->token);
    }
    request.body = json_text(body);
    const ErrorCode error =
        co_await rendezvous::exchange(self->stream, request, kAnswerBytesMax, *reply);
    if (error) {
        co_return self->lost(self->explain_silence(error));
    }
    self->answered = true;
    co_return std::nullopt;
}

std::string EtcdClient::Connection::explain_silence(const ErrorCode& error) const {
    if (is_late) {
        return no_answer();
    }
    if (answered) {
        return error.message();
    }
    if (stream.is_secured()) {
        return etcd::explain_first_request(error, stream, options.access);
    }
    return etcd::is_hang_up(error, stream)
               ? "it closed the connection without an answer; if it serves https:// there, write "
                 "etcds:// in --state"
               : error.message();
}

asio::awaitable<std::optional<Failure>> EtcdClient::Connection::log_in(Self self) {
    const EtcdAccess& access = self->options.access;
    const Result<std::string> password = read_password(access);
    if (!password) {
        co_return self->lost(password.error().detail);
    }
    json body = {{"name", access.user}, {"password", *password}};
    HttpAnswer reply;
    std::optional<Failure> failure = co_await post(self, kLoginPath, std::move(body), &reply);
    if (failure || self->closed) {
        co_return failure;
    }
    const json answer = parse_json(reply.body);
    const json& token = field_of(answer, "token");
    if (reply.status == kOk && token.is_string()) {
        self->token = token.get<std::string>();
        co_return std::nullopt;
    }
    const etcd::Refusal refusal = etcd::refusal_in(reply.status, answer);
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

Failure EtcdClient::Connection::explain(const std::string& path, const HttpAnswer& reply,
                                        etcd::Refusal refusal) const {
    const EtcdAccess& access = options.access;
    const std::string answers = where() + " answers " + path + " with HTTP " +
                                std::to_string(reply.status) + ": " + reply.body.substr(0, 200);
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
    const bool is_plain_text = reply.status == kBadRequest;
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
        HttpAnswer reply;
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
        json answer = parse_json(reply.body);
        const bool stays = reply.stays_open;
        if (reply.status == kOk && answer.is_object()) {
            self->rest(stays);
            co_return answer;
        }
        const etcd::Refusal refusal = etcd::refusal_in(reply.status, answer);
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
