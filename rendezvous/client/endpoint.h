// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace regroup::rendezvous {

/// Where a daemon listens. `host` is a name, or an IPv4 or IPv6 address without brackets.
struct Endpoint {
    std::string host;
    std::uint16_t port = 0;

    /// "host:port", "[::1]:29400".
    [[nodiscard]] std::string text() const;
    /// The endpoint that `text` names, port included; nothing if it names none.
    [[nodiscard]] static std::optional<Endpoint> parse(std::string_view text);

    friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// Which of a job's endpoints is tried next: that of the last good connection first, or the one
/// that a daemon named as the leader; then all in turn, with a pause after each turn.
class EndpointTurn {
   public:
    /// Requires at least one endpoint.
    explicit EndpointTurn(std::vector<Endpoint> endpoints);

    /// Takes the next one, which is then `current`.
    void advance();
    [[nodiscard]] const Endpoint& current() const noexcept { return current_; }
    [[nodiscard]] bool has_others() const noexcept { return endpoints_.size() > 1; }

    /// A daemon that leads answered at `current`.
    void answered();
    /// The daemon at `current` says that `leader` leads. Two that name each other are followed
    /// three times between two pauses.
    void named(const Endpoint& leader);
    /// Before the next `advance` there should be a pause; `paused` says that there was one.
    [[nodiscard]] bool pause_is_due() const noexcept;
    void paused() noexcept;

   private:
    std::vector<Endpoint> endpoints_;
    Endpoint current_;
    std::optional<Endpoint> first_;  // To be tried before the others.
    std::size_t next_ = 0;
    std::size_t tried_ = 0;  // In this turn.
    int followed_ = 0;       // Leaders named by others, in this turn.
    bool answered_ = false;  // By `current_`, which is then tried again, but not at once.
};

}  // namespace regroup::rendezvous
