// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/endpoint.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/ensure.h"
#include "rendezvous/base/text.h"

namespace regroup::rendezvous {

namespace {

constexpr int kFollowedMax = 3;
// The percent sign precedes the interface of an IPv6 address.
constexpr std::string_view kHostCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:%";

}  // namespace

std::string Endpoint::text() const {
    return host_and_port(host, port);
}

std::optional<Endpoint> Endpoint::parse(std::string_view text) {
    Result<Endpoint> endpoint = parse_endpoint(text, 0, "");
    return endpoint && endpoint->port != 0 ? std::optional(*std::move(endpoint)) : std::nullopt;
}

Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port,
                                const std::string& subject) {
    text = trimmed(text);
    const auto bad = [&](const std::string& why) {
        return invalid_argument(subject + " '" + std::string(text) + "': " + why +
                                "; write HOST, HOST:PORT or [IPV6]:PORT");
    };
    if (text.empty()) {
        return Endpoint{"localhost", default_port};
    }
    const bool is_bracketed = text.front() == '[';
    const std::size_t bracket = text.find(']');
    if (is_bracketed && bracket == text.npos) {
        return bad("the bracket is not closed");
    }
    const std::size_t colon = std::min(is_bracketed ? bracket + 1 : text.rfind(':'), text.size());
    const std::string_view host =
        is_bracketed ? text.substr(1, bracket - 1) : text.substr(0, colon);
    std::string_view port = text.substr(colon);
    if (!port.empty() && port.front() != ':') {
        return bad("after the bracket there must be :PORT or nothing");
    }
    if (host.find("://") != host.npos) {
        return bad("it is no URL");
    }
    if (!is_bracketed && host.find(':') != host.npos) {
        return bad("an IPv6 address needs brackets");
    }
    if (port == ":") {
        return bad("the port is missing");
    }
    if (host.empty()) {
        return bad("the host is missing");
    }
    if (host.find_first_not_of(kHostCharacters) != host.npos) {
        return bad("'" + std::string(host) + "' is no host name or address");
    }
    port.remove_prefix(port.empty() ? 0 : 1);
    const auto number =
        port.empty() ? std::optional(default_port) : parse_number<std::uint16_t>(port);
    if (!number) {
        return bad("the port must be a number from 0 to 65535");
    }
    return Endpoint{std::string(host), *number};
}

Result<std::vector<Endpoint>> parse_endpoints(std::string_view text, std::uint16_t default_port,
                                              const std::string& subject) {
    std::vector<Endpoint> endpoints;
    for (const std::string_view part : split(text, ',')) {
        if (trimmed(part).empty() && part.size() != text.size()) {
            return invalid_argument(subject + " '" + std::string(text) +
                                    "': nothing stands between two commas");
        }
        Result<Endpoint> endpoint = parse_endpoint(part, default_port, subject);
        if (!endpoint) {
            return endpoint.error();
        }
        endpoints.push_back(*std::move(endpoint));
    }
    return endpoints;
}

EndpointTurn::EndpointTurn(std::vector<Endpoint> endpoints) : endpoints_(std::move(endpoints)) {
    ENSURE(!endpoints_.empty());
}

void EndpointTurn::advance() {
    answered_ = false;
    if (first_) {
        current_ = std::move(*first_);
        first_.reset();
        return;
    }
    current_ = endpoints_[next_];
    next_ = (next_ + 1) % endpoints_.size();
    ++tried_;
}

void EndpointTurn::answered() {
    answered_ = true;
    first_ = current_;
}

void EndpointTurn::named(const Endpoint& leader) {
    if (leader != current_ && followed_ < kFollowedMax) {
        first_ = leader;
        ++followed_;
    }
}

bool EndpointTurn::pause_is_due() const noexcept {
    return answered_ || (!first_ && tried_ >= endpoints_.size());
}

void EndpointTurn::paused() noexcept {
    tried_ = 0;
    followed_ = 0;
    answered_ = false;
}

}  // namespace regroup::rendezvous
