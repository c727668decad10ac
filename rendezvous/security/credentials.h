// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "rendezvous/base/result.h"
#include "rendezvous/security/token.h"

namespace regroup::security {

/// PEM files of a site's certificate authority, and of this process.
struct Certificates {
    std::string certificate;  ///< With the intermediate certificates, if any.
    std::string key;
    std::string authority;
};

/// How a process proves who it is to peers on other hosts, and how it checks them.
struct Credentials {
    std::optional<Token> token;
    std::optional<Certificates> certificates;
    /// Peers need not prove anything, and connections to peers that cannot are accepted.
    bool insecure = false;

    [[nodiscard]] bool can_prove() const noexcept { return token || certificates; }
};

/// The identity of a process towards a daemon.
struct Identity {
    Credentials credentials;
    Scope scope;  ///< The scope that it needs; a full token proves just this.
};

/// A peer that has proved who it is.
struct Peer {
    Scope scope;
    /// "token 1f2e3d4c (node of job night)", "certificate CN=node7", "user ann". Limited places
    /// are shared fairly among the names.
    std::string name;
};
/// The peer that has shown `token`.
[[nodiscard]] Peer peer_of(const Token& token);

/// Where the flags say that the credentials are.
struct CredentialSources {
    std::string token_file;
    std::string usual_token_file{};  ///< Used, if it exists, in place of an empty `token_file`.
    Certificates certificates;
    bool insecure = false;
    std::optional<Token> token{};  ///< Used in place of the usual file.
};

/// Reads the token; a Tls reads the certificates. Errors: those of read_token; invalid_argument if
/// some of the certificate files are missing.
[[nodiscard]] Result<Credentials> load_credentials(const CredentialSources& sources);

}  // namespace regroup::security
