// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/http/response.h"

#include <boost/beast/http/status.hpp>

namespace regroup::http {

namespace {

// A browser may run the scripts of the page and connect to the daemon, and nothing else.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'";

std::string reason_of(unsigned status) {
    const auto text =
        boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(status));
    return {text.data(), text.size()};
}

}  // namespace

std::string response_head(const Answer& answer, bool keep_alive, bool wants_token) {
    std::string head;
    const auto line = [&head](const std::string& name, const std::string& value) {
        head += name + ": " + value + "\r\n";
    };
    head = "HTTP/1.1 " + std::to_string(answer.status) + " " + reason_of(answer.status) + "\r\n";
    line("Server", "regroup");
    if (answer.body || answer.stream) {
        line("Content-Type", answer.content_type);
    }
    if (!answer.stream && answer.status != 304) {
        line("Content-Length", std::to_string(answer.body ? answer.body->size() : 0));
    }
    line("Connection", keep_alive ? "keep-alive" : "close");
    line("Cache-Control", answer.etag.empty() ? "no-store" : "no-cache");
    if (!answer.etag.empty()) {
        line("ETag", answer.etag);
    }
    for (const auto& [name, value] : answer.fields) {
        line(name, value);
    }
    if (wants_token) {
        line("WWW-Authenticate", "Bearer realm=\"regroup\"");
    }
    line("Content-Security-Policy", kPolicy);
    line("X-Content-Type-Options", "nosniff");
    line("Referrer-Policy", "no-referrer");
    line("Cross-Origin-Resource-Policy", "same-origin");
    return head + "\r\n";
}

bool is_unchanged(const Answer& answer, const std::string& if_none_match) {
    return answer.status == 200 && !answer.etag.empty() &&
           if_none_match.find(answer.etag) != std::string::npos;
}

}  // namespace regroup::http
