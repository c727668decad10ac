// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/daemon.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "rendezvous/net/listen.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/framing.h"
#include "rendezvous/server/first_bytes.h"
#include "rendezvous/server/job_table.h"
#include "rendezvous/server/launcher_store.h"
#include "rendezvous/server/session.h"
#include "rendezvous/store/store_wire.h"

namespace regroup::rendezvous {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
// A heartbeat has a hundred bytes, and there are thousands of connections.
constexpr std::size_t kReadBytes = 4096;
constexpr Duration kSweepInterval = std::chrono::seconds(1);

/// Hosts whose store clients speak an older dialect are remembered, up to this many.
constexpr std::size_t kOlderHostsMax = 4096;

}  // namespace

struct Daemon::Impl {
    Impl(asio::io_context& io_in, const Clock& clock_in, const DaemonLimits& limits_in, Log log_in)
        : io(io_in),
          clock(clock_in),
          limits(limits_in),
          log(std::move(log_in)),
          sweep_timer(io_in),
          flush_timer(io_in) {}

    static asio::awaitable<void> accept(std::shared_ptr<Impl> self);
    static asio::awaitable<void> serve(std::shared_ptr<Impl> self,
                                       std::shared_ptr<Session> session);

    void open(tcp::socket socket);
    void turn_away(tcp::socket& socket, const std::string& peer);
    /// Of a connection's first bytes: false once the session is to be read no further.
    bool begin(const std::shared_ptr<Session>& session, std::string_view bytes);
    void hand_to_store(Session& session);
    /// False once the session is to be read no further.
    bool consume(const std::shared_ptr<Session>& session, std::string_view bytes);
    void send(const std::shared_ptr<Session>& session, const FromDaemon& message);
    void refuse(const std::shared_ptr<Session>& session, Errc code, const std::string& reason);
    void end(const std::shared_ptr<Session>& session);
    void sweep();
    void expire(Session& session);
    [[nodiscard]] std::size_t connections_count() const;
    void check_flushed();
    void flush(Duration limit, std::function<void()> done);

    /// Handlers keep the Impl alive: they may run, cancelled, after the Daemon is gone.
    std::weak_ptr<Impl> self;
    asio::io_context& io;
    const Clock& clock;
    DaemonLimits limits;
    Log log;
    StoreHandler store_handler;
    store::Dialect older_dialect = store::Dialect::v1_13;
    std::unique_ptr<LauncherStore> store;  ///< For whom there is no store_handler.
    std::set<std::string> older_hosts;
    std::unique_ptr<tcp::acceptor> acceptor;
    asio::steady_timer sweep_timer;
    asio::steady_timer flush_timer;
    std::function<void()> on_flushed;
    std::unique_ptr<JobTable> jobs;  ///< None once the Daemon is gone.
    std::set<std::shared_ptr<Session>> sessions;
    DaemonTraffic traffic;
    bool closed = false;
};

// ---- Connections.

asio::awaitable<void> Daemon::Impl::accept(std::shared_ptr<Impl> self) {
    while (!self->closed) {
        auto [error, socket] = co_await self->acceptor->async_accept(kAwait);
        if (self->closed) {
            co_return;
        }
        if (!error) {
            self->open(std::move(socket));
            continue;
        }
        // Out of descriptors, most likely: wait for some to come back rather than spin.
        self->log("cannot accept a connection: " + error.message());
        asio::steady_timer pause(self->io, std::chrono::milliseconds(200));
        co_await pause.async_wait(kAwait);
    }
}

void Daemon::Impl::open(tcp::socket socket) {
    auto session = std::make_shared<Session>(std::move(socket), [impl = self](std::size_t bytes) {
        if (const auto alive = impl.lock()) {
            alive->traffic.bytes_out += bytes;
            alive->check_flushed();
        }
    });
    if (!session->is_known()) {
        return;  // Gone already.
    }
    if (connections_count() >= limits.sessions_max) {
        turn_away(session->socket, session->peer);
        return;
    }
    session->expires = after(clock.now(), limits.hello_limit);
    sessions.insert(session);
    asio::co_spawn(io, serve(self.lock(), session), asio::detached);
}

std::size_t Daemon::Impl::connections_count() const {
    return sessions.size() + (store ? store->clients_count() : 0);
}

// Told in passing, and not kept: otherwise the limit would be none.
void Daemon::Impl::turn_away(tcp::socket& socket, const std::string& peer) {
    const std::string reason =
        "the daemon has " + std::to_string(connections_count()) + " connections already";
    log("refused " + peer + ": " + reason);
    const std::string frame =
        protocol::make_frame(protocol::encode(Refused{Errc::overloaded, reason}));
    ErrorCode ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(frame), ignored);  // A new socket's buffer takes it whole.
}

