// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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

struct HttpAnswer {
    unsigned status = 0;
    std::map<std::string, std::string> fields{};  ///< By name in lower case.
    std::string body{};
    /// The body has no length. This is the head, with an empty body, or the next part of the body.
    bool is_stream = false;
    bool stays_open = false;  ///< The connection takes another request.
};

/// Reads the answers to requests in HTTP/1.1, which come one after the other. Pure.
class HttpAnswerReader {
   public:
    /// A body of more than `body_bytes_max` bytes is an error. `streams`: a body without a length
    /// is read in parts, of any number of bytes together.
    HttpAnswerReader(std::size_t body_bytes_max, bool streams);
    ~HttpAnswerReader();
    HttpAnswerReader(const HttpAnswerReader&) = delete;
    HttpAnswerReader& operator=(const HttpAnswerReader&) = delete;

    void feed(std::string_view bytes) { rest_.append(bytes); }
    /// The next whole answer, or part of a stream; nothing while more bytes are needed. Errors:
    /// those of Beast for an answer that is malformed or too large.
    [[nodiscard]] std::optional<HttpAnswer> next(boost::system::error_code& error);
    /// The peer sends nothing more. This may be the end of a body. Errors: it is not.
    void end(boost::system::error_code& error);

   private:
    struct Parser;

    const std::size_t body_bytes_max_;
    const bool streams_;
    std::unique_ptr<Parser> parser_;
    std::string rest_;
};

/// Sends `request` and reads the answer, whose body has at most `body_bytes_max` bytes. One
/// exchange at a time. It has no deadline: close the stream to end it. The references outlive it.
/// Errors: those of the stream, `eof` if the peer closed the connection without an answer; those of
/// HttpAnswerReader.
boost::asio::awaitable<boost::system::error_code> exchange(security::Stream& stream,
                                                           const HttpRequest& request,
                                                           std::size_t body_bytes_max,
                                                           HttpAnswer& answer);

}  // namespace regroup::rendezvous
