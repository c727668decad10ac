// SPDX-License-Identifier: Apache-2.0
//
// The TLS of a client of etcd.
#pragma once

#include <string>

#include <boost/system/error_code.hpp>

#include "rendezvous/base/result.h"
#include "rendezvous/journal/etcd_access.h"
#include "rendezvous/security/stream.h"
#include "rendezvous/security/tls.h"

namespace regroup::journal::etcd {

/// Reads the certificates and the key. Errors: invalid_argument, with the flag and the file.
[[nodiscard]] Result<security::Tls> make_tls(const EtcdAccess& access);

/// One connection, whose handshake fails unless the peer's certificate is for `host`, a name or an
/// address. Errors: invalid_argument for a `host` that no certificate can have.
[[nodiscard]] Result<security::Ssl> connection_to(const security::Tls& tls,
                                                  const std::string& host);

/// True if the peer has closed the connection, with or without TLS.
[[nodiscard]] bool is_hang_up(const boost::system::error_code& error,
                              const security::Stream& stream);

/// Why the handshake with `host` failed, and what to do, without a full stop: "its certificate has
/// expired; ...".
[[nodiscard]] std::string explain_handshake(const security::Stream& stream, const std::string& host,
                                            const EtcdAccess& access);
/// The same for the first request after the handshake, which ended with `error`.
[[nodiscard]] std::string explain_first_request(const boost::system::error_code& error,
                                                const security::Stream& stream,
                                                const EtcdAccess& access);

}  // namespace regroup::journal::etcd
