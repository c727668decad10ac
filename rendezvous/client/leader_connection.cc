// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/leader_connection.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/random.h"
#include "rendezvous/client/check_daemon.h"
#include "rendezvous/net/await.h"
#include "rendezvous/net/descriptor.h"
#include "rendezvous/net/name_lookup.h"
#include "rendezvous/security/stream.h"

namespace regroup::rendezvous {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

using net::kAwait;

constexpr Duration kConnectLimit = std::chrono::seconds(5);
// The limit when there are other endpoints to try.
constexpr Duration kConnectLimitOfMany = std::chrono::seconds(1);
// A daemon to which thousands of nodes come at once answers each in its turn. If all gave up
// sooner, its work for them would be lost, and they would come again.
constexpr Duration kPatienceLimit = std::chrono::seconds(60);
constexpr Duration kBackoffFirst = std::chrono::milliseconds(50);
constexpr Duration kBackoffLimit = std::chrono::seconds(2);
// A known daemon is most likely being restarted, and limits the time for the agent to come back.
constexpr Duration kBackoffLimitOfKnown = std::chrono::milliseconds(500);
// A daemon must not be kept busy with refusals. A pod of the same index that still runs
// is gone before long.
constexpr Duration kBackoffFirstOfRefused = std::chrono::milliseconds(250);
constexpr Duration kBackoffLimitOfRefused = std::chrono::seconds(10);
constexpr std::size_t kOutboxFramesMax = 256;
constexpr std::size_t kReadBytes = 16384;

}  // namespace

struct LeaderConnection::Impl {
    using Kind = Heard::Kind;

    Impl(asio::io_context& io_in, std::vector<Endpoint> endpoints_in, Handlers handlers_in,
         MakeDecoder make_decoder_in, Duration heartbeat_timeout_in, security::Identity identity_in)
        : io(io_in),
          heartbeat_timeout(heartbeat_timeout_in),
          identity(std::move(identity_in)),
          turn(std::move(endpoints_in)),
          handlers(std::move(handlers_in)),
          make_decoder(std::move(make_decoder_in)),
          stream(std::make_unique<security::Stream>(tcp::socket(io_in))),
          pause(io_in),
          connect_timer(io_in),
          stop_timer(io_in),
          // Jitter only has to differ between nodes and attempts.
          random(static_cast<std::uint64_t>(::getpid()) << 20U ^
                 static_cast<std::uint64_t>(
                     std::chrono::system_clock::now().time_since_epoch().count())) {}

    static asio::awaitable<void> run(std::shared_ptr<Impl> self);
    static asio::awaitable<bool> connect(std::shared_ptr<Impl> self);
    /// The addresses of a name. Those at which its daemon answered last, if the name servers do not
    /// answer. Empty, and reported, if there are none.
    static asio::awaitable<std::vector<tcp::endpoint>> look_up(std::shared_ptr<Impl> self,
                                                               Endpoint endpoint, Duration limit);
    /// Connects to one address, and checks who serves there. Errors: disconnected.
    static asio::awaitable<Result<void>> reach(std::shared_ptr<Impl> self, tcp::endpoint candidate,
                                               Duration limit);
    static asio::awaitable<Kind> read(std::shared_ptr<Impl> self);
    static asio::awaitable<void> write(std::shared_ptr<Impl> self);

    /// The peer has closed the connection.
    void tell_end(Kind answer, const ErrorCode& error);
    void begin_writing();
    /// The daemon at `endpoint` leads; empty: the peer knows none.
    void leave_for(const std::string& endpoint);

    void finish_stop();
    void trouble(const std::string& reason, bool answered);

    std::weak_ptr<Impl> self;
    asio::io_context& io;
    const Duration heartbeat_timeout;
    const security::Identity identity;
    EndpointTurn turn;
    /// Where a daemon has answered, by endpoint.
    std::map<std::string, tcp::endpoint> addresses;
    /// Look-ups without an answer that was used, by endpoint. A name server may take longer than an
    /// attempt: a later one uses its answer.
    std::map<std::string, std::unique_ptr<net::NameLookup>> lookups;
    std::set<std::string> mute;            ///< Endpoints reported to close without an answer.
    std::set<std::string> elsewhere_told;  ///< Reports since the last answer of a leader.
    const Handlers handlers;
    const MakeDecoder make_decoder;
    /// A new one for each attempt; reader and writer of an earlier one hold that.
    std::shared_ptr<security::Stream> stream;
    std::optional<security::Tls> tls;  ///< Made when it is first needed.
    asio::steady_timer pause;
    asio::steady_timer connect_timer;
    asio::steady_timer stop_timer;
    Random random;
    std::deque<std::string> outbox;
    std::function<void()> on_stopped;
    std::string peer;
    tcp::endpoint address;  ///< The same.
    std::string daemon_host;
    std::string local_address;
    /// How many times longer than usual to wait for a daemon that has accepted the connection.
    int patience = 1;
    std::uint64_t attempt = 0;  ///< Counts connection attempts; timers of earlier ones are ignored.
    bool connected = false;
    bool writing = false;
    bool stopping = false;  ///< From then on no handler is called.
};

