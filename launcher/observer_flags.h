// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "launcher/event_reader.h"
#include "launcher/flag_table.h"
#include "rendezvous/security/credentials.h"

namespace regroup::launcher {

/// The flags of commands that read the events of a daemon.
struct ObserverOptions {
    std::string endpoints = "localhost";
    std::string job;
    Duration limit = std::chrono::seconds(10);
    security::CredentialSources trust;
};
/// Declares --endpoint, --timeout and those of add_trust_flags().
void add_observer_flags(FlagTable& flags, ObserverOptions& out);

/// Errors: those of the endpoints and of read_credentials(); one sentence.
Result<EventReader::Options> reader_options(const ObserverOptions& options);

/// The exit code after a line on stderr about the command line.
int usage_error(const std::string& command, const std::string& line);

/// The exit code of such a command, after a line on stderr if it has failed.
int exit_code_of(const std::string& command, const Result<void>& read);

}  // namespace regroup::launcher
