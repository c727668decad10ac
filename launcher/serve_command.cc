// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>
#include <optional>
#include <set>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>

#include "agent/process/line_writer.h"
#include "agent/process/own_limits.h"
#include "launcher/commands.h"
#include "launcher/event_log.h"
#include "launcher/flag_table.h"
#include "launcher/flag_values.h"
#include "launcher/host.h"
#include "launcher/run_plan.h"
#include "launcher/say.h"
#include "launcher/state.h"
#include "launcher/systemd/passed_socket.h"
#include "launcher/systemd/service_manager.h"
#include "launcher/trust.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/http/guard.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/listen.h"
#include "rendezvous/server/daemon.h"

namespace regroup::launcher {

namespace {

using boost::asio::ip::tcp;

constexpr Duration kDaemonStopLimit = std::chrono::seconds(2);
constexpr Duration kLogLimit = std::chrono::seconds(1);
constexpr const char* kServeCommand = "regroup serve";

/// The daemon's log on stderr. It drops lines that nobody reads, since no job may wait for that.
class Log {
   public:
    Log(boost::asio::io_context& io, const Clock& clock)
        : clock_(clock), writer_(io, STDERR_FILENO, "") {}
    ~Log() { writer_.flush(clock_, after(clock_.now(), kLogLimit)); }
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;

    void say(const std::string& line) {
        writer_.write(kServeCommand + (": " + printable(line)) + "\n", 1);
    }

   private:
    const Clock& clock_;
    agent::LineWriter writer_;
};

/// Where the daemon listens.
struct ListenAddress {
    std::string host;  ///< Empty: all addresses.
    std::uint16_t port = 0;
    std::string name;                     ///< "--listen :29400".
    std::optional<tcp::acceptor> socket;  ///< If it is not by --listen.

