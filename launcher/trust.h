// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "launcher/flag_table.h"
#include "rendezvous/base/result.h"
#include "rendezvous/security/credentials.h"

namespace regroup::launcher {

/// Declares --token-file, --tls-cert, --tls-key, --tls-ca and --insecure.
void add_trust_flags(FlagTable& flags, security::CredentialSources& out);

/// regroup/token in XDG_STATE_HOME, or in .local/state of the home folder. Empty if neither
/// variable is set.
[[nodiscard]] std::string usual_token_file();

/// Reads what the flags name, or the usual token file. See security::load_credentials.
[[nodiscard]] Result<security::Credentials> read_credentials(security::CredentialSources sources);

/// True for localhost and for the addresses of the loopback interface.
[[nodiscard]] bool is_loopback_host(const std::string& host);

/// The remedy for a process without credentials that is to talk to other hosts: one sentence, from
/// `subject` ("--listen :29400") on.
[[nodiscard]] Failure no_credentials(const std::string& subject);

}  // namespace regroup::launcher