asio::awaitable<void> Daemon::Impl::serve(std::shared_ptr<Impl> self,
                                          std::shared_ptr<Session> session) {
    std::vector<char> buffer(kReadBytes);
    bool open = true;
    while (open && session->socket.is_open()) {
        const auto [error, count] =
            co_await session->socket.async_read_some(asio::buffer(buffer), kAwait);
        if (session->goes_to_store && session->socket.is_open() && !self->closed) {
            session->first_bytes.append(buffer.data(), count);
            self->hand_to_store(*session);
            break;
        }
        if (error || !session->socket.is_open()) {
            break;  // Closed meanwhile, perhaps with the Daemon.
        }
        const std::string_view bytes(buffer.data(), count);
        self->traffic.bytes_in += count;
        open = session->protocol_told ? self->consume(session, bytes) : self->begin(session, bytes);
    }
    self->end(session);
}

bool Daemon::Impl::begin(const std::shared_ptr<Session>& session, std::string_view bytes) {
    session->first_bytes.append(bytes);
    switch (tell_protocol(session->first_bytes)) {
        case PortProtocol::undecided:
            return true;
        case PortProtocol::control:
            session->protocol_told = true;
            return consume(session, std::exchange(session->first_bytes, {}));
        case PortProtocol::store:
            break;
    }
    const bool is_older = !session->first_bytes.starts_with(std::string_view("\0\xCE", 2));
    if (is_older && older_hosts.size() < kOlderHostsMax) {
        older_hosts.insert(session->address);
    }
    hand_to_store(*session);
    return false;
}

void Daemon::Impl::hand_to_store(Session& session) {
    session.protocol_told = true;
    if (store_handler) {
        store_handler(std::move(session.socket), std::move(session.first_bytes));
        return;
    }
    store->adopt(std::move(session.socket), std::move(session.first_bytes));
}

bool Daemon::Impl::consume(const std::shared_ptr<Session>& session, std::string_view bytes) {
    // What a refused peer still sends is read and thrown away, so that it can read the refusal
    // instead of being reset.
    if (!session->close_when_flushed) {
        session->reader.feed(bytes);
    }
    while (!session->close_when_flushed && session->socket.is_open()) {
        Result<std::optional<std::string>> payload = session->reader.next();
        if (!payload) {
            refuse(session, payload.error().code, payload.error().detail);
            break;
        }
        if (!*payload) {
            return true;
        }
        ++traffic.messages_in;
        Result<FromAgent> message = protocol::decode_from_agent(**payload);
        if (!message) {
            refuse(session, message.error().code, message.error().detail);
            break;
        }
        jobs->handle(session, std::move(*message));
        if (!session->close_when_flushed) {
            session->expires = after(clock.now(), session->silence_limit);
        }
    }
    return session->socket.is_open();
}

void Daemon::Impl::send(const std::shared_ptr<Session>& session, const FromDaemon& message) {
    if (!session->socket.is_open() || session->close_when_flushed) {
        return;
    }
    ++traffic.messages_out;
    std::string frame = protocol::make_frame(protocol::encode(message));
    if (!Session::send(session, std::move(frame), limits.outbox_frames_max)) {
        log("disconnected " + session->peer + ": it does not read what it is sent");
        session->close();
    }
}

void Daemon::Impl::refuse(const std::shared_ptr<Session>& session, Errc code,
                          const std::string& reason) {
    log((session->job.empty() ? "" : "job " + session->job + ": ") + "refused " + session->peer +
        ": " + reason);
    send(session, Refused{code, reason});
    session->close_when_flushed = true;
}

void Daemon::Impl::end(const std::shared_ptr<Session>& session) {
    session->close();
    sessions.erase(session);
    if (jobs) {
        jobs->end(session);
    }
    check_flushed();
}

// Once a second: connections that say nothing, and jobs that nobody needs.
void Daemon::Impl::sweep() {
    sweep_timer.expires_after(std::min(kSweepInterval, limits.hello_limit));
    sweep_timer.async_wait([impl = self.lock()](ErrorCode error) {
        if (error || impl->closed) {
            return;
        }
        const Instant now = impl->clock.now();
        for (const auto& session : impl->sessions) {
            if (now >= session->expires) {
                impl->expire(*session);
            }
        }
        impl->store->sweep();
        impl->jobs->sweep();
        impl->sweep();
    });
}

