// SPDX-License-Identifier: Apache-2.0
#include "launcher/trust.h"

#include <boost/asio/ip/address.hpp>

#include "launcher/flag_values.h"
#include "launcher/host.h"

namespace regroup::launcher {

void add_trust_flags(FlagTable& flags, security::CredentialSources& out) {
    flags.group("Trust between hosts");
    flags.value({"--token-file", "FILE", "~/.local/state/regroup/token, if it is there",
                 "File with the token by which daemon, nodes and operators prove who they are. "
                 "`regroup token --generate` makes one; only its owner may be able to read it",
                 "--token-file=/run/secrets/regroup", "REGROUP_TOKEN_FILE", true},
                text_into(out.token_file));
    flags.value({"--tls-cert", "FILE", "",
                 "Certificate of this process (PEM), in place of a token. The organizational unit "
                 "operator, observer or full gives more or less than the role node",
                 "--tls-cert=node7.pem", "REGROUP_TLS_CERT", true},
                text_into(out.certificates.certificate));
    flags.value({"--tls-key", "FILE", "", "Private key of that certificate (PEM)",
                 "--tls-key=node7.key", "REGROUP_TLS_KEY", true},
                text_into(out.certificates.key));
    flags.value({"--tls-ca", "FILE", "",
                 "Certificates of the authorities that sign those of the peers (PEM)",
                 "--tls-ca=site.pem", "REGROUP_TLS_CA", true},
                text_into(out.certificates.authority));
    flags.toggle({"--insecure", "", "",
                  "Trust everybody who reaches the ports of this job: no token, no encryption", "",
                  "REGROUP_INSECURE", true},
                 out.insecure);
}

std::string usual_token_file() {
    const std::string folder = state_folder();
    return folder.empty() ? "" : folder + "/token";
}

Result<security::Credentials> read_credentials(security::CredentialSources sources) {
    sources.usual_token_file = usual_token_file();
    return security::load_credentials(sources);
}

bool is_loopback_host(const std::string& host) {
    boost::system::error_code error;
    const auto address = boost::asio::ip::make_address(host, error);
    return error ? host == "localhost" : address.is_loopback();
}

Failure no_credentials(const std::string& subject) {
    return {Errc::invalid_argument,
            subject +
                " reaches other hosts, and nothing proves who is who: make a token once with "
                "`regroup token --generate` (each host needs the file), or give --tls-cert, "
                "--tls-key and --tls-ca, or --insecure if you trust the whole network"};
}

}  // namespace regroup::launcher
