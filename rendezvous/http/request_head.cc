// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/http/request_head.h"

#include <algorithm>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "rendezvous/base/ensure.h"

namespace regroup::http {

namespace {

namespace beast = boost::beast;
using Field = beast::http::field;
using ErrorCode = boost::system::error_code;

std::string text_of(beast::string_view text) {
    return {text.data(), text.size()};
}

std::optional<unsigned> hex_digit(char letter) {
    if (letter >= '0' && letter <= '9') {
        return static_cast<unsigned>(letter - '0');
    }
    const char lower = static_cast<char>(letter | 0x20);
    if (lower >= 'a' && lower <= 'f') {
        return static_cast<unsigned>(lower - 'a') + 10U;
    }
    return std::nullopt;
}

std::optional<std::string> unescaped(std::string_view text, bool plus_is_blank) {
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            plain += plus_is_blank && text[i] == '+' ? ' ' : text[i];
            continue;
        }
        const auto high = i + 2 < text.size() ? hex_digit(text[i + 1]) : std::nullopt;
        const auto low = high ? hex_digit(text[i + 2]) : std::nullopt;
        if (!low || (*high == 0 && *low == 0)) {
            return std::nullopt;
        }
        plain += static_cast<char>(*high * 16U + *low);
        i += 2;
    }
    return plain;
}

}  // namespace

struct RequestReader::Parser {
    beast::http::request_parser<beast::http::string_body> request;
};

RequestReader::RequestReader(std::size_t head_bytes_max, std::size_t body_bytes_max)
    : head_bytes_max_(head_bytes_max), body_bytes_max_(body_bytes_max) {
    begin();
}

RequestReader::~RequestReader() = default;

void RequestReader::begin() {
    parser_ = std::make_unique<Parser>();
    parser_->request.header_limit(static_cast<std::uint32_t>(head_bytes_max_));
    parser_->request.body_limit(body_bytes_max_);
    state_ = State::idle;
}

void RequestReader::feed(std::string_view bytes) {
    if (state_ == State::failed) {
        return;
    }
    rest_.append(bytes);
    if (state_ != State::complete) {
        parse();
    }
}

void RequestReader::next() {
    ENSURE(state_ == State::complete);
    begin();
    parse();
}

void RequestReader::parse() {
    auto& request = parser_->request;
    while (!rest_.empty() && !request.is_done()) {
        state_ = request.is_header_done() ? State::body : State::head;
        ErrorCode error;
        const std::size_t used = request.put(boost::asio::buffer(rest_), error);
        rest_.erase(0, used);
        if (!error && used == 0) {
            break;
        }
        if (error == beast::http::error::need_more) {
            // Beast looks at the head as a whole, so that here it is what has come so far.
            if (rest_.size() > head_bytes_max_) {
                error = beast::http::error::header_limit;
            } else {
                break;
            }
        }
        // Beast overlooks a coding that it does not know, and takes the body for the next request.
        if (!error && request.is_header_done() && !request.chunked() &&
            request.get().count(Field::transfer_encoding) > 0) {
            error = beast::http::error::bad_transfer_encoding;
        }
        if (error) {
            state_ = State::failed;
            status_ = error == beast::http::error::header_limit ||
                              error == beast::http::error::buffer_overflow
                          ? 431
                      : error == beast::http::error::body_limit ? 413
                                                                : 400;
            why_ = status_ == 431 ? "the head of the request has more than " +
                                        std::to_string(head_bytes_max_) + " bytes"
                   : status_ == 413 ? "the body of the request has more than " +
                                          std::to_string(body_bytes_max_) + " bytes"
                                    : "this is no valid HTTP request: " + error.message();
            return;
        }
    }
    if (request.is_done()) {
        state_ = State::complete;
    } else if (request.is_header_done()) {
        state_ = State::body;
    }
}

RequestHead RequestReader::head() const {
    using Method = RequestHead::Method;
    using Verb = beast::http::verb;
    const auto& message = parser_->request.get();
    RequestHead head;
    switch (message.method()) {
        case Verb::get:
            head.method = Method::get;
            break;
        case Verb::head:
            head.method = Method::head;
            break;
        case Verb::post:
            head.method = Method::post;
            break;
        default:
            head.method = Method::other;
    }
    head.target = text_of(message.target());
    head.has_one_host = message.count(Field::host) == 1;
    head.host = text_of(message[Field::host]);
    head.has_origin = message.count(Field::origin) > 0;
    // Of a field that comes twice Beast gives the first.
    head.origin = message.count(Field::origin) > 1 ? "" : text_of(message[Field::origin]);
    head.fetch_site = text_of(message["Sec-Fetch-Site"]);
    head.fetch_mode = text_of(message["Sec-Fetch-Mode"]);
    head.fetch_dest = text_of(message["Sec-Fetch-Dest"]);
    head.authorization = text_of(message[Field::authorization]);
    head.content_type = text_of(message[Field::content_type]);
    head.accept = text_of(message[Field::accept]);
    head.if_none_match = text_of(message[Field::if_none_match]);
    head.keep_alive = parser_->request.keep_alive();
    head.expects_continue = beast::iequals(message[Field::expect], "100-continue");
    return head;
}

const std::string& RequestReader::body() const {
    return parser_->request.get().body();
}

std::optional<Target> parse_target(std::string_view target) {
    if (!target.starts_with('/')) {
        return std::nullopt;
    }
    target = target.substr(0, target.find('#'));
    const std::size_t mark = std::min(target.find('?'), target.size());
    std::optional<std::string> path = unescaped(target.substr(0, mark), false);
    if (!path || (*path + "/").find("/../") != std::string::npos) {
        return std::nullopt;
    }
    Target parsed{std::move(*path), {}};
    std::string_view query = target.substr(std::min(mark + 1, target.size()));
    while (!query.empty()) {
        const std::string_view part = query.substr(0, query.find('&'));
        query.remove_prefix(std::min(part.size() + 1, query.size()));
        const std::size_t equals = std::min(part.find('='), part.size());
        const auto name = unescaped(part.substr(0, equals), true);
        const auto value = unescaped(part.substr(std::min(equals + 1, part.size())), true);
        if (!name || !value) {
            return std::nullopt;
        }
        if (!part.empty()) {
            parsed.query.emplace(*name, *value);
        }
    }
    return parsed;
}

}  // namespace regroup::http
