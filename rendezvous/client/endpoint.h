// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::rendezvous {

/// The address of a daemon. `host` is a name, or an IPv4 or IPv6 address without brackets.
struct Endpoint {
    std::string host;
    std::uint16_t port = 0;

    /// "host:port", "[::1]:29400".
    [[nodiscard]] std::string text() const;
    /// Like parse_endpoint(); nullopt if `text` is malformed, has no port or has port 0.
    [[nodiscard]] static std::optional<Endpoint> parse(std::string_view text);

    friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// Parses "HOST[:PORT]", an IPv6 address in brackets. An empty text is localhost. Errors:
/// invalid_argument, one line that begins with `subject`, such as the name of a flag.
[[nodiscard]] Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port,
                                              const std::string& subject);
/// The same for one or more, with commas between.
[[nodiscard]] Result<std::vector<Endpoint>> parse_endpoints(std::string_view text,
                                                            std::uint16_t default_port,
                                                            const std::string& subject);

/// Decides which of a job's endpoints is tried next: first that of the last good connection, or the
/// leader that a daemon named; then all in turn, with a pause after each turn.
class EndpointTurn {
   public:
    /// Requires at least one endpoint.
    explicit EndpointTurn(std::vector<Endpoint> endpoints);

    /// Makes the next endpoint `current`.
    void advance();
    [[nodiscard]] const Endpoint& current() const noexcept { return current_; }
    [[nodiscard]] bool has_others() const noexcept { return endpoints_.size() > 1; }

    /// The leader answered at `current`.
    void answered();
    /// The daemon at `current` says that `leader` leads. Between two pauses at most three such
    /// answers are followed, since two daemons may name each other.
    void named(const Endpoint& leader);
    /// True if the caller should pause before the next `advance`, and then call `paused`.
    [[nodiscard]] bool pause_is_due() const noexcept;
    void paused() noexcept;

   private:
    std::vector<Endpoint> endpoints_;
    Endpoint current_;
    std::optional<Endpoint> first_;  // Tried before the others.
    std::size_t next_ = 0;
    std::size_t tried_ = 0;  // Endpoints tried in this turn.
    int followed_ = 0;       // Named leaders followed in this turn.
    bool answered_ = false;  // The leader answered at `current_`: retry it after a pause.
};

}  // namespace regroup::rendezvous