// PyTorch 1.13 has a second connection for each store and never says a word on it, but does not
// bear its end.
void Daemon::Impl::expire(Session& session) {
    if (session.protocol_told || !session.first_bytes.empty() ||
        !older_hosts.contains(session.address)) {
        session.close();
        return;
    }
    session.goes_to_store = true;
    ErrorCode ignored;
    session.socket.cancel(ignored);
}

void Daemon::Impl::check_flushed() {
    if (!on_flushed) {
        return;
    }
    const bool flushed = std::all_of(sessions.begin(), sessions.end(),
                                     [](const auto& session) { return session->is_flushed(); });
    if (flushed) {
        flush_timer.cancel();
        asio::post(io, std::exchange(on_flushed, nullptr));
    }
}

void Daemon::Impl::flush(Duration limit, std::function<void()> done) {
    on_flushed = std::move(done);
    flush_timer.expires_after(limit);
    flush_timer.async_wait([impl = self.lock()](ErrorCode error) {
        if (!error && impl->on_flushed) {
            std::exchange(impl->on_flushed, nullptr)();
        }
    });
    check_flushed();
}

// ---- The public face.

Daemon::Daemon(asio::io_context& io, const Clock& clock, const DaemonLimits& limits, Log log)
    : impl_(std::make_shared<Impl>(io, clock, limits, std::move(log))) {
    impl_->self = impl_;
    // The table is gone before the Impl is.
    Impl& impl = *impl_;
    JobTable::Hooks hooks;
    hooks.send = [&impl](const std::shared_ptr<Session>& session, const FromDaemon& message) {
        impl.send(session, message);
    };
    hooks.refuse = [&impl](const std::shared_ptr<Session>& session, Errc code,
                           const std::string& reason) { impl.refuse(session, code, reason); };
    hooks.log = impl.log;
    impl.jobs = std::make_unique<JobTable>(io, clock, limits, std::move(hooks));
}

Daemon::~Daemon() {
    impl_->closed = true;
    impl_->log = [](const std::string&) {};
    impl_->store_handler = nullptr;
    impl_->on_flushed = nullptr;
    ErrorCode ignored;
    if (impl_->acceptor) {
        impl_->acceptor->close(ignored);
    }
    for (const auto& session : impl_->sessions) {
        session->close();
    }
    impl_->store.reset();
    impl_->jobs.reset();
    impl_->sweep_timer.cancel();
    impl_->flush_timer.cancel();
}

Result<std::uint16_t> Daemon::listen(const std::string& address, std::uint16_t port) {
    Result<tcp::acceptor> acceptor = net::listen_on(impl_->io, address, port);
    if (!acceptor) {
        return acceptor.error();
    }
    impl_->acceptor = std::make_unique<tcp::acceptor>(std::move(*acceptor));
    LauncherStore::Options options;
    options.address = address;
    options.older_dialect = impl_->older_dialect;
    options.jobs_max = impl_->limits.jobs_max;
    impl_->store =
        std::make_unique<LauncherStore>(impl_->io, impl_->clock, std::move(options), impl_->log);
    asio::co_spawn(impl_->io, Impl::accept(impl_), asio::detached);
    impl_->sweep();
    return impl_->acceptor->local_endpoint().port();
}

void Daemon::set_store_handler(StoreHandler handler) {
    impl_->store_handler = std::move(handler);
}

void Daemon::use_journal(std::unique_ptr<journal::Journal> journal) {
    impl_->jobs->use(std::move(journal));
}

bool Daemon::keeps_jobs() const {
    return impl_->jobs->has_journal();
}

void Daemon::set_older_dialect(store::Dialect dialect) {
    impl_->older_dialect = dialect;
}

void Daemon::stop(const std::string& author, const std::string& reason, Duration limit,
                  std::function<void()> done) {
    impl_->jobs->stop(author, reason);
    impl_->closed = true;
    ErrorCode ignored;
    if (impl_->acceptor) {
        impl_->acceptor->close(ignored);
    }
    flush(limit, std::move(done));
}

void Daemon::resign(Duration limit, std::function<void()> done) {
    impl_->closed = true;
    ErrorCode ignored;
    if (impl_->acceptor) {
        impl_->acceptor->close(ignored);
    }
    impl_->jobs->resign([impl = impl_, limit, done = std::move(done)]() mutable {
        impl->flush(limit, std::move(done));
    });
}

void Daemon::flush(Duration limit, std::function<void()> done) {
    impl_->flush(limit, std::move(done));
}

std::size_t Daemon::sessions_count() const {
    return impl_->sessions.size();
}

std::size_t Daemon::open_jobs() const {
    return impl_->jobs->open_jobs();
}

const DaemonTraffic& Daemon::traffic() const {
    return impl_->traffic;
}

}  // namespace regroup::rendezvous
