// SPDX-License-Identifier: Apache-2.0
#include "launcher/state.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "launcher/flag_values.h"
#include "launcher/run_plan.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/journal/etcd_journal.h"
#include "rendezvous/journal/sqlite_journal.h"

namespace regroup::launcher {

namespace {

constexpr std::string_view kEtcd = "etcd://";
constexpr std::uint16_t kEtcdPort = 2379;
// With its default settings, etcd gives no shorter lease.
constexpr std::int64_t kLeaseSecondsMin = 2;
constexpr std::int64_t kLeaseSecondsMax = 600;

std::int64_t wall_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

Result<std::unique_ptr<journal::Journal>> open_etcd(boost::asio::io_context& io, const Clock& clock,
                                                    const StateOptions& options) {
    journal::EtcdJournal::Options etcd;
    etcd.advertise = options.advertise;
    etcd.lease = options.lease;
    std::string rest = options.where.substr(kEtcd.size());
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find(','), rest.size());
        Result<rendezvous::Endpoint> endpoint =
            parse_endpoint(rest.substr(0, end), kEtcdPort, "etcd at");
        if (!endpoint) {
            return endpoint.error();
        }
        etcd.endpoints.push_back(std::move(*endpoint));
        rest.erase(0, end + 1);
    }
    if (etcd.endpoints.empty()) {
        return Failure(Errc::invalid_argument, "etcd:// must be followed by HOST:PORT");
    }
    if (!rendezvous::Endpoint::parse(options.advertise)) {
        return Failure(Errc::invalid_argument,
                       "--advertise '" + options.advertise + "' must be HOST:PORT");
    }
    return std::unique_ptr<journal::Journal>(
        std::make_unique<journal::EtcdJournal>(io, clock, std::move(etcd)));
}

}  // namespace

void add_state_flags(FlagTable& flags, StateOptions& out) {
    flags.value({"--state", "DIR|etcd://HOST:PORT[,...]|none", "~/.local/state/regroup/serve-PORT",
                 "Where the daemon keeps its jobs. When it is started again, or when another "
                 "daemon of the same etcd takes the lead, the jobs go on. none: in memory only",
                 "--state=/var/lib/regroup", "-", true},
                text_into(out.where));
    flags.value({"--lease", "SECONDS", "3",
                 "With etcd: another daemon takes the lead when the leading one has been silent "
                 "for so long",
                 "--lease=5", "-", true},
                [&out](const std::string& text) {
                    std::int64_t seconds = 0;
                    std::string wrong =
                        number_into(seconds, kLeaseSecondsMin, kLeaseSecondsMax)(text);
                    out.lease = wrong.empty() ? std::chrono::seconds(seconds) : out.lease;
                    return wrong;
                });
    flags.value({"--advertise", "HOST:PORT", "the address of --listen, or the name of the host",
                 "With etcd: address at which agents reach this daemon when it leads",
                 "--advertise=node0:29400", "-", true},
                text_into(out.advertise));
}

bool is_directory(const std::string& where) {
    return !where.empty() && where != "none" && !where.starts_with(kEtcd);
}

std::string usual_state(std::uint16_t port) {
    const std::string name = "/regroup/serve-" + std::to_string(port);
    const char* state = std::getenv("XDG_STATE_HOME");
    if (state != nullptr && *state == '/') {
        return state + name;
    }
    const char* home = std::getenv("HOME");
    return home != nullptr && *home == '/' ? std::string(home) + "/.local/state" + name : "";
}

Result<std::unique_ptr<journal::Journal>> open_state(boost::asio::io_context& io,
                                                     const Clock& clock,
                                                     const StateOptions& options) {
    if (options.where.empty() || options.where == "none") {
        return std::unique_ptr<journal::Journal>();
    }
    if (options.where.starts_with(kEtcd)) {
        return open_etcd(io, clock, options);
    }
    Result<std::unique_ptr<journal::SqliteJournal>> opened =
        journal::SqliteJournal::open(options.where, wall_ms());
    if (!opened) {
        return opened.error();
    }
    return std::unique_ptr<journal::Journal>(std::move(*opened));
}

}  // namespace regroup::launcher