asio::awaitable<bool> LeaderConnection::Impl::connect(std::shared_ptr<Impl> self) {
    const Duration limit = std::min(self->turn.has_others() ? kConnectLimitOfMany : kConnectLimit,
                                    self->heartbeat_timeout);
    std::vector<tcp::endpoint> candidates;
    ErrorCode error;
    const auto numeric = asio::ip::make_address(self->turn.current().host, error);
    if (!error) {
        candidates.emplace_back(numeric, self->turn.current().port);
    } else if (self->turn.current().host == "localhost") {
        // Not resolved: this is the common case, and start-up must be fast.
        candidates.emplace_back(asio::ip::address_v4::loopback(), self->turn.current().port);
        candidates.emplace_back(asio::ip::address_v6::loopback(), self->turn.current().port);
    } else {
        candidates = co_await look_up(self, self->turn.current(), limit);
        if (candidates.empty() || self->stopping) {
            co_return false;
        }
    }
    std::string reasons;
    for (const tcp::endpoint& candidate : candidates) {
        const Result<void> reached = co_await reach(self, candidate, limit);
        if (self->stopping) {
            co_return false;
        }
        const std::string address = candidate.address().to_string();
        if (reached) {
            const Endpoint endpoint{address, candidate.port()};
            self->peer = endpoint.text();
            self->address = candidate;
            self->daemon_host = self->turn.current().host;
            self->lookups.clear();  // Late answers are old ones when they are needed.
            co_return true;
        }
        reasons.append(reasons.empty() ? "" : "; ")
            .append(address)
            .append(": ")
            .append(reached.error().detail);
    }
    self->trouble("cannot connect to " + self->turn.current().text() + " (" + reasons + ")", false);
    co_return false;
}

asio::awaitable<std::vector<tcp::endpoint>> LeaderConnection::Impl::look_up(
    std::shared_ptr<Impl> self, Endpoint endpoint, Duration limit) {
    std::unique_ptr<net::NameLookup>& lookup = self->lookups[endpoint.text()];
    if (!lookup) {
        lookup = std::make_unique<net::NameLookup>(self->io, endpoint.host, endpoint.port);
    }
    co_await lookup->wait(limit);
    if (self->stopping) {
        co_return std::vector<tcp::endpoint>();
    }
    const auto answer = lookup->is_done() ? std::move(lookup) : nullptr;
    if (answer && answer->error().empty()) {
        co_return answer->found();
    }
    // A name that is gone may have left its address to somebody else. One that no server can tell
    // is most likely where it was.
    const auto last = self->addresses.find(endpoint.text());
    if ((!answer || answer->is_undecided()) && last != self->addresses.end()) {
        co_return std::vector<tcp::endpoint>{last->second};
    }
    self->trouble("cannot resolve " + endpoint.host + ": " +
                      (answer ? answer->error() : "no answer within " + format_duration(limit)),
                  false);
    co_return std::vector<tcp::endpoint>();
}

