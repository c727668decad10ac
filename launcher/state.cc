// SPDX-License-Identifier: Apache-2.0
#include "launcher/state.h"

#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "launcher/etcd_flags.h"
#include "launcher/event_log.h"
#include "launcher/flag_values.h"
#include "launcher/host.h"
#include "launcher/run_plan.h"
#include "rendezvous/base/wall_clock.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/journal/etcd_client.h"
#include "rendezvous/journal/etcd_journal.h"
#include "rendezvous/journal/sqlite_journal.h"

namespace regroup::launcher {

namespace {

constexpr std::string_view kEtcd = "etcd://";
constexpr std::string_view kEtcdTls = "etcds://";
constexpr std::uint16_t kEtcdPort = 2379;
// With its default settings, etcd gives no shorter lease.
constexpr std::int64_t kLeaseSecondsMin = 2;
constexpr std::int64_t kLeaseSecondsMax = 600;

bool is_etcd(const std::string& where) {
    return where.starts_with(kEtcd) || where.starts_with(kEtcdTls);
}

/// The first mistake in the flags of etcd, or "".
std::string mistake_in(const journal::EtcdAccess& access) {
    const bool has_files =
        !access.ca_file.empty() || !access.cert_file.empty() || !access.key_file.empty();
    if (has_files && !access.tls) {
        return "--etcd-cacert, --etcd-cert and --etcd-key are for TLS; write --state=etcds://...";
    }
    if (access.cert_file.empty() && !access.key_file.empty()) {
        return "--etcd-key needs --etcd-cert, too";
    }
    if (access.user.empty() != access.password_file.empty()) {
        return "--etcd-user and --etcd-password-file need each other";
    }
    if (!access.user.empty() && !access.tls) {
        return "--etcd-user would send its password over the network as plain text; let etcd serve "
               "TLS, and write --state=etcds://...";
    }
    return "";
}

Result<std::unique_ptr<journal::Journal>> open_etcd(boost::asio::io_context& io, const Clock& clock,
                                                    const StateOptions& options) {
    journal::EtcdJournal::Options etcd;
    etcd.advertise = options.advertise;
    etcd.lease = options.lease;
    etcd.access = options.access;
    etcd.access.tls = options.where.starts_with(kEtcdTls);
    const std::string scheme(etcd.access.tls ? kEtcdTls : kEtcd);
    const std::string hosts = options.where.substr(scheme.size());
    if (hosts.empty()) {
        return Failure(Errc::invalid_argument, scheme + " must be followed by HOST:PORT");
    }
    Result<std::vector<rendezvous::Endpoint>> endpoints =
        rendezvous::parse_endpoints(hosts, kEtcdPort, "etcd at");
    if (!endpoints) {
        return endpoints.error();
    }
    etcd.endpoints = *std::move(endpoints);
    if (!rendezvous::Endpoint::parse(options.advertise)) {
        return Failure(Errc::invalid_argument,
                       "--advertise '" + options.advertise + "' must be HOST:PORT");
    }
    if (const std::string mistake = mistake_in(etcd.access); !mistake.empty()) {
        return Failure(Errc::invalid_argument, mistake);
    }
    if (const Result<void> checked = journal::EtcdClient::check(etcd.access); !checked) {
        return checked.error();
    }
    return std::unique_ptr<journal::Journal>(
        std::make_unique<journal::EtcdJournal>(io, clock, std::move(etcd)));
}

}  // namespace

void add_state_flags(FlagTable& flags, StateOptions& out) {
    flags.value({"--state", "DIR|etcd://HOST:PORT[,...]|none", "~/.local/state/regroup/serve-PORT",
                 "Where the daemon keeps its jobs. When it is started again, or when another "
                 "daemon of the same etcd takes the lead, the jobs go on. etcds:// for an etcd "
                 "with TLS. none: in memory only",
                 "--state=/var/lib/regroup"},
                text_into(out.where));
    flags.value({"--lease", "SECONDS", "3",
                 "With etcd: another daemon takes the lead when the leading one has been silent "
                 "for so long",
                 "--lease=5"},
                [&out](const std::string& text) {
                    std::int64_t seconds = 0;
                    std::string wrong =
                        number_into(seconds, kLeaseSecondsMin, kLeaseSecondsMax)(text);
                    out.lease = wrong.empty() ? std::chrono::seconds(seconds) : out.lease;
                    return wrong;
                });
    flags.value({"--advertise", "HOST:PORT", "the address of --listen, or the name of the host",
                 "With etcd: address at which agents reach this daemon when it leads",
                 "--advertise=node0:29400"},
                text_into(out.advertise));
    add_etcd_flags(flags, out.access);
}

std::string usual_state(std::uint16_t port) {
    const std::string folder = state_folder();
    return folder.empty() ? "" : folder + "/serve-" + std::to_string(port);
}

Result<std::unique_ptr<journal::Journal>> open_state(boost::asio::io_context& io,
                                                     const Clock& clock,
                                                     const StateOptions& options) {
    if (!options.keeps_jobs()) {
        return std::unique_ptr<journal::Journal>();
    }
    if (is_etcd(options.where)) {
        return open_etcd(io, clock, options);
    }
    if (!options.is_directory()) {
        return Failure(Errc::invalid_argument,
                       "'" + options.where +
                           "' must be a directory, etcd://HOST:PORT, etcds://HOST:PORT (etcd with "
                           "TLS) or none");
    }
    Result<std::unique_ptr<journal::SqliteJournal>> opened =
        journal::SqliteJournal::open(options.where, wall_ms());
    if (!opened) {
        return opened.error();
    }
    return std::unique_ptr<journal::Journal>(std::move(*opened));
}

}  // namespace regroup::launcher
