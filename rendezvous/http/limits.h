// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "rendezvous/base/clock.h"

namespace regroup::http {

/// Limits on the resources that HTTP clients can make the daemon use.
struct Limits {
    /// Beyond this one leaves for each that comes: see leaves_for.
    std::size_t connections_max = 256;
    /// The viewers; and with so many clients that have proved who they are, an answer ends its
    /// connection. The rest of the connections is for short visits: probes, scrapes, operators.
    std::size_t staying_max = 192;
    std::size_t head_bytes_max = std::size_t{8} << 10U;
    std::size_t body_bytes_max = std::size_t{16} << 10U;
    /// From the first byte of a request to its last.
    Duration request_limit = std::chrono::seconds(10);
    /// Until the pages have answered.
    Duration answer_limit = std::chrono::seconds(10);
    /// For each 64 KiB of an answer.
    Duration write_limit = std::chrono::seconds(10);
    /// A client that takes longer to read its answer makes room for others when all are busy.
    Duration slow_limit = std::chrono::seconds(2);
    /// The texts that are being sent, each counted once. Beyond that the slowest readers of the
    /// peer that holds the most are disconnected.
    std::size_t texts_bytes_max = std::size_t{64} << 20U;
    /// Between two requests.
    Duration idle_limit = std::chrono::seconds(60);
    /// The time between two signs of life to a viewer.
    Duration viewer_interval = std::chrono::seconds(15);
    /// The events, and their bytes, that wait for a viewer.
    std::size_t viewer_events_max = 1024;
    std::size_t viewer_bytes_max = std::size_t{1} << 20U;
};

}  // namespace regroup::http
