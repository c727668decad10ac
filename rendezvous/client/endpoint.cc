// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/endpoint.h"

#include <charconv>
#include <utility>

#include "rendezvous/base/ensure.h"

namespace regroup::rendezvous {

namespace {

constexpr int kFollowedMax = 3;

}  // namespace

std::string Endpoint::text() const {
    const bool bare_v6 = host.find(':') != std::string::npos;
    return (bare_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::optional<Endpoint> Endpoint::parse(std::string_view text) {
    const std::size_t colon = text.rfind(':');
    if (colon == text.npos || colon == 0) {
        return std::nullopt;
    }
    std::string_view host = text.substr(0, colon);
    const std::string_view digits = text.substr(colon + 1);
    const bool bracketed = host.front() == '[' && host.back() == ']' && host.size() > 2;
    if (bracketed) {
        host = host.substr(1, host.size() - 2);
    }
    if (host.find_first_of(bracketed ? "[]" : ":[]") != host.npos) {
        return std::nullopt;
    }
    Endpoint endpoint{std::string(host), 0};
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), endpoint.port);
    const bool good =
        error == std::errc{} && end == digits.data() + digits.size() && endpoint.port != 0;
    return good ? std::optional(std::move(endpoint)) : std::nullopt;
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
