// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>

#include "rendezvous/security/stream.h"

namespace regroup::rendezvous {

struct HttpRequest {
    std::string method;
    std::string target;  ///< "/v3/kv/txn".
    /// Names and values, without Content-Length.
    std::vector<std::pair<std::string, std::string>> fields{};
    std::string body{};
};

struct HttpReply {
    unsigned status = 0;
    std::string body;
    bool stays_open = false;  ///< The connection takes another request.
};

/// Sends `request` in HTTP/1.1 and reads the reply, whose body has at most `body_bytes_max` bytes.
/// One exchange at a time. It has no deadline: close the stream to end it. The references outlive
/// it. Errors: those of the stream, `eof` if the peer closed the connection without a reply; those
/// of Beast for a reply that is malformed or too large.
boost::asio::awaitable<boost::system::error_code> exchange(security::Stream& stream,
                                                           const HttpRequest& request,
                                                           std::size_t body_bytes_max,
                                                           HttpReply& reply);

}  // namespace regroup::rendezvous
