// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/http_exchange.h"

#include <array>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "rendezvous/base/text.h"

namespace regroup::rendezvous {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr std::size_t kAnswerReadBytes = 16384;

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

struct HttpAnswerReader::Parser {
    explicit Parser(std::size_t body_bytes_max) {
        response.eager(true);
        response.body_limit(body_bytes_max);
    }

    http::response_parser<http::string_body> response;
    bool streams = false;  ///< The head of a stream was returned.
};

HttpAnswerReader::HttpAnswerReader(std::size_t body_bytes_max, bool streams)
    : body_bytes_max_(body_bytes_max),
      streams_(streams),
      parser_(std::make_unique<Parser>(body_bytes_max)) {}

HttpAnswerReader::~HttpAnswerReader() = default;

std::optional<HttpAnswer> HttpAnswerReader::next(error_code& error) {
    auto& response = parser_->response;
    while (!rest_.empty() && !response.is_done() && !error) {
        rest_.erase(0, response.put(asio::buffer(rest_), error));
    }
    if (error == http::error::need_more) {
        error = {};
    }
    auto& message = response.get();
    const bool is_stream =
        streams_ && response.is_header_done() && !response.is_done() && response.need_eof();
    const bool has_part = is_stream && (!parser_->streams || !message.body().empty());
    if (error || (!response.is_done() && !has_part)) {
        return std::nullopt;
    }
    // The head of a stream comes first.
    const bool has_body = !is_stream || parser_->streams;
    HttpAnswer answer{message.result_int(),
                      {},
                      has_body ? std::exchange(message.body(), {}) : "",
                      is_stream,
                      response.keep_alive()};
    for (const auto& field : message) {
        const auto name = field.name_string();
        const auto value = field.value();
        answer.fields[lower({name.data(), name.size()})] = {value.data(), value.size()};
    }
    if (!is_stream) {
        parser_ = std::make_unique<Parser>(body_bytes_max_);
    } else if (!std::exchange(parser_->streams, true)) {
        response.body_limit(boost::none);
    }
    return answer;
}

void HttpAnswerReader::end(error_code& error) {
    if (parser_->response.got_some()) {
        parser_->response.put_eof(error);
    } else {
        error = asio::error::eof;
    }
}

asio::awaitable<error_code> exchange(security::Stream& stream, const HttpRequest& request,
                                     std::size_t body_bytes_max, HttpAnswer& answer) {
    const std::string text = text_of(request);
    const auto [not_written, written] = co_await stream.write(asio::buffer(text));
    // Where the peer hangs up, its reason may be there to read.
    if (not_written && !is_hang_up(not_written)) {
        co_return not_written;
    }
    HttpAnswerReader reader(body_bytes_max, /*streams=*/false);
    std::array<char, kAnswerReadBytes> bytes{};
    for (;;) {
        const auto [not_read, count] = co_await stream.read_some(asio::buffer(bytes));
        error_code error = not_read;
        if (error == asio::error::eof) {
            reader.end(error);
        }
        reader.feed(std::string_view(bytes.data(), count));
        std::optional<HttpAnswer> whole = error ? std::nullopt : reader.next(error);
        if (error) {
            co_return error;
        }
        if (whole) {
            answer = std::move(*whole);
            co_return error_code();
        }
    }
}

}  // namespace regroup::rendezvous
