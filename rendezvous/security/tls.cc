// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/security/tls.h"

#include <array>
#include <cstddef>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <optional>
#include <utility>

#include "rendezvous/base/ensure.h"
#include "rendezvous/base/names.h"

namespace regroup::security {
namespace {

// Both have SHA-256, as the pre-shared keys need.
constexpr const char* kCiphers = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr const char* kCertificateRefused =
    "does not accept this process's certificate (--tls-cert): ";
constexpr unsigned char kPskCipher[] = {0x13, 0x01};

Failure unusable(const std::string& flag, const std::string& path) {
    const unsigned long code = ERR_get_error();
    const char* reason = ERR_reason_error_string(code);
    ERR_clear_error();
    return {Errc::invalid_argument, flag + " " + path + " cannot be used: " +
                                        (reason != nullptr ? reason : "it is no PEM file")};
}

std::string entry_of(const X509* certificate, int nid) {
    std::array<char, 256> text{};
    const int bytes = X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), nid,
                                                text.data(), text.size());
    return bytes > 0 ? std::string(text.data(), static_cast<std::size_t>(bytes)) : "";
}

}  // namespace

/// The part that all connections of one Tls share.
struct Tls::Parts {
    std::unique_ptr<SSL_CTX, FreeSsl> context;
    bool is_server = false;
    std::optional<Token> token;  // Of a server: accepts it and those derived from it.
    std::optional<Key> key;      // Of a client, or of two holders of one key.
    std::string identity;        // Of that key.
};

namespace {

/// The state of one connection.
struct Connection {
    std::shared_ptr<const Tls::Parts> parts;
    std::optional<Peer> peer;  // Named by the client; proved once the handshake is done.
};

Connection& connection_of(const SSL* ssl) {
    return *static_cast<Connection*>(SSL_get_app_data(ssl));
}

SSL_SESSION* session_with(SSL* ssl, const Key& key) {
    SSL_SESSION* session = SSL_SESSION_new();
    const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kPskCipher);
    if (session == nullptr || cipher == nullptr ||
        SSL_SESSION_set1_master_key(session, key.bytes().data(), Key::kBytes) != 1 ||
        SSL_SESSION_set_cipher(session, cipher) != 1 ||
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
        SSL_SESSION_free(session);
        return nullptr;
    }
    return session;
}

// The functions that OpenSSL calls return 0 to end the handshake.

int use_key(SSL* ssl, const EVP_MD* /*digest*/, const unsigned char** id, std::size_t* id_bytes,
            SSL_SESSION** session) {
    const Tls::Parts& parts = *connection_of(ssl).parts;
    *session = parts.key ? session_with(ssl, *parts.key) : nullptr;
    *id = reinterpret_cast<const unsigned char*>(parts.identity.data());
    *id_bytes = parts.identity.size();
    return !parts.key || *session != nullptr ? 1 : 0;
}

int find_key(SSL* ssl, const unsigned char* id, std::size_t id_bytes, SSL_SESSION** session) {
    Connection& connection = connection_of(ssl);
    const Tls::Parts& parts = *connection.parts;
    const std::string identity(reinterpret_cast<const char*>(id), id_bytes);
    *session = nullptr;
    if (parts.key && identity == parts.identity) {
        connection.peer = Peer{Scope(), identity};
        *session = session_with(ssl, *parts.key);
    } else if (const auto token = parts.token ? parts.token->named(identity) : std::nullopt) {
        connection.peer = peer_of(*token);
        *session = session_with(ssl, token->key());
    }
    return 1;  // Without a session the handshake goes on with certificates, or fails.
}

/// As Stream needs it.
void set_modes(SSL_CTX* context) {
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // A read ends after each record, also after one without data, of which a peer can send any
    // number: others have their turn between two of them.
    SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
}

std::shared_ptr<Tls::Parts> make_parts(bool is_server) {
    auto parts = std::make_shared<Tls::Parts>();
    parts->is_server = is_server;
    parts->context.reset(SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method()));
    SSL_CTX* context = parts->context.get();
    ENSURE(context != nullptr);
    ENSURE(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1);
    ENSURE(SSL_CTX_set_ciphersuites(context, kCiphers) == 1);
    SSL_CTX_set_num_tickets(context, 0);
    set_modes(context);
    // A client that offers a key and gets a certificate instead refuses it, unless an authority is
    // set.
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    if (is_server) {
        // OpenSSL demands one where clients are verified, though it is for resumption.
        constexpr unsigned char kSessions[] = "regroup";
        ENSURE(SSL_CTX_set_session_id_context(context, kSessions, sizeof kSessions) == 1);
        SSL_CTX_set_psk_find_session_callback(context, find_key);
    } else {
        SSL_CTX_set_psk_use_session_callback(context, use_key);
    }
    return parts;
}

Result<void> use_certificates(SSL_CTX* context, const Certificates& files) {
    if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1) {
        return unusable("--tls-cert", files.certificate);
    }
    if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1) {
        return unusable("--tls-key", files.key);
    }
    if (SSL_CTX_load_verify_file(context, files.authority.c_str()) != 1) {
        return unusable("--tls-ca", files.authority);
    }
    return {};
}

}  // namespace

void FreeSsl::operator()(SSL* ssl) const noexcept {
    const std::unique_ptr<Connection> connection(&connection_of(ssl));
    SSL_free(ssl);
}

