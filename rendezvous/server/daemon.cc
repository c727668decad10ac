// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/daemon.h"

#include <algorithm>
#include <sys/resource.h>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "rendezvous/base/text.h"
#include "rendezvous/base/wall_clock.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/listen.h"
#include "rendezvous/server/daemon_impl.h"

namespace regroup::rendezvous {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr Duration kSweepInterval = std::chrono::seconds(1);
constexpr Duration kFlushInterval = std::chrono::milliseconds(5);

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

std::set<std::string> in_lower_case(const std::set<std::string>& names) {
    std::set<std::string> low;
    for (const std::string& name : names) {
        low.insert(lower(name));
    }
    return low;
}

}  // namespace

Daemon::Impl::Impl(asio::io_context& io_in, const Clock& clock_in, const DaemonSetup& setup)
    : io(io_in),
      clock(clock_in),
      limits(within_descriptors(setup.limits)),
      log(setup.log),
      peers_log(clock, counters, [this](const std::string& line) { log(line); }),
      peers(peers_log, setup.credentials),
      connections(std::make_shared<Connections>(io, clock, limits, peers_log, counters,
                                                [this](const std::string& line) { log(line); })),
      http_hosts(in_lower_case(setup.http_hosts)),
      jobs(std::make_unique<JobTable>(io, clock, limits, peers_log, log)),
      pages(std::make_unique<DaemonPages>(
          io, clock, *jobs, [this] { return counted(); }, log)),
      door(std::make_unique<http::Door>(
          http::Door::Inside{io, clock, *pages, peers.credentials(), http_hosts}, limits.http,
          [this](const std::string& kind, const std::string& address, const std::string& line) {
              peers_log.say_refused(kind, address, line);
          })),
      sweep_timer(io),
      flush_timer(io) {
    counters.began_ms = wall_ms();
    jobs->add_sink({[this](const std::string& job, const RecordedEvent& event) {
                        if (const auto* verdict =
                                std::get_if<Boxed<Verdict>>(&event.event.detail)) {
                            ++counters.jobs_ended[static_cast<std::size_t>((*verdict)->outcome)];
                        }
                        pages->publish(job, event);
                    },
                    {}});
}

void Daemon::Impl::start(const std::shared_ptr<Impl>& self, tcp::acceptor acceptor,
                         const DaemonSetup& setup) {
    self->acceptor = std::make_unique<tcp::acceptor>(std::move(acceptor));
    if (setup.serves_torchrun) {
        self->open_store(setup);
    }
    asio::co_spawn(self->io, accept(self), asio::detached);
    sweep(self);
}

void Daemon::Impl::open_store(const DaemonSetup& setup) {
    LauncherStore::Options options;
    ErrorCode ignored;
    const asio::ip::address own = acceptor->local_endpoint(ignored).address();
    // Where there is IPv6, that of all addresses is for IPv4 too.
    const bool everywhere = own.is_unspecified() && own.is_v6();
    options.address = everywhere ? "" : net::plain(own).to_string();
    options.older_dialect = setup.older_dialect;
    options.jobs_max = limits.jobs_max;
    if (!setup.credentials.insecure) {
        options.objection = [this](const tcp::endpoint& ours, const tcp::endpoint& theirs) {
            return peers.objection_to_stranger(ours, theirs);
        };
    }
    store = std::make_unique<LauncherStore>(io, clock, std::move(options), log);
}

void Daemon::Impl::stop_accepting() {
    closed = true;
    ErrorCode ignored;
    acceptor->close(ignored);
}

DaemonCounters Daemon::Impl::counted() const {
    DaemonCounters all = counters;
    all.leads = jobs->journal().role() == DaemonRole::leads;
    all.unidentified_connected = connections->strangers_count();
    all.nodes_connected = connections->nodes_count();
    all.others_connected = connections->count() - all.nodes_connected - all.unidentified_connected;
    all.http_connected = door->connections_count();
    all.store_connected = store ? store->clients_count() : 0;
    all.store_requests = store ? store->requests_count() : 0;
    return all;
}

// Once a second: closes silent connections and forgets jobs that are not needed.
void Daemon::Impl::sweep(const std::shared_ptr<Impl>& self) {
    const Duration interval = std::min(kSweepInterval, self->limits.hello_limit);
    self->sweep_timer.expires_after(interval);
    const Instant due = after(self->clock.now(), interval);
    self->sweep_timer.async_wait([self, due](ErrorCode error) {
        if (error || self->closed) {
            return;
        }
        self->counters.delays.add(std::max(self->clock.now() - due, Duration::zero()));
        for (const Held& connection : self->connections->overdue()) {
            self->expire(*connection);
        }
        self->peers_log.sweep();
        self->door->sweep();
        if (self->store) {
            self->store->sweep();
        }
        self->jobs->sweep();
        sweep(self);
    });
}

