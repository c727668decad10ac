// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "rendezvous/base/clock.h"

namespace regroup::rendezvous {

/// The log lines that peers can cause at will. Of each kind, the first lines about an address are
/// written at once, and the others are counted: "and 57 more like it from 10.0.0.4". Memory is
/// bounded, whatever addresses there are. Not thread-safe.
class LogLimiter {
   public:
    using Write = std::function<void(const std::string& line)>;

    /// Lines of one kind about one address that are written within `kWindow`.
    static constexpr std::size_t kLinesMax = 3;
    static constexpr Duration kWindow = std::chrono::minutes(1);
    /// Kinds and addresses with a count of their own; further ones share the count of their kind.
    static constexpr std::size_t kCountsMax = 1024;

    explicit LogLimiter(Write write) : write_(std::move(write)) {}

    /// `kind` is one of a few constants. `address` is an IP address, without a port.
    void log(const std::string& kind, const std::string& address, const std::string& line,
             Instant now);
    /// Writes the counts of windows that are over. To be called about once a second.
    void sweep(Instant now);

   private:
    struct Count {
        Instant until{};
        std::size_t written = 0;
        std::size_t left_out = 0;
        std::string last{};  ///< The last line that was left out.
    };
    using Counts = std::map<std::pair<std::string, std::string>, Count>;

    void tell(const Counts::value_type& entry);

    Write write_;
    Counts counts_;  ///< By kind and address; the address is empty for those that share a count.
};

}  // namespace regroup::rendezvous
