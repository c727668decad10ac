// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/http/door.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <variant>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "rendezvous/http/connection.h"
#include "rendezvous/http/response.h"
#include "rendezvous/http/room.h"

namespace regroup::http {

namespace {

namespace asio = boost::asio;
using Socket = security::Stream::Socket;
using ErrorCode = boost::system::error_code;
using Doing = Connection::Doing;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kReadBytes = 4096;
// The bytes that are written between two turns of others.
constexpr std::size_t kWriteBytes = std::size_t{64} << 10U;
// A refused client may go on sending for so long before it reads the answer.
constexpr Duration kLingerLimit = std::chrono::seconds(2);
constexpr std::size_t kLingerBytes = std::size_t{1} << 20U;

}  // namespace

struct Door::Impl {
    using Self = std::shared_ptr<Impl>;
    using Held = std::shared_ptr<Connection>;

    Impl(const Inside& inside_in, const Limits& limits_in, Log log_in)
        : inside(inside_in),
          limits(limits_in),
          log(std::move(log_in)),
          guard(inside_in.credentials, inside_in.hosts) {}

    static asio::awaitable<void> serve(Self self, Held connection, std::string first_bytes);
    /// Reads one request. False: the client is gone.
    static asio::awaitable<bool> receive(Self self, Held connection);
    /// False: nothing more may follow on the connection.
    static asio::awaitable<bool> respond(Self self, Held connection);
    /// Gets the answer of the pages.
    static asio::awaitable<Answer> ask(Self self, Held connection, Request request);
    static asio::awaitable<bool> write(Self self, Held connection, std::string_view text);
    static asio::awaitable<void> view(Self self, Held connection, Answer answer);
    /// Reads what the client still sends, up to `bytes_max`, and ends with the connection.
    static asio::awaitable<void> discard(Self self, Held connection, std::size_t bytes_max);

    [[nodiscard]] std::size_t count_trusted() const {
        return static_cast<std::size_t>(std::ranges::count_if(
            connections, [](const Held& connection) { return connection->is_trusted; }));
    }
    [[nodiscard]] std::size_t count_viewers() const {
        return static_cast<std::size_t>(std::ranges::count(
            connections, Doing::viewing, [](const Held& connection) { return connection->doing; }));
    }
    /// False: there is no room for one more client.
    bool make_room(const Connection& newcomer);
    /// False: there is no room for one more viewer of this peer.
    bool make_room_for_viewer(const std::string& identity);
    /// Disconnects slow readers until there is room to send `text`.
    void make_room_for(const std::shared_ptr<const std::string>& text);
    static asio::awaitable<bool> write_text(Self self, Held connection,
                                            std::shared_ptr<const std::string> text);
    void begin(Connection& connection, Doing doing, Duration limit) const {
        connection.doing = doing;
        connection.since = inside.clock.now();
        connection.expires = after(connection.since, limit);
    }

