// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_relay/relay_client.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
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
#include "rendezvous/store/peer_socket.h"
#include "rendezvous/store_relay/dialer.h"
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
constexpr Duration kPauseFirst = std::chrono::milliseconds(20);
constexpr Duration kPauseLongest = std::chrono::seconds(1);

struct Worker {
    Worker(asio::io_context& io, Channel channel_in)
        : channel(channel_in), socket(io), since(SteadyClock().now()) {}

    const Channel channel;
    stream_descriptor socket;
    const Instant since;
    Outbox outbox;  ///< From the server.
    bool awaits_writable = false;
};
using WorkerAt = std::shared_ptr<Worker>;

}  // namespace

struct RelayClient::Impl {
    Impl(asio::io_context& io_in, Server server_in, security::Tls tls_in, Options options_in)
        : io(io_in),
          dialer(io_in, std::move(server_in.host), server_in.port, std::move(tls_in)),
          options(std::move(options_in)),
          accept_loop(
              io_in, [this](int fd) { accepted(fd); },
              [this](const std::string& reason) {
                  if (options.on_trouble) {
                      options.on_trouble("the store accepts no more clients for now: " + reason);
                  }
              }),
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
        const ssize_t bytes = receive_some(worker->socket.native_handle(), buffer.data(),
                                           std::min(room, buffer.size()));
        if (bytes < 0) {
            end(worker);
            return;
        }
        connection->send_some(worker->channel, {buffer.data(), static_cast<std::size_t>(bytes)});
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
        worker->outbox.bytes.append(bytes);
        held_bytes += bytes.size();
        flush(worker);
        const std::size_t limit = options.limits.reply_bytes_max;
        if (worker->outbox.unsent().size() > limit) {
            refuse(worker, "it does not read its replies; the limit is " + std::to_string(limit) +
                               " bytes");
        } else if (held_bytes > options.limits.clients_bytes_max) {
            const auto most =
                std::max_element(workers.begin(), workers.end(), [](const auto& a, const auto& b) {
                    return a.second->outbox.unsent().size() < b.second->outbox.unsent().size();
                });
            refuse(WorkerAt(most->second), "it has the most unread replies; the limit for all is " +
                                               std::to_string(options.limits.clients_bytes_max) +
                                               " bytes");
        }
    }

    void flush(const WorkerAt& worker) {
        if (worker->awaits_writable || !worker->socket.is_open() ||
            worker->outbox.unsent().empty()) {
            return;
        }
        const ssize_t count = send_some(worker->socket.native_handle(), worker->outbox.unsent());
        if (count < 0) {
            end(worker);
            return;
        }
        worker->outbox.drop_sent(static_cast<std::size_t>(count));
        held_bytes -= static_cast<std::size_t>(count);
        if (!worker->outbox.unsent().empty()) {
            worker->awaits_writable = true;
            worker->socket.async_wait(stream_descriptor::wait_write, handler(worker, &Impl::write));
        }
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
        held_bytes -= std::exchange(worker->outbox, {}).unsent().size();
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
            tell("lost the store at " + dialer.place() + ", which " + end.why);
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
            auto stream = co_await self->dialer.dial(self->last_moment());
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
             ": no connection to the store at " + dialer.place() + ": it " + why);
        for (const WorkerAt& worker : late) {
            forget(worker);
        }
    }

    /// When the first worker has waited long enough.
    [[nodiscard]] Instant last_moment() const {
        Instant first = Instant::max();
        for (const auto& [channel, worker] : workers) {
            first = std::min(first, after(worker->since, options.patience));
        }
        return first;
    }

    void tell(const std::string& sentence) const {
        if (options.on_trouble) {
            options.on_trouble(sentence);
        }
    }

    void close() {
        closed = true;
        accept_loop.close();
        pause_timer.cancel();
        dialer.close();
        if (connection) {
            connection->close();
            connection.reset();
        }
        forget_all();
    }

    std::weak_ptr<Impl> self;
    asio::io_context& io;
    Dialer dialer;
    const Options options;
    net::AcceptLoop accept_loop;
    asio::steady_timer pause_timer;
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
