// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>

#include "rendezvous/base/result.h"
#include "rendezvous/security/credentials.h"
#include "rendezvous/security/stream.h"
#include "rendezvous/security/tls.h"

namespace regroup::rendezvous {

/// Makes sure that the peer of a new connection is a daemon to believe, and proves `identity` to
/// it. Nothing need be proved if the daemon listens on this host as this process's user. Otherwise
/// both sides use TLS if there are credentials. Without any, a daemon of root on this host is
/// believed, and with `insecure` every daemon. `host`: the name or address that the daemon's
/// certificate must have. `tls` is made when it is first needed. No deadline: close the stream to
/// end it. The references outlive it. Errors: disconnected, with a sentence; invalid_argument for
/// credentials that cannot be used.
boost::asio::awaitable<Result<void>> check_daemon(security::Stream& stream, std::string host,
                                                  const security::Identity& identity,
                                                  std::optional<security::Tls>& tls);

}  // namespace regroup::rendezvous