    const Inside inside;
    const Limits limits;
    const Log log;
    const Guard guard;
    std::set<Held> connections;
    bool closed = false;
};

Door::Door(const Inside& inside, const Limits& limits, Log log)
    : impl_(std::make_shared<Impl>(inside, limits, std::move(log))) {}

Door::~Door() {
    impl_->closed = true;
    for (const auto& connection : impl_->connections) {
        connection->close();
    }
}

std::size_t Door::connections_count() const {
    return impl_->connections.size();
}

void Door::adopt(security::Stream stream, std::string first_bytes, Client client) {
    auto connection =
        std::make_shared<Connection>(std::move(stream), std::move(client), impl_->limits);
    if (connection->client.proven) {
        connection->is_trusted = true;
        connection->identity = connection->client.proven->name;
    }
    if (!impl_->make_room(*connection)) {
        impl_->log("HTTP room", connection->client.address,
                   "disconnected " + connection->client.peer + ": there are " +
                       std::to_string(impl_->connections.size()) + " HTTP clients already");
        connection->close();
        return;
    }
    impl_->connections.insert(connection);
    impl_->begin(*connection, Doing::reading, impl_->limits.request_limit);
    asio::co_spawn(impl_->inside.io, Impl::serve(impl_, connection, std::move(first_bytes)),
                   asio::detached);
}

bool Door::Impl::make_room(const Connection& newcomer) {
    if (connections.size() < limits.connections_max) {
        return true;
    }
    const Held gone = leaves_for(connections, newcomer, inside.clock.now(), limits);
    if (!gone) {
        return false;
    }
    log("HTTP room", gone->client.address,
        "disconnected " + gone->client.peer + ", the longest idle or slowest of " +
            std::to_string(connections.size()) + " HTTP clients");
    connections.erase(gone);
    gone->close();
    return true;
}

bool Door::Impl::make_room_for_viewer(const std::string& identity) {
    if (count_viewers() < limits.staying_max) {
        return true;
    }
    const Held gone = leaves_for_viewer(connections, identity);
    if (!gone) {
        return false;
    }
    log("HTTP room", gone->client.address,
        "disconnected " + gone->client.peer + ": " + gone->identity +
            " has the most viewers, and another peer wants one");
    gone->doing = Doing::reading;
    gone->close();
    return true;
}

void Door::Impl::make_room_for(const std::shared_ptr<const std::string>& text) {
    while (const Held gone = leaves_for_text(connections, text, limits.texts_bytes_max)) {
        log("HTTP room", gone->client.address,
            "disconnected " + gone->client.peer + ": it is the slowest reader of " +
                gone->identity + ", whose readers hold the most memory");
        gone->text = nullptr;
        gone->close();
    }
}

bool Door::is_flushed() const {
    return std::ranges::none_of(impl_->connections, [](const auto& connection) {
        return connection->text || connection->has_queue;
    });
}

void Door::sweep() {
    const Instant now = impl_->inside.clock.now();
    for (const auto& connection : impl_->connections) {
        if (now >= connection->expires) {
            connection->close();
        }
    }
}

asio::awaitable<void> Door::Impl::serve(Self self, Held connection, std::string first_bytes) {
    connection->reader.feed(first_bytes);
    bool open = true;
    while (open && co_await receive(self, connection)) {
        open = co_await respond(self, connection);
        if (open) {
            self->begin(*connection, Doing::idle, self->limits.idle_limit);
            // Requests can come faster than others get their turn.
            co_await asio::post(self->inside.io, asio::use_awaitable);
            connection->reader.next();
        }
    }
    if (!open && connection->stream.is_open() && !self->closed) {
        ErrorCode ignored;
        connection->stream.socket().shutdown(Socket::shutdown_send, ignored);
        self->begin(*connection, Doing::reading, kLingerLimit);
        co_await discard(self, connection, kLingerBytes);
    }
    connection->close();
    self->connections.erase(connection);
}

asio::awaitable<bool> Door::Impl::receive(Self self, Held connection) {
    using State = RequestReader::State;
    std::array<char, kReadBytes> buffer{};
    bool told_to_continue = false;
    for (;;) {
        if (self->closed || !connection->stream.is_open()) {
            co_return false;
        }
        RequestReader& reader = connection->reader;
        if (reader.state() == State::complete || reader.state() == State::failed) {
            co_return true;
        }
        if (reader.state() == State::body && !told_to_continue && reader.head().expects_continue) {
            told_to_continue = true;
            if (!co_await write(self, connection, "HTTP/1.1 100 Continue\r\n\r\n")) {
                co_return false;
            }
        }
        const auto [error, count] = co_await connection->stream.read_some(asio::buffer(buffer));
        if (error || self->closed || !connection->stream.is_open()) {
            co_return false;
        }
        if (connection->doing == Doing::idle) {
            self->begin(*connection, Doing::reading, self->limits.request_limit);
        }
        reader.feed(std::string_view(buffer.data(), count));
    }
}

asio::awaitable<bool> Door::Impl::respond(Self self, Held connection) {
    using Method = RequestHead::Method;
    const RequestReader& reader = connection->reader;
    const Client& client = connection->client;
    const auto log_refusal = [&](const std::string& what) {
        self->log("HTTP refusal", client.address, "HTTP client " + client.peer + " " + what);
    };
    Answer answer;
    RequestHead head;
    bool wants_token = false;
    self->begin(*connection, Doing::answering, self->limits.answer_limit + kLingerLimit);
    if (reader.state() == RequestReader::State::failed) {
        answer = sentence(reader.status(), reader.why());
        log_refusal("was refused: " + reader.why());
    } else {
        head = reader.head();
        std::optional<Target> target = parse_target(head.target);
        const bool is_public = target && self->inside.pages.is_public(target->path);
        auto judged = self->guard.judge(client, head, is_public);
        if (auto* refusal = std::get_if<Guard::Refusal>(&judged)) {
            answer = std::move(refusal->answer);
            wants_token = refusal->wants_token;
            if (!refusal->log.empty()) {
                log_refusal(refusal->log);
            }
        } else if (!target) {
            answer = sentence(400, "the target of the request must be a path");
        } else {
            connection->is_trusted = client.proven || !is_public;
            connection->identity = std::get<security::Peer>(judged).name;
            Request request;
            request.method =
                head.method == Method::post ? Request::Method::post : Request::Method::get;
            request.path = std::move(target->path);
            request.query = std::move(target->query);
            request.accept = std::move(head.accept);
            request.body = reader.body();
            request.peer = std::move(std::get<security::Peer>(judged));
            request.address = client.peer;
            answer = co_await ask(self, connection, std::move(request));
            if (self->closed || !connection->stream.is_open()) {
                co_return false;
            }
        }
    }
    if (is_unchanged(answer, head.if_none_match)) {
        answer.status = 304;
        answer.body = nullptr;
    }
    const bool is_stream = answer.stream && head.method != Method::head;
    if (is_stream && !self->make_room_for_viewer(connection->identity)) {
        answer = sentence(503, "this daemon has " + std::to_string(self->limits.staying_max) +
                                   " viewers already; close other pages, or try again later");
    } else if (is_stream) {
        self->begin(*connection, Doing::viewing, self->limits.write_limit);
        if (co_await write(self, connection, response_head(answer, false, false))) {
            co_await view(self, connection, std::move(answer));
        }
        co_return false;
    }
    // A client whose answer was late has perhaps had its reply meanwhile.
    const bool keep_alive = head.keep_alive && answer.status != 504 && !answer.stream &&
                            self->count_trusted() <= self->limits.staying_max;
    if (!co_await write(self, connection, response_head(answer, keep_alive, wants_token))) {
        co_return false;
    }
    if (answer.body && head.method != Method::head &&
        !co_await write_text(self, connection, std::move(answer.body))) {
        co_return false;
    }
    co_return keep_alive;
}

asio::awaitable<Answer> Door::Impl::ask(Self self, Held connection, Request request) {
    connection->answer.reset();
    self->inside.pages.answer(request, [held = std::weak_ptr(connection)](Answer answer) {
        if (const auto waiting = held.lock()) {
            waiting->answer = std::move(answer);
            waiting->wake.cancel();
        }
    });
    if (!connection->answer) {
        connection->wake.expires_after(self->limits.answer_limit);
        co_await connection->wake.async_wait(kAwait);
    }
    if (!connection->answer) {
        co_return sentence(504, "the daemon has not decided in time; look at the status");
    }
    co_return *std::exchange(connection->answer, std::nullopt);
}

asio::awaitable<bool> Door::Impl::write(Self self, Held connection, std::string_view text) {
    while (!text.empty() && !self->closed) {
        const std::string_view part = text.substr(0, kWriteBytes);
        connection->expires = after(self->inside.clock.now(), self->limits.write_limit);
        const auto [error, count] =
            co_await connection->stream.write(asio::buffer(part.data(), part.size()));
        if (error || self->closed || !connection->stream.is_open()) {
            co_return false;
        }
        text.remove_prefix(part.size());
        if (!text.empty()) {
            co_await asio::post(self->inside.io, asio::use_awaitable);
        }
    }
    co_return !self->closed;
}

asio::awaitable<bool> Door::Impl::write_text(Self self, Held connection,
                                             std::shared_ptr<const std::string> text) {
    self->make_room_for(text);
    connection->text = text;
    connection->text_since = self->inside.clock.now();
    const bool written = co_await write(self, connection, *text);
    connection->text = nullptr;
    co_return written;
}

asio::awaitable<void> Door::Impl::view(Self self, Held connection, Answer answer) {
    const auto viewer = std::make_shared<ConnectionViewer>(connection, self->limits);
    asio::co_spawn(self->inside.io, discard(self, connection, kReadBytes), asio::detached);
    answer.stream(viewer);
    const auto sign_of_life = std::make_shared<const std::string>(answer.sign_of_life);
    while (connection->stream.is_open() && !self->closed) {
        std::shared_ptr<const std::string> text = viewer->take();
        connection->has_queue = text != nullptr;
        if (!text && viewer->is_finished()) {
            break;
        }
        if (!text) {
            connection->expires = Instant::max();
            connection->wake.expires_after(self->limits.viewer_interval);
            const auto [error] = co_await connection->wake.async_wait(kAwait);
            if (error) {
                continue;
            }
            text = sign_of_life;
        }
        if (!co_await write_text(self, connection, std::move(text))) {
            break;
        }
    }
    if (viewer->has_too_much() && !self->closed) {
        self->log("HTTP viewer", connection->client.address,
                  "disconnected " + connection->client.peer + ": it does not read what it is sent");
    }
    connection->has_queue = false;
    connection->close();  // Its `discard` ends, too.
}

asio::awaitable<void> Door::Impl::discard(Self self, Held connection, std::size_t bytes_max) {
    std::array<char, kReadBytes> buffer{};
    std::size_t bytes = 0;
    while (bytes <= bytes_max) {
        const auto [error, count] = co_await connection->stream.read_some(asio::buffer(buffer));
        if (error || self->closed || !connection->stream.is_open()) {
            break;
        }
        bytes += count;
    }
    connection->close();
}

}  // namespace regroup::http
