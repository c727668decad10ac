// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/etcd_tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <utility>

#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>

#include "rendezvous/base/ensure.h"

namespace regroup::journal::etcd {
namespace {

using ErrorCode = boost::system::error_code;

std::string text_of(unsigned long code) {
    const char* reason = ERR_reason_error_string(code);
    return reason != nullptr ? reason : "it closed the connection";
}

Failure unusable(const std::string& flag, const std::string& file) {
    const unsigned long code = ERR_peek_error();
    ERR_clear_error();
    const char* reason = ERR_reason_error_string(code);
    return {Errc::invalid_argument,
            flag + " " + file + ": " + (reason != nullptr ? reason : "it is no PEM file")};
}

/// True if etcd has sent an alert: it refuses what this client has shown.
bool is_alert(unsigned long code) {
    return ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) >= SSL_AD_REASON_OFFSET;
}

std::string refused_client(const std::string& reason, const EtcdAccess& access) {
    return (access.cert_file.empty()
                ? "it seems to want a client certificate (" + reason +
                      "); give --etcd-cert and --etcd-key, "
                : "it refuses the certificate in --etcd-cert " + access.cert_file + " (" + reason +
                      "); give one that is valid and ") +
           "signed by the CA in etcd's --trusted-ca-file";
}

std::string explain_certificate(long verdict, const std::string& host, const EtcdAccess& access) {
    const std::string reason = X509_verify_cert_error_string(verdict);
    switch (verdict) {
        case X509_V_ERR_CERT_HAS_EXPIRED:
            return "its certificate, or one that signs it, has expired; renew etcd's --cert-file";
        case X509_V_ERR_CERT_NOT_YET_VALID:
            return "its certificate is not valid yet; compare the clocks of both hosts";
        case X509_V_ERR_HOSTNAME_MISMATCH:
        case X509_V_ERR_IP_ADDRESS_MISMATCH:
            return "its certificate is not for " + host +
                   "; in --state, name etcd as its certificate does, or add " + host +
                   " to the subjectAltName of etcd's --cert-file";
        default:
            return "its certificate is not signed by a CA in " +
                   (access.ca_file.empty() ? "the system's list" : access.ca_file) + " (" + reason +
                   "); give --etcd-cacert the CA that signed etcd's --cert-file";
    }
}

}  // namespace

Result<security::Tls> make_tls(const EtcdAccess& access) {
    std::unique_ptr<SSL_CTX, security::FreeSsl> context(SSL_CTX_new(TLS_client_method()));
    ENSURE(context && SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) == 1);
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    const bool has_authority =
        access.ca_file.empty()
            ? SSL_CTX_set_default_verify_paths(context.get()) == 1
            : SSL_CTX_load_verify_file(context.get(), access.ca_file.c_str()) == 1;
    if (!has_authority) {
        return unusable("--etcd-cacert", access.ca_file);
    }
    if (!access.cert_file.empty()) {
        if (SSL_CTX_use_certificate_chain_file(context.get(), access.cert_file.c_str()) != 1) {
            return unusable("--etcd-cert", access.cert_file);
        }
        // OpenSSL would ask for the passphrase at the terminal.
        SSL_CTX_set_default_passwd_cb(context.get(), [](char*, int, int, void*) { return 0; });
        const std::string& key = access.key_file.empty() ? access.cert_file : access.key_file;
        if (SSL_CTX_use_PrivateKey_file(context.get(), key.c_str(), SSL_FILETYPE_PEM) != 1) {
            return unusable("--etcd-key", key);
        }
    }
    return security::Tls::client(std::move(context));
}

Result<security::Ssl> connection_to(const security::Tls& tls, const std::string& host) {
    security::Ssl ssl = tls.connection();
    const std::string bare = host.substr(0, host.find('%'));  // Without the zone of fe80::1%eth0.
    ErrorCode no_address;
    boost::asio::ip::make_address(bare, no_address);
    bool good = false;
    if (no_address) {
        SSL_set_hostflags(ssl.get(), X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        good = SSL_set1_host(ssl.get(), host.c_str()) == 1 &&
               SSL_set_tlsext_host_name(ssl.get(), host.c_str()) == 1;
    } else {
        good = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), bare.c_str()) == 1;
    }
    if (!good) {
        ERR_clear_error();
        return Failure(Errc::invalid_argument,
                       "no certificate can be for the host '" + host + "'; correct --state");
    }
    return ssl;
}

std::string explain_handshake(const security::Stream& stream, const std::string& host,
                              const EtcdAccess& access) {
    const long verdict = SSL_get_verify_result(stream.ssl().get());
    if (verdict != X509_V_OK) {
        return explain_certificate(verdict, host, access);
    }
    const std::string reason = text_of(stream.tls_error());
    if (is_alert(stream.tls_error())) {
        return refused_client(reason, access);
    }
    return "there is no TLS (" + reason +
           "); if etcd serves http:// there, write etcd:// in --state";
}

bool is_hang_up(const ErrorCode& error, const security::Stream& stream) {
    return error == boost::asio::error::connection_reset ||
           error == boost::asio::error::broken_pipe || error == boost::asio::error::eof ||
           ERR_GET_REASON(stream.tls_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
}

std::string explain_first_request(const ErrorCode& error, const security::Stream& stream,
                                  const EtcdAccess& access) {
    // In TLS 1.3 the client has finished the handshake before etcd looks at its certificate.
    return is_alert(stream.tls_error()) || is_hang_up(error, stream)
               ? refused_client(text_of(stream.tls_error()), access)
               : error.message();
}

}  // namespace regroup::journal::etcd
