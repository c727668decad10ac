// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/etcd_tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/error.hpp>

namespace regroup::journal::etcd {
namespace {

namespace ssl = boost::asio::ssl;
using ErrorCode = boost::system::error_code;

Failure unusable(const std::string& flag, const std::string& file, const ErrorCode& error) {
    return {Errc::invalid_argument, flag + " " + file + ": " + error.message()};
}

/// True if etcd has sent an alert: it refuses what this client has shown.
bool is_alert(const ErrorCode& error) {
    return error.category() == boost::asio::error::get_ssl_category() &&
           ERR_GET_REASON(static_cast<unsigned long>(error.value())) >= SSL_AD_REASON_OFFSET;
}

std::string refused_client(const ErrorCode& error, const EtcdAccess& access) {
    const std::string wanted = "signed by the CA in etcd's --trusted-ca-file";
    return (access.cert_file.empty()
                ? "it seems to want a client certificate (" + error.message() +
                      "); give --etcd-cert and --etcd-key, "
                : "it refuses the certificate in --etcd-cert " + access.cert_file + " (" +
                      error.message() + "); give one that is valid and ") +
           wanted;
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

Result<std::unique_ptr<ssl::context>> make_tls(const EtcdAccess& access) {
    auto context = std::make_unique<ssl::context>(ssl::context::tls_client);
    context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                         ssl::context::no_sslv3 | ssl::context::no_tlsv1 |
                         ssl::context::no_tlsv1_1);
    context->set_verify_mode(ssl::verify_peer);
    ErrorCode error;
    if (access.ca_file.empty()) {
        context->set_default_verify_paths(error);
    } else {
        context->load_verify_file(access.ca_file, error);
    }
    if (error) {
        return unusable("--etcd-cacert", access.ca_file, error);
    }
    if (access.cert_file.empty()) {
        return context;
    }
    context->use_certificate_chain_file(access.cert_file, error);
    if (error) {
        return unusable("--etcd-cert", access.cert_file, error);
    }
    // OpenSSL would ask for the passphrase at the terminal.
    context->set_password_callback(
        [](std::size_t, ssl::context::password_purpose) { return std::string(); }, error);
    const std::string& key = access.key_file.empty() ? access.cert_file : access.key_file;
    context->use_private_key_file(key, ssl::context::pem, error);
    if (error) {
        return unusable("--etcd-key", key, error);
    }
    return context;
}

Result<void> expect_host(TlsStream& stream, const std::string& host) {
    SSL* const handle = stream.native_handle();
    const std::string bare = host.substr(0, host.find('%'));  // Without the zone of fe80::1%eth0.
    ErrorCode no_address;
    boost::asio::ip::make_address(bare, no_address);
    bool good = false;
    if (no_address) {
        SSL_set_hostflags(handle, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        good = SSL_set1_host(handle, host.c_str()) == 1 &&
               SSL_set_tlsext_host_name(handle, host.c_str()) == 1;
    } else {
        good = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(handle), bare.c_str()) == 1;
    }
    if (!good) {
        ERR_clear_error();
        return Failure(Errc::invalid_argument,
                       "no certificate can be for the host '" + host + "'; correct --state");
    }
    return {};
}

std::string explain_handshake(const ErrorCode& error, TlsStream& stream, const std::string& host,
                              const EtcdAccess& access) {
    const long verdict = SSL_get_verify_result(stream.native_handle());
    if (verdict != X509_V_OK) {
        return explain_certificate(verdict, host, access);
    }
    if (is_alert(error)) {
        return refused_client(error, access);
    }
    return "there is no TLS (" + error.message() +
           "); if etcd serves http:// there, write etcd:// in --state";
}

bool is_hang_up(const ErrorCode& error) {
    return error == boost::asio::error::connection_reset ||
           error == boost::asio::error::broken_pipe || error == boost::asio::error::eof ||
           error == ssl::error::stream_truncated;
}

std::string explain_first_request(const ErrorCode& error, const EtcdAccess& access) {
    // In TLS 1.3 the client has finished the handshake before etcd looks at its certificate.
    return is_alert(error) || is_hang_up(error) ? refused_client(error, access) : error.message();
}

}  // namespace regroup::journal::etcd