asio::awaitable<Result<void>> LeaderConnection::Impl::reach(std::shared_ptr<Impl> self,
                                                            tcp::endpoint candidate,
                                                            Duration limit) {
    const auto stream = std::make_shared<security::Stream>(tcp::socket(self->io));
    self->stream = stream;
    tcp::socket& socket = stream->socket();
    ErrorCode error;
    socket.open(candidate.protocol(), error);
    if (error) {
        co_return Failure(Errc::disconnected, error.message());
    }
    net::set_close_on_exec(socket.native_handle());
    const auto close_after = [&self](Duration time) {
        self->connect_timer.expires_after(time);
        self->connect_timer.async_wait([impl = self, number = ++self->attempt](ErrorCode error) {
            if (!error && impl->attempt == number) {
                impl->stream->close();
            }
        });
    };
    close_after(limit);
    const auto [connect_error] = co_await socket.async_connect(candidate, kAwait);
    Result<void> reached;
    if (connect_error) {
        reached = Failure(Errc::disconnected, connect_error.message());
    } else if (stream->is_open()) {
        limit = std::min(
            (self->turn.has_others() ? kConnectLimitOfMany : kConnectLimit) * self->patience,
            kPatienceLimit);
        close_after(limit);
        reached =
            co_await check_daemon(*stream, self->turn.current().host, self->identity, self->tls);
        if (stream->is_open()) {
            self->patience = 1;
        } else if (limit < kPatienceLimit) {
            self->patience *= 2;
        }
    }
    ++self->attempt;
    self->connect_timer.cancel();
    if (!stream->is_open() && !self->stopping) {
        reached = Failure(Errc::disconnected, "no answer within " + format_duration(limit));
    }
    co_return reached;
}

void LeaderConnection::Impl::leave_for(const std::string& endpoint) {
    const std::optional<Endpoint> leader = Endpoint::parse(endpoint);
    // During a change of the leader this happens several times a second: report it once.
    std::string told = "the daemon at " + turn.current().text() + " does not lead" +
                       (leader ? "; it names " + leader->text() : " and knows no leader");
    if (elsewhere_told.insert(told).second) {
        trouble(told, true);
    }
    if (leader) {
        turn.named(*leader);
    }
}

asio::awaitable<void> LeaderConnection::Impl::run(std::shared_ptr<Impl> self) {
    Duration backoff = kBackoffFirst;
    while (!self->stopping) {
        Kind answer = Kind::part;
        self->turn.advance();
        const bool up = co_await connect(self);
        if (up) {
            ErrorCode ignored;
            tcp::socket& socket = self->stream->socket();
            socket.set_option(tcp::no_delay(true), ignored);
            self->local_address = socket.local_endpoint(ignored).address().to_string();
            self->connected = true;
            self->handlers.on_up();
            answer = co_await read(self);
            // The back-off stays for a peer that accepts and closes without an answer, and for a
            // daemon that refuses.
            if (answer == Kind::answer) {
                backoff = kBackoffFirst;
                self->turn.answered();
                self->addresses.insert_or_assign(self->turn.current().text(), self->address);
                self->elsewhere_told.clear();
            }
            self->stream->close();
            self->connected = false;
            self->outbox.clear();
            if (self->stopping) {
                break;
            }
            self->handlers.on_down();
        }
        if (self->stopping) {
            break;
        }
        if (!self->turn.pause_is_due()) {
            continue;
        }
        self->turn.paused();
        if (answer == Kind::refusal) {
            backoff = std::max(backoff, kBackoffFirstOfRefused);
        }
        const auto half = static_cast<std::uint64_t>(backoff.count() / 2);
        self->pause.expires_after(
            Duration(static_cast<std::int64_t>(half + self->random.below(half + 1))));
        co_await self->pause.async_wait(kAwait);
        if (answer == Kind::refusal) {
            backoff = std::min(backoff * 2, kBackoffLimitOfRefused);
            continue;
        }
        const Duration limit = self->addresses.empty() ? kBackoffLimit : kBackoffLimitOfKnown;
        backoff = std::min({backoff * 3 / 2, limit, self->heartbeat_timeout / 4});
    }
    self->finish_stop();
}

asio::awaitable<LeaderConnection::Heard::Kind> LeaderConnection::Impl::read(
    std::shared_ptr<Impl> self) {
    Kind answer = Kind::part;
    const std::unique_ptr<Decoder> decoder = self->make_decoder();
    std::array<char, kReadBytes> buffer{};
    const auto stream = self->stream;
    while (stream->is_open()) {
        const auto [error, count] = co_await stream->read_some(asio::buffer(buffer));
        if (self->stopping && (error || !self->writing)) {
            co_return answer;
        }
        if (self->stopping) {
            continue;  // Returning would close the connection before all messages are sent.
        }
        if (error) {
            self->tell_end(answer, error);
            co_return answer;
        }
        decoder->feed(std::string_view(buffer.data(), count));
        // A handler may stop or drop the connection; the remaining words are then ignored.
        for (bool is_whole = true; is_whole && stream->is_open() && !self->stopping;) {
            const Result<Heard> heard = decoder->next();
            if (!heard) {
                self->trouble(self->peer + ": " + heard.error().detail, true);
                co_return Kind::part;
            }
            if (heard->kind == Kind::elsewhere) {
                self->leave_for(heard->leader);
                co_return Kind::part;
            }
            is_whole = heard->kind != Kind::part;
            answer = is_whole ? heard->kind : answer;
            if (answer == Kind::refusal && !self->stopping) {
                co_return answer;
            }
        }
    }
    co_return answer;
}

