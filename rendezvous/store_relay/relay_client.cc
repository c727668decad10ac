// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_relay/relay_client.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <optional>
#include <sys/socket.h>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/net/accept_loop.h"
#include "rendezvous/net/await.h"
#include "rendezvous/net/descriptor.h"
#include "rendezvous/net/name_lookup.h"
#include "rendezvous/security/stream.h"
#include "rendezvous/store/peer_socket.h"
#include "rendezvous/store_relay/mux_connection.h"
#include "rendezvous/store_server/socket.h"

namespace regroup::store {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::posix::stream_descriptor;
using boost::system::error_code;

using net::kAwait;

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr Duration kConnectLimit = std::chrono::seconds(5);
constexpr Duration kPauseFirst = std::chrono::milliseconds(20);
constexpr Duration kPauseLongest = std::chrono::seconds(1);

struct Worker {
    Worker(asio::io_context& io, Channel channel_in)
        : channel(channel_in), socket(io), since(SteadyClock().now()) {}

    [[nodiscard]] std::string_view unread() const {
        return std::string_view(outbox).substr(sent_bytes);
    }

    const Channel channel;
    stream_descriptor socket;
    const Instant since;
    std::string outbox;  ///< From the server; the first `sent_bytes` have been sent.
    std::size_t sent_bytes = 0;
    bool awaits_writable = false;
};
using WorkerAt = std::shared_ptr<Worker>;

}  // namespace

struct RelayClient::Impl {
    Impl(asio::io_context& io_in, Server server_in, security::Tls tls_in, Options options_in)
        : io(io_in),
          server(std::move(server_in)),
          tls(std::move(tls_in)),
          options(std::move(options_in)),
          accept_loop(
              io_in, [this](int fd) { accepted(fd); },
              [this](const std::string& reason) {
                  if (options.on_trouble) {
                      options.on_trouble("the store accepts no more clients for now: " + reason);
                  }
              }),
          attempt_timer(io_in),
          pause_timer(io_in) {}

    // ---- Workers.

    /// Calls `act` unless the worker has been forgotten meanwhile.
    auto handler(const WorkerAt& worker, void (Impl::*act)(const WorkerAt&)) {
        return [weak = self, worker, act](const error_code& error) {
            const auto impl = weak.lock();
            if (impl && !error && impl->connection && worker->socket.is_open()) {
                (impl.get()->*act)(worker);
            }
        };
    }

    void accepted(int fd) {
        std::optional<std::string> why;
        if (options.objection) {
            why = options.objection(endpoint_of(fd, End::ours), endpoint_of(fd, End::theirs));
        }
        if (!why && workers.size() >= options.workers_max) {
            why = "this node has " + std::to_string(workers.size()) + " connections to the store";
        }
        if (why) {
            tell("the store disconnected " + describe_peer(fd) + ": " + *why);
            ::close(fd);
            return;
        }
        prepare_socket(fd);
        const auto worker = std::make_shared<Worker>(io, ++last_channel);
        error_code error;
        worker->socket.assign(fd, error);
        if (error) {
            ::close(fd);
            return;
        }
        workers.emplace(worker->channel, worker);
        if (connection) {
            open(worker);
        } else if (!std::exchange(dials, true)) {
            asio::co_spawn(io, dial(self.lock()), asio::detached);
        }
    }

    void open(const WorkerAt& worker) {
        connection->send(worker->channel, MuxKind::open);
        read_later(worker);
    }

    void read_later(const WorkerAt& worker) {
        worker->socket.async_wait(stream_descriptor::wait_read, handler(worker, &Impl::read));
    }

    /// Takes no more than the connection does. The rest stays in the kernel.
    void read(const WorkerAt& worker) {
        const std::size_t room = connection->room();
        if (room == 0) {
            paused.push_back(worker->channel);
            return;
        }
        const ssize_t bytes =
            ::recv(worker->socket.native_handle(), buffer.data(), std::min(room, buffer.size()), 0);
        if (bytes > 0) {
            connection->send_some(worker->channel,
                                  {buffer.data(), static_cast<std::size_t>(bytes)});
        } else if (bytes == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
            end(worker);
            return;
        }
        read_later(worker);
    }

    void read_paused() {
        for (std::size_t count = paused.size(); count > 0 && connection->room() > 0; --count) {
            const auto found = workers.find(paused.front());
            paused.pop_front();
            if (found != workers.end()) {
                read(WorkerAt(found->second));
            }
        }
    }

