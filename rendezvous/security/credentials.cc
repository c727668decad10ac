// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/security/credentials.h"

#include <unistd.h>

namespace regroup::security {
Peer peer_of(const Token& token) {
    const Scope& scope = token.scope();
    return {scope, "token " + token.id() + " (" + std::string(to_string(scope.role)) +
                       (scope.job.empty() ? "" : " of job " + scope.job) + ")"};
}

Result<Credentials> load_credentials(const CredentialSources& sources) {
    Credentials credentials;
    credentials.insecure = sources.insecure;
    const Certificates& files = sources.certificates;
    if (!files.certificate.empty() || !files.key.empty() || !files.authority.empty()) {
        if (files.certificate.empty() || files.key.empty() || files.authority.empty()) {
            return Failure(Errc::invalid_argument,
                           "--tls-cert, --tls-key and --tls-ca belong together: give all three");
        }
        credentials.certificates = files;
    }
    std::string path = sources.token_file;
    const std::string source = path.empty() ? "" : "--token-file: ";
    if (path.empty() && sources.token) {
        credentials.token = sources.token;
        return credentials;
    }
    if (path.empty()) {
        path = sources.usual_token_file;
        if (path.empty() || ::access(path.c_str(), F_OK) != 0) {
            return credentials;
        }
    }
    Result<Token> token = read_token(path);
    if (!token) {
        return Failure(token.error().code, source + token.error().detail);
    }
    credentials.token = std::move(*token);
    return credentials;
}

}  // namespace regroup::security
