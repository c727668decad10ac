// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/daemon.h"

#include <algorithm>
#include <cctype>
#include <sys/resource.h>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "rendezvous/net/address.h"
#include "rendezvous/net/listen.h"
#include "rendezvous/security/peer_user.h"
#include "rendezvous/server/daemon_impl.h"
#include "rendezvous/store/store_wire.h"

namespace regroup::rendezvous {

namespace {

/// Connections leave descriptors for the rest of the process.
DaemonLimits within_descriptors(DaemonLimits limits) {
    rlimit descriptors{};
    if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
        const auto quarter = static_cast<std::size_t>(
            std::min<rlim_t>(descriptors.rlim_cur / 4, limits.sessions_max));
        limits.strangers_max = std::min(limits.strangers_max, quarter);
        limits.sessions_max = std::min(limits.sessions_max, 2 * quarter);
    }
    return limits;
}

}  // namespace

Daemon::Daemon(asio::io_context& io, const Clock& clock, const DaemonLimits& limits, Log log)
    : impl_(std::make_shared<Impl>(io, clock, within_descriptors(limits), std::move(log))) {
    impl_->self = impl_;
    // The table is destroyed before the Impl.
    Impl& impl = *impl_;
    JobTable::Hooks hooks;
    hooks.send = [&impl](const std::shared_ptr<Session>& session, const FromDaemon& message) {
        impl.send(session, message);
    };
    hooks.send_parts = [&impl](const std::shared_ptr<Session>& session,
                               std::function<std::optional<FromDaemon>()> next) {
        impl.send_parts(session, std::move(next));
    };
    hooks.refuse = [&impl](const std::shared_ptr<Session>& session, Errc code,
                           const std::string& reason) { impl.refuse(session, code, reason); };
    hooks.log = impl.log;
    hooks.event = [&impl](const std::string& job, const RecordedEvent& event) {
        if (const auto* verdict = std::get_if<Boxed<Verdict>>(&event.event.detail)) {
            ++impl.counters.jobs_ended[static_cast<std::size_t>((*verdict)->outcome)];
        }
        impl.pages->publish(job, event);
        for (const EventSink& sink : impl.event_sinks) {
            sink.on_event(job, event);
        }
    };
    hooks.restored = [&impl](const std::string& job, std::int64_t began_ms,
                             const JobHistory& history) {
        for (const EventSink& sink : impl.event_sinks) {
            sink.on_restored(job, began_ms, history);
        }
    };
    impl.jobs = std::make_unique<JobTable>(io, clock, limits, std::move(hooks));
    impl.counters.began_ms = JobTable::wall_ms();
    impl.pages = std::make_unique<DaemonPages>(
        io, clock, *impl.jobs, [&impl] { return impl.counted(); }, impl.log);
    impl.door = std::make_unique<http::Door>(
        http::Door::Inside{io, clock, *impl.pages, impl.credentials, impl.http_hosts}, limits.http,
        [&impl](const std::string& kind, const std::string& address, const std::string& line) {
            impl.count_refusal(kind);
            impl.refusals.log(kind, address, line, impl.clock.now());
        });
}

Daemon::~Daemon() {
    impl_->closed = true;
    impl_->log = [](const std::string&) {};
    impl_->store_handler = nullptr;
    impl_->event_sinks.clear();
    impl_->on_flushed = nullptr;
    ErrorCode ignored;
    if (impl_->acceptor) {
        impl_->acceptor->close(ignored);
    }
    for (const auto& session : impl_->sessions) {
        session->close();
    }
    impl_->door.reset();
    impl_->store.reset();
    impl_->pages.reset();
    impl_->jobs.reset();
    impl_->sweep_timer.cancel();
    impl_->flush_timer.cancel();
}

Result<std::uint16_t> Daemon::listen(const std::string& address, std::uint16_t port) {
    Result<tcp::acceptor> acceptor = net::listen_on(impl_->io, address, port);
    return acceptor ? listen(*std::move(acceptor)) : acceptor.error();
}

Result<std::uint16_t> Daemon::listen(tcp::acceptor acceptor) {
    ErrorCode error;
    const tcp::endpoint own = acceptor.local_endpoint(error);
    if (error) {
        return system_failure("cannot read the address of the listening socket", error.value());
    }
    impl_->acceptor = std::make_unique<tcp::acceptor>(std::move(acceptor));
    if (impl_->serves_torchrun) {
        LauncherStore::Options options;
        // Where there is IPv6, that of all addresses is for IPv4 too.
        const bool everywhere = own.address().is_unspecified() && own.address().is_v6();
        options.address = everywhere ? "" : net::plain(own.address()).to_string();
        options.older_dialect = impl_->older_dialect;
        options.jobs_max = impl_->limits.jobs_max;
        if (!impl_->credentials.insecure) {
            options.objection = [impl = impl_.get()](const tcp::endpoint& ours,
                                                     const tcp::endpoint& theirs) {
                return impl->peer_users.object_to_stranger(ours, theirs);
            };
        }
        impl_->store = std::make_unique<LauncherStore>(impl_->io, impl_->clock, std::move(options),
                                                       impl_->log);
    }
    asio::co_spawn(impl_->io, Impl::accept(impl_), asio::detached);
    impl_->sweep();
    return own.port();
}

Result<void> Daemon::set_credentials(security::Credentials credentials) {
    impl_->credentials = std::move(credentials);
    // Otherwise OpenSSL is not used before a peer speaks TLS: it takes a millisecond to start.
    return impl_->credentials.certificates ? impl_->open_tls() : Result<void>();
}

void Daemon::set_http_hosts(const std::set<std::string>& names) {
    impl_->http_hosts.clear();
    for (std::string name : names) {
        std::ranges::transform(name, name.begin(), [](unsigned char letter) {
            return static_cast<char>(std::tolower(letter));
        });
        impl_->http_hosts.insert(std::move(name));
    }
}

void Daemon::add_event_sink(EventSink sink) {
    impl_->event_sinks.push_back(std::move(sink));
}

const JobHistory* Daemon::history(const std::string& job) const {
    return impl_->jobs->history(job);
}

void Daemon::serve_torchrun() {
    impl_->serves_torchrun = true;
}

void Daemon::set_store_handler(StoreHandler handler) {
    impl_->store_handler = std::move(handler);
}

void Daemon::use_journal(std::unique_ptr<journal::Journal> journal, Log log) {
    impl_->jobs->use(std::move(journal), std::move(log));
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
    impl_->jobs->end_waits();
    impl_->flush(limit, std::move(done));
}

std::size_t Daemon::sessions_count() const {
    return impl_->sessions.size();
}

std::size_t Daemon::http_clients_count() const {
    return impl_->door->connections_count();
}

std::size_t Daemon::open_jobs() const {
    return impl_->jobs->open_jobs();
}

const DaemonTraffic& Daemon::traffic() const {
    return impl_->traffic;
}

}  // namespace regroup::rendezvous