void FreeSsl::operator()(SSL_CTX* context) const noexcept {
    SSL_CTX_free(context);
}

Result<Tls> Tls::server(const Credentials& credentials) {
    const auto parts = make_parts(true);
    parts->token = credentials.token;
    if (credentials.certificates) {
        const Result<void> used = use_certificates(parts->context.get(), *credentials.certificates);
        if (!used) {
            return used.error();
        }
    }
    return Tls(parts);
}

Result<Tls> Tls::client(const Credentials& credentials, const Scope& scope) {
    const auto parts = make_parts(false);
    if (credentials.token) {
        const Token token = credentials.token->for_use_as(scope);
        parts->key = token.key();
        parts->identity = token.identity();
    }
    if (credentials.certificates) {
        const Result<void> used = use_certificates(parts->context.get(), *credentials.certificates);
        if (!used) {
            return used.error();
        }
    }
    return Tls(parts);
}

Tls Tls::server(const Key& key, const std::string& name) {
    const auto parts = make_parts(true);
    parts->key = key.derive(name);
    parts->identity = name;
    return Tls(parts);
}

Tls Tls::client(const Key& key, const std::string& name) {
    const auto parts = make_parts(false);
    parts->key = key.derive(name);
    parts->identity = name;
    return Tls(parts);
}

Tls Tls::client(std::unique_ptr<SSL_CTX, FreeSsl> context) {
    const auto parts = std::make_shared<Parts>();
    parts->context = std::move(context);
    set_modes(parts->context.get());
    return Tls(parts);
}

Ssl Tls::connection(const std::string& host) const {
    SSL* raw = SSL_new(parts_->context.get());
    ENSURE(raw != nullptr);
    auto connection = std::make_unique<Connection>(parts_, std::nullopt);
    SSL_set_app_data(raw, connection.release());
    Ssl ssl(raw);
    if (parts_->is_server) {
        SSL_set_accept_state(raw);
        return ssl;
    }
    SSL_set_connect_state(raw);
    if (!host.empty()) {
        const bool is_address =
            X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(raw), host.c_str()) == 1;
        ERR_clear_error();
        if (!is_address) {
            ENSURE(SSL_set1_host(raw, host.c_str()) == 1);
            SSL_set_tlsext_host_name(raw, host.c_str());
        }
    }
    return ssl;
}

Result<Peer> Tls::peer_of(const Ssl& ssl) {
    const Connection& connection = connection_of(ssl.get());
    if (SSL_session_reused(ssl.get()) == 1 && connection.peer) {
        return *connection.peer;
    }
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(
        SSL_get1_peer_certificate(ssl.get()), X509_free);
    if (!certificate || SSL_get_verify_result(ssl.get()) != X509_V_OK) {
        return Failure(Errc::invalid_argument, "proved nothing");
    }
    const std::string unit = entry_of(certificate.get(), NID_organizationalUnitName);
    // A certificate that says nothing is that of a node: a site's nodes have one each.
    const Role role = value_named<Role>(unit).value_or(Role::node);
    return Peer{Scope{role, ""}, "certificate CN=" + entry_of(certificate.get(), NID_commonName) +
                                     " (" + std::string(to_string(role)) + ")"};
}

std::string take_handshake_error(const Ssl& ssl) {
    const unsigned long code = ERR_peek_error();
    const int reason = ERR_GET_REASON(code);
    const char* text = ERR_reason_error_string(code);
    std::string sentence;
    switch (reason) {
        case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
        case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
        case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
        case SSL_R_TLSV1_ALERT_INTERNAL_ERROR:
        case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
            sentence =
                "does not accept this process's token or certificate; both ends need the "
                "same token file (--token-file), or certificates of the same authority";
            break;
        case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
            sentence = std::string(kCertificateRefused) +
                       "unknown authority; the peer's --tls-ca must have the one that signed it";
            break;
        case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
            sentence = std::string(kCertificateRefused) +
                       "it has expired, or is not valid yet; renew it, and compare the clocks";
            break;
        case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
            sentence = std::string(kCertificateRefused) + "it is revoked";
            break;
        case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
        case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
        case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
            sentence = std::string(kCertificateRefused) + (text != nullptr ? text : "");
            break;
        case SSL_R_WRONG_VERSION_NUMBER:
        case SSL_R_PACKET_LENGTH_TOO_LONG:
        case SSL_R_UNEXPECTED_MESSAGE:
            sentence =
                "does not speak TLS; start it with the same token file or with "
                "certificates, or give --insecure here if you trust the network";
            break;
        case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
        case SSL_R_NO_SHARED_CIPHER:
        case SSL_R_BINDER_DOES_NOT_VERIFY:
            sentence = "has another token than this process, or none";
            break;
        case SSL_R_CERTIFICATE_VERIFY_FAILED:
            sentence = std::string("has a certificate that cannot be trusted (--tls-ca): ") +
                       X509_verify_cert_error_string(SSL_get_verify_result(ssl.get()));
            break;
        case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
            sentence = "has no token of this daemon, and no certificate";
            break;
        default:
            sentence = code == 0 ? "closed the connection during the TLS handshake"
                                 : std::string("broke TLS: ") + (text != nullptr ? text : "?");
    }
    ERR_clear_error();
    return sentence;
}

}  // namespace regroup::security