    void deliver(const WorkerAt& worker, std::string_view bytes) {
        worker->outbox.append(bytes);
        held_bytes += bytes.size();
        flush(worker);
        const std::size_t limit = options.limits.reply_bytes_max;
        if (worker->unread().size() > limit) {
            refuse(worker, "it does not read its replies; the limit is " + std::to_string(limit) +
                               " bytes");
        } else if (held_bytes > options.limits.clients_bytes_max) {
            const auto most =
                std::max_element(workers.begin(), workers.end(), [](const auto& a, const auto& b) {
                    return a.second->unread().size() < b.second->unread().size();
                });
            refuse(WorkerAt(most->second), "it has the most unread replies; the limit for all is " +
                                               std::to_string(options.limits.clients_bytes_max) +
                                               " bytes");
        }
    }

    void flush(const WorkerAt& worker) {
        if (worker->awaits_writable || !worker->socket.is_open()) {
            return;
        }
        while (!worker->unread().empty()) {
            const std::string_view unread = worker->unread();
            const ssize_t bytes =
                ::send(worker->socket.native_handle(), unread.data(), unread.size(), MSG_NOSIGNAL);
            if (bytes >= 0) {
                worker->sent_bytes += static_cast<std::size_t>(bytes);
                held_bytes -= static_cast<std::size_t>(bytes);
            } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
                write_later(worker);
                return;
            } else if (errno != EINTR) {
                end(worker);
                return;
            }
        }
        worker->outbox.clear();
        worker->sent_bytes = 0;
        if (worker->outbox.capacity() > kReadBytes) {
            worker->outbox.shrink_to_fit();
        }
    }

    void write_later(const WorkerAt& worker) {
        // Moves the rest only when it is the smaller part, so the cost is proportional to the bytes
        // sent.
        if (worker->sent_bytes > worker->unread().size()) {
            worker->outbox.erase(0, worker->sent_bytes);
            worker->sent_bytes = 0;
        }
        worker->awaits_writable = true;
        worker->socket.async_wait(stream_descriptor::wait_write, handler(worker, &Impl::write));
    }

    void write(const WorkerAt& worker) {
        worker->awaits_writable = false;
        flush(worker);
    }

    void refuse(const WorkerAt& worker, const std::string& why) {
        tell("the store disconnected " + describe_peer(worker->socket.native_handle()) + ": " +
             why);
        end(worker);
    }

    /// Disconnects the worker, and leaves the store on its behalf.
    void end(const WorkerAt& worker) {
        if (connection) {
            connection->send(worker->channel, MuxKind::close);
        }
        forget(worker);
    }

    void forget(const WorkerAt& worker) {
        held_bytes -= worker->unread().size();
        worker->outbox.clear();
        worker->sent_bytes = 0;
        error_code ignored;
        worker->socket.close(ignored);
        workers.erase(worker->channel);
    }

    void forget_all() {
        for (const auto& [channel, worker] : std::exchange(workers, {})) {
            error_code ignored;
            worker->socket.close(ignored);
        }
        paused.clear();
        held_bytes = 0;
    }

    // ---- The connection to the server.

    void take(const MuxPiece& piece) {
        const auto found = workers.find(piece.channel);
        if (piece.kind == MuxKind::open) {
            connection->fail("opened a channel");
        } else if (found == workers.end()) {
            return;
        } else if (piece.kind == MuxKind::data) {
            deliver(WorkerAt(found->second), piece.bytes);
        } else {
            forget(WorkerAt(found->second));
        }
    }

    void begin(std::unique_ptr<security::Stream> stream) {
        connection = MuxConnection::make(std::move(stream),
                                         {.on_piece = [this](const MuxPiece& p) { take(p); },
                                          .on_room = [this] { read_paused(); },
                                          .on_end = [this](const MuxEnd& end) { lost(end); }});
        for (const auto& [channel, worker] : workers) {
            open(worker);
        }
        connection->start();
    }

    void lost(const MuxEnd& end) {
        connection.reset();
        dial_at = after(SteadyClock().now(), kPauseFirst);
        if (!end.in_order) {
            tell("lost the store at " + place() + ", which " + end.why);
        }
        forget_all();
    }

    /// Until it succeeds, or no worker waits any more.
    static asio::awaitable<void> dial(std::shared_ptr<Impl> self) {
        Duration pause = kPauseFirst;
        while (!self->closed && !self->workers.empty()) {
            self->pause_timer.expires_at(self->dial_at);
            co_await self->pause_timer.async_wait(kAwait);
            if (self->closed) {
                co_return;
            }
            Result<std::unique_ptr<security::Stream>> stream = co_await connect(self);
            if (self->closed) {
                co_return;
            }
            if (stream) {
                self->dials = false;
                self->begin(std::move(*stream));
                co_return;
            }
            self->give_up_late(stream.error().detail);
            self->dial_at = after(SteadyClock().now(), pause);
            pause = std::min(pause * 2, kPauseLongest);
        }
        self->lookup.reset();
        self->dials = false;
    }

    void give_up_late(const std::string& why) {
        std::vector<WorkerAt> late;
        for (const auto& [channel, worker] : workers) {
            if (SteadyClock().now() >= after(worker->since, options.patience)) {
                late.push_back(worker);
            }
        }
        if (late.empty()) {
            return;
        }
        tell("gave up after " + format_duration(options.patience) +
             ": no connection to the store at " + place() + ": it " + why);
        for (const WorkerAt& worker : late) {
            forget(worker);
        }
    }

    static asio::awaitable<Result<std::unique_ptr<security::Stream>>> connect(
        std::shared_ptr<Impl> self) {
        std::vector<tcp::endpoint> places;
        error_code error;
        const auto numeric = asio::ip::make_address(self->server.host, error);
        if (!error) {
            places.emplace_back(numeric, self->server.port);
        } else {
            // A name server may take longer than an attempt: a later one uses its answer.
            if (!self->lookup) {
                self->lookup = std::make_unique<net::NameLookup>(self->io, self->server.host,
                                                                 self->server.port);
            }
            co_await self->lookup->wait(kConnectLimit);
            if (self->closed || !self->lookup->is_done()) {
                co_return Failure(Errc::disconnected,
                                  "has no known address: no name server answers");
            }
            const auto answer = std::move(self->lookup);
            if (!answer->error().empty()) {
                co_return Failure(Errc::disconnected, "has no known address: " + answer->error());
            }
            places = answer->found();
        }
        for (const tcp::endpoint& place : places) {
            if (self->closed) {
                break;
            }
            tcp::socket socket(self->io);
            socket.open(place.protocol(), error);
            if (error) {
                continue;
            }
            net::set_close_on_exec(socket.native_handle());
            prepare_socket(socket.native_handle());
            self->dialled = std::make_unique<security::Stream>(std::move(socket));
            self->limit_attempt(after(SteadyClock().now(), kConnectLimit));
            std::tie(error) = co_await self->dialled->socket().async_connect(place, kAwait);
            if (!error && !self->closed) {
                // The server may not serve yet: its kernel has accepted for it.
                self->limit_attempt(self->last_moment());
                const Result<void> shaken =
                    co_await self->dialled->shake_hands(self->tls.connection());
                self->attempt_timer.cancel();
                if (!shaken) {
                    co_return shaken.error();
                }
                co_return std::move(self->dialled);
            }
            self->attempt_timer.cancel();
        }
        const bool is_late = error == asio::error::operation_aborted;
        co_return Failure(Errc::disconnected, "cannot be reached: " + (is_late ? "no answer in time"
                                                                               : error.message()));
    }

    /// When the first worker has waited long enough.
    [[nodiscard]] Instant last_moment() const {
        Instant first = Instant::max();
        for (const auto& [channel, worker] : workers) {
            first = std::min(first, after(worker->since, options.patience));
        }
        return first;
    }

    void limit_attempt(Instant end) {
        attempt_timer.expires_at(end);
        attempt_timer.async_wait([weak = self](const error_code& error) {
            const auto impl = weak.lock();
            if (impl && !error && impl->dialled) {
                impl->dialled->close();
            }
        });
    }

    [[nodiscard]] std::string place() const {
        return server.host + " port " + std::to_string(server.port);
    }

    void tell(const std::string& sentence) const {
        if (options.on_trouble) {
            options.on_trouble(sentence);
        }
    }

    void close() {
        closed = true;
        accept_loop.close();
        lookup.reset();
        pause_timer.cancel();
        attempt_timer.cancel();
        if (dialled) {
            dialled->close();
        }
        if (connection) {
            connection->close();
            connection.reset();
        }
        forget_all();
    }

    std::weak_ptr<Impl> self;
    asio::io_context& io;
    const Server server;
    const security::Tls tls;
    const Options options;
    net::AcceptLoop accept_loop;
    std::unique_ptr<net::NameLookup> lookup;
    asio::steady_timer attempt_timer;
    asio::steady_timer pause_timer;
    std::unique_ptr<security::Stream> dialled;  ///< That `dial` works on.
    std::shared_ptr<MuxConnection> connection;
    std::map<Channel, WorkerAt> workers;
    std::deque<Channel> paused;  ///< Workers with bytes for which the connection has no room.
    Channel last_channel = 0;
    std::size_t held_bytes = 0;  ///< The unread bytes of all workers.
    std::vector<char> buffer = std::vector<char>(kReadBytes);
    Instant dial_at{};
    bool dials = false;
    bool closed = false;
};

RelayClient::RelayClient(asio::io_context& io, tcp::acceptor acceptor, Server server,
                         security::Tls tls, Options options)
    : impl_(std::make_shared<Impl>(io, std::move(server), std::move(tls), std::move(options))) {
    impl_->self = impl_;
    impl_->accept_loop.start(std::move(acceptor));
}

RelayClient::~RelayClient() {
    impl_->close();
}

std::size_t RelayClient::workers_count() const noexcept {
    return impl_->workers.size();
}

}  // namespace regroup::store
