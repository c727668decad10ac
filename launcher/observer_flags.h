// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "launcher/command.h"
#include "launcher/daemon_get.h"
#include "launcher/flag_table.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/security/credentials.h"

namespace regroup::launcher {

/// The flags of commands that ask a daemon.
struct ObserverOptions {
    std::string endpoints = "localhost";
    std::string job;
    Duration limit = std::chrono::seconds(10);
    security::CredentialSources trust;
};
/// Declares --endpoint, --timeout and those of add_trust_flags().
void add_observer_flags(FlagTable& flags, ObserverOptions& out);
/// Declares --job.
void add_job_flag(FlagTable& flags, const std::string& help, std::string& out);

/// Errors: those of the endpoints and of read_credentials(); one sentence.
Result<DaemonAccess> daemon_access(const ObserverOptions& options, security::Role role);

/// A wish about the job, of this user.
[[nodiscard]] rendezvous::Operate wish_of(const ObserverOptions& options);

/// The ending of such a command, after a line on stderr if it has failed.
CommandEnd ending_of(const std::string& command, const Result<void>& done);

}  // namespace regroup::launcher