void Daemon::Impl::flush(const std::shared_ptr<Impl>& self, Duration limit,
                         std::function<void()> done) {
    const Instant until = after(self->clock.now(), limit);
    self->connections->flush(limit, [self, until, done = std::move(done)]() mutable {
        flush_door(self, until, std::move(done));
    });
}

void Daemon::Impl::flush_door(const std::shared_ptr<Impl>& self, Instant until,
                              std::function<void()> done) {
    if (!self->door || self->door->is_flushed() || self->clock.now() >= until) {
        done();
        return;
    }
    self->flush_timer.expires_after(kFlushInterval);
    self->flush_timer.async_wait([self, until, done = std::move(done)](ErrorCode error) mutable {
        if (!error) {
            flush_door(self, until, std::move(done));
        }
    });
}

Result<std::unique_ptr<Daemon>> open_daemon(asio::io_context& io, const Clock& clock,
                                            DaemonSetup setup) {
    auto impl = std::make_shared<Daemon::Impl>(io, clock, setup);
    std::unique_ptr<Daemon> daemon(new Daemon(impl));
    // Without certificates OpenSSL is not used before a peer speaks TLS: it takes a millisecond to
    // start.
    if (setup.credentials.certificates) {
        if (const Result<void> opened = impl->peers.open_tls(); !opened) {
            return opened.error();
        }
    }
    Result<tcp::acceptor> acceptor = setup.socket ? Result<tcp::acceptor>(*std::move(setup.socket))
                                                  : net::listen_on(io, setup.address, setup.port);
    if (!acceptor) {
        return acceptor.error();
    }
    ErrorCode error;
    daemon->port_ = acceptor->local_endpoint(error).port();
    if (error) {
        return system_failure("cannot read the address of the listening socket", error.value());
    }
    Daemon::Impl::start(impl, *std::move(acceptor), setup);
    if (setup.prepare) {
        setup.prepare(*daemon);
    }
    if (setup.open_journal) {
        Result<std::unique_ptr<journal::Journal>> journal = setup.open_journal(daemon->port_);
        if (!journal) {
            return journal.error();
        }
        if (*journal) {
            impl->jobs->use(*std::move(journal), setup.journal_log ? setup.journal_log : impl->log);
        }
    }
    return daemon;
}

Daemon::~Daemon() {
    impl_->closed = true;
    impl_->log = [](const std::string&) {};
    impl_->store_handler = nullptr;
    if (impl_->acceptor) {
        impl_->stop_accepting();
    }
    impl_->connections->cancel_flush();
    impl_->connections->close_all();
    impl_->door.reset();
    impl_->store.reset();
    impl_->pages.reset();
    impl_->jobs.reset();
    impl_->sweep_timer.cancel();
    impl_->flush_timer.cancel();
}

void Daemon::add_event_sink(EventSink sink) {
    impl_->jobs->add_sink(std::move(sink));
}

const JobHistory* Daemon::history(const std::string& job) const {
    const Job* const found = impl_->jobs->find(job);
    return found == nullptr ? nullptr : &found->history;
}

void Daemon::set_store_handler(StoreHandler handler) {
    impl_->store_handler = std::move(handler);
}

bool Daemon::keeps_jobs() const {
    return impl_->jobs->journal().is_used();
}

void Daemon::stop(const std::string& author, const std::string& reason, Duration limit,
                  std::function<void()> done) {
    impl_->jobs->stop(author, reason);
    impl_->stop_accepting();
    flush(limit, std::move(done));
}

void Daemon::resign(Duration limit, std::function<void()> done) {
    impl_->stop_accepting();
    impl_->jobs->resign([impl = impl_, limit, done = std::move(done)]() mutable {
        Impl::flush(impl, limit, std::move(done));
    });
}

void Daemon::flush(Duration limit, std::function<void()> done) {
    impl_->jobs->operators().end_waits();
    Impl::flush(impl_, limit, std::move(done));
}

std::size_t Daemon::sessions_count() const {
    return impl_->connections->count();
}

std::size_t Daemon::http_clients_count() const {
    return impl_->door->connections_count();
}

std::size_t Daemon::open_jobs() const {
    return impl_->jobs->open_jobs();
}

DaemonCounters Daemon::counters() const {
    return impl_->counted();
}

}  // namespace regroup::rendezvous
