// SPDX-License-Identifier: Apache-2.0
//
// The TLS of a client of etcd.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/system/error_code.hpp>

#include "rendezvous/base/result.h"
#include "rendezvous/journal/etcd_access.h"

namespace regroup::journal::etcd {

using TlsStream = boost::asio::ssl::stream<boost::beast::tcp_stream>;

/// Reads the certificates and the key. Errors: invalid_argument, with the flag and the file.
[[nodiscard]] Result<std::unique_ptr<boost::asio::ssl::context>> make_tls(const EtcdAccess& access);

/// The handshake will fail unless the peer's certificate is for `host`, a name or an address.
/// Errors: invalid_argument for a `host` that no certificate can have.
Result<void> expect_host(TlsStream& stream, const std::string& host);

/// True if the peer has closed the connection, with or without TLS.
[[nodiscard]] bool is_hang_up(const boost::system::error_code& error);

/// Why the handshake with `host` failed, and what to do, without a full stop: "its certificate has
/// expired; ...".
[[nodiscard]] std::string explain_handshake(const boost::system::error_code& error,
                                            TlsStream& stream, const std::string& host,
                                            const EtcdAccess& access);
/// The same for the first request after the handshake.
[[nodiscard]] std::string explain_first_request(const boost::system::error_code& error,
                                                const EtcdAccess& access);

}  // namespace regroup::journal::etcd
