// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>

#include "rendezvous/core/messages.h"
#include "rendezvous/view/job_totals.h"

namespace regroup::rendezvous {

/// Counts the times between two messages of a node, as parts of the heartbeat timeout of its job:
/// at 1 the daemon takes the node for lost. Not cumulative.
struct SilenceHistogram {
    static constexpr std::array<double, 8> kLimits{.05, .1, .2, .3, .4, .5, .75, 1};
    std::array<std::uint64_t, kLimits.size() + 1> counts{};  ///< The last one: longer.
    std::uint64_t count = 0;
    double sum = 0;

    void add(double ratio) noexcept {
        const auto bucket = std::lower_bound(kLimits.begin(), kLimits.end(), ratio);
        ++counts[static_cast<std::size_t>(bucket - kLimits.begin())];
        ++count;
        sum += ratio;
    }
};

/// The counters of a daemon besides its jobs. The counters begin with its process.
struct DaemonCounters {
    std::int64_t began_ms = 0;  ///< Wall-clock time, since 1970.
    bool leads = true;

    std::uint64_t connections_accepted = 0;
    std::uint64_t nodes_connected = 0;
    std::uint64_t unidentified_connected = 0;  ///< They have not said what they want yet.
    std::uint64_t others_connected = 0;        ///< Operators, and nodes that have left.
    std::uint64_t store_connected = 0;         ///< Clients of the store for torchrun.
    std::uint64_t http_connected = 0;

    /// Traffic of the control connections, payload and frame headers.
    std::uint64_t messages_in = 0;
    std::uint64_t messages_out = 0;
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
    /// Requests to the daemon, by the index of FromAgent.
    std::array<std::uint64_t, std::variant_size_v<FromAgent>> requests{};
    std::uint64_t store_requests = 0;
    /// Refused connections and messages, by one of a few kinds. These are there from the beginning:
    /// rates need the zero before the first one.
    std::map<std::string, std::uint64_t, std::less<>> refusals{
        {"eviction", 0}, {"http_refusal", 0}, {"refusal", 0}, {"store_client", 0}};
    std::array<std::uint64_t, 3> jobs_ended{};  ///< By Outcome.

    SilenceHistogram silences{};
    Histogram delays{};  ///< By how much its timer was late: messages wait for as long.
};

}  // namespace regroup::rendezvous
