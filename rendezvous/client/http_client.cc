// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/http_client.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>

namespace regroup::rendezvous {

namespace {

using Heard = LeaderConnection::Heard;

constexpr std::size_t kHeadBytesMax = std::size_t{16} << 10U;
constexpr Duration kAttemptLimit = std::chrono::seconds(30);
constexpr int kUnavailable = 503;

template <class Number>
std::optional<Number> number_in(std::string_view text) {
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(number)
                                                                    : std::nullopt;
}

/// Nothing if it is no head of an answer: "HTTP/1.1 200 OK", and lines of fields.
std::optional<HttpAnswer> parse_head(std::string_view head) {
    constexpr std::string_view kVersion = "HTTP/1.1 ";
    constexpr std::size_t kDigits = 3;
    const auto status = number_in<int>(
        head.starts_with(kVersion) ? head.substr(kVersion.size()).substr(0, kDigits) : "");
    if (!status) {
        return std::nullopt;
    }
    HttpAnswer answer;
    answer.status = *status;
    for (std::size_t at = head.find("\r\n"); at != head.npos;) {
        const std::size_t begin = at + 2;
        at = head.find("\r\n", begin);
        const std::string_view line = head.substr(begin, at - begin);
        const std::size_t colon = std::min(line.find(':'), line.size());
        std::string name(line.substr(0, colon));
        std::ranges::transform(name, name.begin(), [](unsigned char letter) {
            return static_cast<char>(std::tolower(letter));
        });
        const std::string_view value = line.substr(std::min(colon + 1, line.size()));
        answer.fields[name] = value.substr(std::min(value.find_first_not_of(' '), value.size()));
    }
    return answer;
}

}  // namespace

std::string escaped(std::string_view text) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    constexpr std::string_view kPlain = "-._~";
    std::string out;
    for (const char letter : text) {
        const auto byte = static_cast<unsigned char>(letter);
        if ((byte < 0x80U && std::isalnum(byte) != 0) || kPlain.find(letter) != kPlain.npos) {
            out += letter;
        } else {
            out += {'%', kDigits[byte >> 4U], kDigits[byte & 0xFU]};
        }
    }
    return out;
}

Result<std::optional<HttpAnswer>> HttpAnswerReader::next() {
    const Failure no_answer(Errc::invalid_argument,
                            "it does not answer as a regroup daemon does (HTTP)");
    const std::size_t end = rest_.find("\r\n\r\n");
    if (end == rest_.npos && rest_.size() <= kHeadBytesMax) {
        return std::optional<HttpAnswer>();
    }
    std::optional<HttpAnswer> answer = parse_head(std::string_view(rest_).substr(0, end));
    if (!answer || end == rest_.npos) {
        return no_answer;
    }
    const std::size_t begin = end + 4;
    const auto length = answer->fields.find("content-length");
    if (length == answer->fields.end()) {
        answer->is_stream = true;
        rest_.erase(0, begin);
        return answer;
    }
    const auto bytes = number_in<std::size_t>(length->second);
    if (!bytes || *bytes > kBodyBytesMax) {
        return no_answer;
    }
    if (rest_.size() < begin + *bytes) {
        return std::optional<HttpAnswer>();
    }
    answer->body = rest_.substr(begin, *bytes);
    rest_.erase(0, begin + *bytes);
    return answer;
}

struct HttpClient::Impl {
    Impl(boost::asio::io_context& io, std::vector<Endpoint> endpoints, Handlers handlers_in,
         LeaderConnection::Handlers link_handlers, security::Identity identity)
        : handlers(std::move(handlers_in)),
          link(io, std::move(endpoints), std::move(link_handlers), kAttemptLimit,
               std::move(identity)) {}

    Result<Heard> take(std::string_view bytes);

    Handlers handlers;
    HttpAnswerReader reader;
    bool is_stream = false;
    LeaderConnection link;
};

Result<Heard> HttpClient::Impl::take(std::string_view bytes) {
    reader.feed(bytes);
    Heard heard = Heard::part;
    while (!is_stream && link.is_up()) {
        const Result<std::optional<HttpAnswer>> answer = reader.next();
        if (!answer) {
            return answer.error();
        }
        if (!*answer) {
            return heard;
        }
        const auto leader = (*answer)->fields.find("regroup-leader");
        if ((*answer)->status == kUnavailable && leader != (*answer)->fields.end()) {
            link.leave_for(leader->second);
            return Heard::elsewhere;
        }
        heard = Heard::answer;
        is_stream = (*answer)->is_stream;
        handlers.on_answer(**answer);
    }
    if (const std::string text = is_stream ? reader.take_text() : "";
        !text.empty() && link.is_up() && handlers.on_text) {
        handlers.on_text(text);
    }
    return heard;
}

HttpClient::HttpClient(boost::asio::io_context& io, std::vector<Endpoint> endpoints,
                       Handlers handlers, security::Identity identity) {
    // A handler may end this client.
    const auto held = std::make_shared<std::weak_ptr<Impl>>();
    LeaderConnection::Handlers of_link;
    of_link.on_up = [held] {
        if (const auto impl = held->lock()) {
            impl->reader = {};
            impl->is_stream = false;
            impl->handlers.on_up();
        }
    };
    of_link.on_down = [held] {
        if (const auto impl = held->lock()) {
            impl->handlers.on_down();
        }
    };
    of_link.on_bytes = [held](std::string_view bytes) -> Result<Heard> {
        const auto impl = held->lock();
        return impl ? impl->take(bytes) : Heard::part;
    };
    of_link.on_trouble = [held](const std::string& reason, bool answered) {
        if (const auto impl = held->lock()) {
            impl->handlers.on_trouble(reason, answered);
        }
    };
    impl_ = std::make_shared<Impl>(io, std::move(endpoints), std::move(handlers),
                                   std::move(of_link), std::move(identity));
    *held = impl_;
}

HttpClient::~HttpClient() {
    impl_->link.stop(Duration::zero(), nullptr);
}

void HttpClient::start() {
    impl_->link.start();
}

void HttpClient::get(const std::string& target) {
    // A daemon always goes by its address.
    impl_->link.send("GET " + target + " HTTP/1.1\r\nHost: " + impl_->link.peer() + "\r\n\r\n");
}

void HttpClient::drop() {
    impl_->link.drop();
}

void HttpClient::stop(Duration limit, std::function<void()> done) {
    impl_->link.stop(limit, std::move(done));
}

const std::string& HttpClient::peer() const {
    return impl_->link.peer();
}

}  // namespace regroup::rendezvous
