// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/http_exchange.h"

#include <array>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

namespace regroup::rendezvous {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr std::size_t kReplyReadBytes = 16384;

std::string text_of(const HttpRequest& request) {
    std::string text = request.method + " " + request.target + " HTTP/1.1\r\n";
    for (const auto& [name, value] : request.fields) {
        text.append(name).append(": ").append(value).append("\r\n");
    }
    text.append("Content-Length: ").append(std::to_string(request.body.size()));
    return text.append("\r\n\r\n").append(request.body);
}

bool is_hang_up(const error_code& error) {
    return error == asio::error::connection_reset || error == asio::error::broken_pipe ||
           error == asio::error::eof || error == asio::error::connection_aborted;
}

}  // namespace

asio::awaitable<error_code> exchange(security::Stream& stream, const HttpRequest& request,
                                     std::size_t body_bytes_max, HttpReply& reply) {
    const std::string text = text_of(request);
    const auto [not_written, written] = co_await stream.write(asio::buffer(text));
    // Where the peer hangs up, its reason may be there to read.
    if (not_written && !is_hang_up(not_written)) {
        co_return not_written;
    }
    http::response_parser<http::string_body> parser;
    parser.eager(true);
    parser.body_limit(body_bytes_max);
    std::array<char, kReplyReadBytes> bytes{};
    std::string unparsed;
    while (!parser.is_done()) {
        const auto [not_read, count] = co_await stream.read_some(asio::buffer(bytes));
        error_code malformed;
        if (not_read == asio::error::eof && parser.got_some()) {
            parser.put_eof(malformed);  // The end of a body without a length.
        }
        if (malformed || (not_read && !parser.is_done())) {
            co_return malformed ? malformed : not_read;
        }
        unparsed.append(bytes.data(), count);
        while (!unparsed.empty() && !parser.is_done()) {
            const std::size_t used = parser.put(asio::buffer(unparsed), malformed);
            unparsed.erase(0, used);
            if (malformed == http::error::need_more) {
                break;
            }
            if (malformed) {
                co_return malformed;
            }
        }
    }
    auto message = parser.release();
    reply.status = message.result_int();
    reply.body = std::move(message.body());
    reply.stays_open = message.keep_alive();
    co_return error_code();
}

}  // namespace regroup::rendezvous