    [[nodiscard]] std::string text() const {
        return rendezvous::Endpoint{host.empty() ? "*" : host, port}.text();
    }
};

Result<ListenAddress> listen_address_of(tcp::acceptor socket, const std::string& listen) {
    boost::system::error_code error;
    const tcp::endpoint own = socket.local_endpoint(error);
    const auto address = net::plain(own.address());
    ListenAddress place;
    place.host = address.is_unspecified() ? "" : address.to_string();
    place.port = own.port();
    place.name = "the socket of systemd, " + place.text() + ",";
    if (!listen.empty()) {
        return Failure(Errc::invalid_argument,
                       "--listen " + listen + " and a socket of systemd, " + place.text() +
                           ": take --listen away, and set the address by ListenStream= in the "
                           "socket unit");
    }
    place.socket = std::move(socket);
    return place;
}

/// The socket that systemd passes, or else what `listen` says.
Result<ListenAddress> find_place(boost::asio::io_context& io, const std::string& listen) {
    Result<std::optional<tcp::acceptor>> passed = take_passed_socket(io);
    if (!passed) {
        return passed.error();
    }
    if (*passed) {
        return listen_address_of(std::move(**passed), listen);
    }
    const bool everywhere = listen.empty() || listen.starts_with(":");
    Result<rendezvous::Endpoint> where = rendezvous::parse_endpoint(
        everywhere && !listen.empty() ? "all" + listen : listen, kRendezvousPort, "--listen");
    if (!where) {
        return Failure(Errc::invalid_argument,
                       "--listen '" + listen + "' must be ADDR:PORT, [IPV6]:PORT or :PORT");
    }
    return ListenAddress{everywhere ? "" : where->host, where->port,
                         "--listen " + (listen.empty() ? ":29400" : listen), std::nullopt};
}

/// The journal that `options` name; null, with a message, if jobs are kept in memory only. Errors:
/// --state was given and cannot be used.
Result<std::unique_ptr<journal::Journal>> open_journal(boost::asio::io_context& io,
                                                       const Clock& clock, StateOptions options,
                                                       const ListenAddress& place,
                                                       std::uint16_t port, Log& log) {
    if (options.advertise.empty()) {
        const std::string host = place.host.empty() ? full_host_name() : place.host;
        options.advertise = rendezvous::Endpoint{host, port}.text();
    }
    const bool usual = options.where.empty();
    if (usual && place.port != 0) {  // A random port is another one at the next start.
        options.where = usual_state(place.port);
    }
    Result<std::unique_ptr<journal::Journal>> journal = open_state(io, clock, options);
    if (!journal && !usual) {
        return Failure(journal.error().code, "--state: " + journal.error().detail);
    }
    if (!journal || !*journal) {
        log.say((journal ? std::string() : journal.error().detail + "; ") +
                "jobs are kept in memory only: if this daemon ends, they end or are formed anew");
        return std::unique_ptr<journal::Journal>();
    }
    log.say("jobs are kept in " + options.where);
    return journal;
}

/// Runs the daemon until one of `signals`. Jobs in a journal go on without it.
void run_until_signal(boost::asio::io_context& io, boost::asio::signal_set& signals,
                      rendezvous::Daemon& daemon, Log& log, ServiceManager& manager) {
    signals.async_wait([&](boost::system::error_code error, int signal) {
        if (error) {
            return;
        }
        const std::string name = signal_name(signal);
        const std::size_t jobs = daemon.open_jobs();
        manager.stopping("stopping on " + name);
        if (!daemon.keeps_jobs()) {
            log.say("stopping on " + name);
            daemon.stop("the daemon", "the daemon was stopped by " + name, kDaemonStopLimit,
                        [&] { io.stop(); });
            return;
        }
        log.say("stopping on " + name +
                (jobs == 0 ? ""
                           : "; jobs that go on until a daemon takes them up again: " +
                                 std::to_string(jobs)));
        daemon.resign(kDaemonStopLimit, [&] { io.stop(); });
    });
    io.run();
}

/// --http-host: each value adds a name.
FlagTable::Take host_name_into(std::set<std::string>& names) {
    return [&names](const std::string& text) -> std::string {
        if (http::host_of(text) != text) {
            return "must be a host name in lower case, without a port";
        }
        names.insert(text);
        return "";
    };
}

struct ServeOptions {
    std::string listen;
    StateOptions state;
    store::Dialect dialect = store::Dialect::v1_13;
    bool serves_torchrun = false;
    EventLogOptions event_log;
    std::set<std::string> http_hosts{full_host_name(), short_host_name()};
    security::CredentialSources trust;
};

void describe(FlagTable& flags, ServeOptions& out) {
    flags.usage = "regroup serve [FLAGS]";
    flags.introduction =
        "Run the daemon for any number of jobs on one port, until SIGTERM.\n"
        "Launchers of regroup connect by: regroup run --rdzv-backend=c10d\n"
        "--rdzv-endpoint=HOST:PORT ...\n"
        "With --serve-torchrun, launchers of PyTorch connect by: torchrun --rdzv-backend=c10d\n"
        "--rdzv-endpoint=HOST:PORT --rdzv-conf=is_host=false ...\n"
        "Under systemd it may be a service of Type=notify with a socket unit, which then says\n"
        "where it listens.";
    flags.footer =
        "After SIGTERM or SIGINT, jobs that are kept in a directory or in etcd go on until a\n"
        "daemon takes them up again. Jobs in memory are closed. regroup stop ends a job.\n"
        "Exit code: 0 after SIGTERM or SIGINT; 2 for a mistake on the command line, or a port or\n"
        "a --state that cannot be used.";
    flags.group("Flags");
    flags.value({"--listen", "ADDR:PORT", ":29400",
                 "Address and port to listen on. [IPV6]:PORT for IPv6. Without ADDR, all addresses",
                 "--listen=10.0.0.1:29400"},
                text_into(out.listen));
    add_state_flags(flags, out.state);
    flags.toggle(
        {"--serve-torchrun", "", "",
         "Let launchers of PyTorch's torchrun meet at this daemon, too. They unpickle what "
         "they read there: whoever is served can run code on all their hosts. Only "
         "processes of this user on this host are served, and with --insecure everybody "
         "who reaches the port",
         "--serve-torchrun"},
        out.serves_torchrun);
    flags.value(store_dialect_flag(), dialect_into(out.dialect));
    add_event_log_flags(flags, out.event_log);
    flags.value(
        {"--http-host", "NAME", "",
         "A further name by which browsers and scrapers call this daemon; may be given more "
         "than once. Its addresses, its host name and localhost need no flag",
         "--http-host=jobs.example.org"},
        host_name_into(out.http_hosts));
    add_trust_flags(flags, out.trust);
}

Result<CommandEnd> serve(ServeOptions options) {
    boost::asio::io_context io(1);
    ServiceManager manager;
    Result<ListenAddress> place = find_place(io, options.listen);
    if (!place) {
        return place.error();
    }

    Result<security::Credentials> credentials = read_credentials(options.trust);
    if (!credentials) {
        return credentials.error();
    }
    const bool is_local = !place->host.empty() && is_loopback_host(place->host);
    if (!is_local && !credentials->can_prove() && !credentials->insecure) {
        return invalid_argument(no_credentials(place->name).detail +
                                "; 127.0.0.1:29400 serves this user on this host only");
    }

    std::signal(SIGPIPE, SIG_IGN);  // The reader of stderr may end first.
    std::signal(SIGTTOU, SIG_IGN);  // A daemon in the background must not stop as it logs.
    agent::raise_descriptor_limit();
    const SteadyClock clock;
    Log log(io, clock);
    const Result<std::unique_ptr<EventLog>> events = EventLog::open(
        io, options.event_log, "daemon", [&log](const std::string& line) { log.say(line); });
    if (!events) {
        return events.error();
    }
    Result<tcp::acceptor> socket =
        place->socket ? *std::move(place->socket) : net::listen_on(io, place->host, place->port);
    if (!socket) {
        log.say("cannot listen: " + socket.error().detail);
        return CommandEnd{kExitUsage};
    }
    rendezvous::DaemonSetup setup;
    setup.log = [&log](const std::string& line) { log.say(line); };
    setup.socket = *std::move(socket);
    setup.credentials = *std::move(credentials);
    setup.http_hosts = std::move(options.http_hosts);
    setup.http_hosts.insert(place->host.empty() ? "localhost" : place->host);
    setup.older_dialect = options.dialect;
    setup.serves_torchrun = options.serves_torchrun;
    setup.prepare = [&](rendezvous::Daemon& prepared) {
        if (*events) {
            (*events)->write_events_of(prepared, true);
        }
    };
    setup.open_journal = [&](std::uint16_t port) {
        return open_journal(io, clock, options.state, *place, port, log);
    };
    const Result<std::unique_ptr<rendezvous::Daemon>> opened =
        rendezvous::open_daemon(io, clock, std::move(setup));
    if (!opened) {
        log.say(opened.error().detail);
        return CommandEnd{kExitUsage};
    }
    rendezvous::Daemon& daemon = **opened;
    place->port = daemon.port();
    // Before anybody hears that the daemon is there, and may stop it.
    boost::asio::signal_set signals(io, SIGTERM, SIGINT);
    const std::string where = "listening on " + place->text();
    log.say(where);
    const Result<void> told = manager.ready(io, [&] {
        const std::size_t jobs = daemon.open_jobs();
        return where + "; " + std::to_string(jobs) + (jobs == 1 ? " open job" : " open jobs");
    });
    if (!told) {
        log.say("systemd is not told that this daemon is ready: " + told.error().detail);
    }
    run_until_signal(io, signals, daemon, log, manager);
    return CommandEnd{};
}

}  // namespace

CommandEnd serve_command(std::span<const std::string> arguments) {
    ServeOptions options;
    FlagTable flags(kServeCommand);
    describe(flags, options);
    return run_with(flags, arguments, [&](const Words& words) -> Result<CommandEnd> {
        const Result<void> none = expect_no_words(words, "; jobs are started by regroup run");
        return none ? serve(std::move(options)) : none.error();
    });
}

}  // namespace regroup::launcher
