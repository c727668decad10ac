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
                 "--endpoint=node0:29400"},
                text_into(out.endpoints));
    flags.value({"--timeout", "SECONDS", "10", "How long to wait for an answer of the daemon",
                 "--timeout=3"},
                seconds_into(out.limit));
    add_trust_flags(flags, out.trust);
}

void add_job_flag(FlagTable& flags, const std::string& help, std::string& out) {
    flags.value({"--job", "ID", "", help, "--job=nightly"}, name_into(out));
}

Result<DaemonAccess> daemon_access(const ObserverOptions& options, security::Role role) {
    auto endpoints = rendezvous::parse_endpoints(options.endpoints, kRendezvousPort, "--endpoint");
    if (!endpoints) {
        return endpoints.error();
    }
    Result<security::Credentials> credentials = read_credentials(options.trust);
    if (!credentials) {
        return credentials.error();
    }
    return DaemonAccess{
        *std::move(endpoints), options.limit, {*std::move(credentials), {role, options.job}}};
}

rendezvous::Operate wish_of(const ObserverOptions& options) {
    rendezvous::Operate wish;
    wish.job = options.job;
    wish.author = user_name(::getuid()) + "@" + short_host_name();
    return wish;
}

CommandEnd ending_of(const std::string& command, const Result<void>& done) {
    if (done) {
        return {};
    }
    complain(command, done.error().detail);
    return {done.error().code == Errc::disconnected ? kExitNoRendezvous : kExitJobFailed};
}

}  // namespace regroup::launcher
