// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "rendezvous/base/result.h"
#include "rendezvous/security/credentials.h"

// OpenSSL's types, without its headers.
struct ssl_st;
struct ssl_ctx_st;

namespace regroup::security {

struct FreeSsl {
    void operator()(ssl_st* ssl) const noexcept;
    void operator()(ssl_ctx_st* context) const noexcept;
};
/// One TLS connection, not yet attached to a socket.
using Ssl = std::unique_ptr<ssl_st, FreeSsl>;

/// TLS 1.3 with what the credentials offer: with a token, both sides prove that they know it
/// (pre-shared key with ECDHE, no certificates); with certificates, each side has one of the same
/// authority. Session tickets and early data are off. From one thread.
class Tls {
   public:
    /// The side that accepts connections. With a full token it accepts all tokens derived from it,
    /// with another one only that. Errors: invalid_argument for files that cannot be used.
    static Result<Tls> server(const Credentials& credentials);
    /// The side that connects, as `scope`.
    static Result<Tls> client(const Credentials& credentials, const Scope& scope);
    /// Both sides of a connection between holders of one key, for the purpose that `name` states.
    static Tls server(const Key& key, const std::string& name);
    static Tls client(const Key& key, const std::string& name);
    /// The side that connects, to a server of another kind: `context` has the rules.
    static Tls client(std::unique_ptr<ssl_ctx_st, FreeSsl> context);

    /// `host`, for a client: the name or address that the server's certificate must have.
    [[nodiscard]] Ssl connection(const std::string& host = "") const;

    /// After the handshake: the client that has proved itself to this server.
    [[nodiscard]] static Result<Peer> peer_of(const Ssl& ssl);

    struct Parts;

   private:
    explicit Tls(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

    std::shared_ptr<const Parts> parts_;
};

/// Why the handshake failed, as the predicate of a sentence about the peer, with the remedy.
/// Empties OpenSSL's queue of errors of this thread.
[[nodiscard]] std::string take_handshake_error(const Ssl& ssl);

}  // namespace regroup::security
