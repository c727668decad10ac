// SPDX-License-Identifier: Apache-2.0
#include "launcher/observer_flags.h"

#include <unistd.h>

#include "launcher/flag_values.h"
#include "launcher/host.h"
#include "launcher/run_plan.h"
#include "launcher/say.h"
#include "launcher/trust.h"
#include "rendezvous/base/exit_code.h"

namespace regroup::launcher {

void add_observer_flags(FlagTable& flags, ObserverOptions& out) {
    flags.value({"--endpoint", "HOST:PORT[,HOST:PORT...]", "localhost:29400",
                 "Address of the daemon: the same as --rdzv-endpoint of the nodes",
                 "--endpoint=node0:29400", "-", true},
                text_into(out.endpoints));
    flags.value({"--timeout", "SECONDS", "10", "How long to wait for an answer of the daemon",
                 "--timeout=3", "-", true},
                seconds_into(out.limit));
    add_trust_flags(flags, out.trust);
}

Result<EventReader::Options> reader_options(const ObserverOptions& options) {
    const auto endpoints =
        rendezvous::parse_endpoints(options.endpoints, kRendezvousPort, "--endpoint");
    if (!endpoints) {
        return endpoints.error();
    }
    Result<security::Credentials> credentials = read_credentials(options.trust);
    if (!credentials) {
        return credentials.error();
    }
    EventReader::Options reader;
    reader.endpoints = *endpoints;
    reader.wish.job = options.job;
    reader.wish.action = rendezvous::Operate::Action::events;
    reader.wish.author = user_name(::getuid()) + "@" + short_host_name();
    reader.limit = options.limit;
    reader.identity = {std::move(*credentials), {security::Role::observer, options.job}};
    return reader;
}

int usage_error(const std::string& command, const std::string& line) {
    complain(command, line);
    return kExitUsage;
}

int exit_code_of(const std::string& command, const Result<void>& read) {
    if (read) {
        return 0;
    }
    complain(command, read.error().detail);
    return read.error().code == Errc::disconnected ? kExitNoRendezvous : kExitJobFailed;
}

}  // namespace regroup::launcher