void LeaderConnection::Impl::tell_end(Kind answer, const ErrorCode& error) {
    // A daemon that answered before is being restarted; other peers are reported once.
    const std::string endpoint = turn.current().text();
    if (answer != Kind::part || error == asio::error::operation_aborted ||
        addresses.contains(endpoint) || !mute.insert(endpoint).second) {
        return;
    }
    const std::string& refusal = stream->refusal();
    trouble(peer + " " +
                (refusal.empty() ? "closed the connection without an answer (" + error.message() +
                                       "); is it a regroup daemon?"
                                 : refusal),
            true);
}

asio::awaitable<void> LeaderConnection::Impl::write(std::shared_ptr<Impl> self) {
    const auto stream = self->stream;
    while (!self->outbox.empty() && stream->is_open()) {
        const std::string frame = std::move(self->outbox.front());
        self->outbox.pop_front();
        const auto [error, count] = co_await stream->write(asio::buffer(frame));
        if (error) {
            // The reader notices it. A peer that refuses this end's certificate has said so before
            // it closed the connection.
            ErrorCode ignored;
            stream->socket().shutdown(tcp::socket::shutdown_both, ignored);
            break;
        }
    }
    self->writing = false;
    if (self->connected && self->stream != stream && !self->outbox.empty() &&
        self->stream->is_open()) {
        self->begin_writing();  // On the connection that has replaced this one.
    }
    if (self->stopping) {
        self->finish_stop();
    }
}

void LeaderConnection::Impl::begin_writing() {
    writing = true;
    asio::co_spawn(io, write(self.lock()), asio::detached);
}

void LeaderConnection::Impl::finish_stop() {
    stop_timer.cancel();
    stream->close();
    if (on_stopped) {
        asio::post(io, std::exchange(on_stopped, nullptr));
    }
}

void LeaderConnection::Impl::trouble(const std::string& reason, bool answered) {
    if (!stopping) {
        handlers.on_trouble(reason, answered);
    }
}

LeaderConnection::LeaderConnection(asio::io_context& io, std::vector<Endpoint> endpoints,
                                   Handlers handlers, MakeDecoder make_decoder,
                                   Duration heartbeat_timeout, security::Identity identity)
    : impl_(std::make_shared<Impl>(io, std::move(endpoints), std::move(handlers),
                                   std::move(make_decoder), heartbeat_timeout,
                                   std::move(identity))) {
    impl_->self = impl_;
}

LeaderConnection::~LeaderConnection() {
    impl_->stopping = true;
    impl_->on_stopped = nullptr;
    impl_->stream->close();
    impl_->lookups.clear();
    impl_->pause.cancel();
    impl_->connect_timer.cancel();
    impl_->stop_timer.cancel();
}

void LeaderConnection::start() {
    asio::co_spawn(impl_->io, Impl::run(impl_), asio::detached);
}

void LeaderConnection::send_bytes(std::string bytes) {
    if (!impl_->connected || impl_->stopping) {
        return;
    }
    if (impl_->outbox.size() >= kOutboxFramesMax) {
        drop();
        return;
    }
    impl_->outbox.push_back(std::move(bytes));
    if (!impl_->writing) {
        impl_->begin_writing();
    }
}

void LeaderConnection::drop() {
    impl_->stream->close();
}

void LeaderConnection::stop(Duration limit, std::function<void()> done) {
    impl_->stopping = true;
    impl_->on_stopped = std::move(done);
    impl_->pause.cancel();
    impl_->lookups.clear();
    if (!impl_->writing) {
        impl_->finish_stop();
        return;
    }
    impl_->stop_timer.expires_after(limit);
    impl_->stop_timer.async_wait([impl = impl_](ErrorCode error) {
        if (!error) {
            impl->finish_stop();
        }
    });
}

const std::string& LeaderConnection::peer() const {
    return impl_->peer;
}

const std::string& LeaderConnection::daemon_host() const {
    return impl_->daemon_host;
}

const std::string& LeaderConnection::local_address() const {
    return impl_->local_address;
}

}  // namespace regroup::rendezvous
