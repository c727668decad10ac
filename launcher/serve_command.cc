// SPDX-License-Identifier: Apache-2.0
#include "launcher/serve_command.h"

#include <csignal>
#include <cstdio>

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "agent/agent_core.h"
#include "launcher/run_plan.h"
#include "rendezvous/server/daemon.h"

namespace regroup::launcher {

namespace {

constexpr std::uint16_t kDefaultPort = 29400;
constexpr const char* kDialect113 = "1.13";
constexpr const char* kDialect21 = "2.1";
constexpr Duration kStopLimit = std::chrono::seconds(2);

void say(const std::string& line) {
    std::fprintf(stderr, "regroup serve: %s\n", line.c_str());
}

}  // namespace

int serve_command(std::span<const std::string> arguments) {
    std::string listen;
    std::string dialect = kDialect113;
    CLI::App app(
        "Serve the rendezvous of any number of jobs on one port, until SIGTERM.\n"
        "Agents reach it by: regroup run --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT ...\n"
        "The launchers of PyTorch meet there too: torchrun --rdzv-backend=c10d\n"
        "--rdzv-endpoint=HOST:PORT --rdzv-conf=is_host=false ...",
        "regroup serve");
    app.add_option("--listen", listen,
                   "Address and port to listen on, as ADDR:PORT or [IPV6]:PORT; without ADDR "
                   "(:PORT) all addresses [:29400]");
    app.add_option(
        "--store-dialect", dialect,
        "Release whose store protocol is spoken by clients older than PyTorch 2.2, which "
        "cannot be told apart: 1.13 (2.0 as well) or 2.1 [1.13]");
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    try {
        app.parse(reversed);
    } catch (const CLI::CallForHelp&) {
        std::fputs(app.help().c_str(), stdout);
        return 0;
    } catch (const CLI::ParseError& error) {
        say(error.what());
        return agent::kExitUsage;
    }
    const bool everywhere = listen.empty() || listen.starts_with(":");
    Result<rendezvous::Endpoint> where =
        parse_endpoint(everywhere && !listen.empty() ? "all" + listen : listen, kDefaultPort);
    if (!where) {
        say("--listen '" + listen + "' must be ADDR:PORT, [IPV6]:PORT or :PORT");
        return agent::kExitUsage;
    }
    if (dialect != kDialect113 && dialect != kDialect21) {
        say("--store-dialect '" + dialect + "' must be 1.13 or 2.1");
        return agent::kExitUsage;
    }

    boost::asio::io_context io(1);
    const SteadyClock clock;
    rendezvous::Daemon daemon(io, clock, rendezvous::DaemonLimits(), say);
    daemon.set_older_dialect(dialect == kDialect21 ? store::Dialect::v2_1 : store::Dialect::v1_13);
    const Result<std::uint16_t> port = daemon.listen(everywhere ? "" : where->host, where->port);
    if (!port) {
        say("cannot listen: " + port.error().detail);
        return agent::kExitUsage;
    }
    where->host = everywhere ? "*" : where->host;
    where->port = *port;
    say("listening on " + where->text());

    boost::asio::signal_set signals(io, SIGTERM, SIGINT);
    signals.async_wait([&](boost::system::error_code error, int signal) {
        if (!error) {
            const std::string name = rendezvous::signal_name(signal);
            say("stopping on " + name);
            daemon.stop("the daemon", "the daemon was stopped by " + name, kStopLimit,
                        [&] { io.stop(); });
        }
    });
    io.run();
    return 0;
}

}  // namespace regroup::launcher
