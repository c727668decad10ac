// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace regroup::store {

/// Limits for the clients of a store. The first three are those of PyTorch's server, so that every
/// request that works there works here. PyTorch has none of the others, which are generous. A
/// request beyond a limit changes nothing, and its sender is disconnected. A connection beyond
/// `clients_max` is closed.
struct Limits {
    std::size_t key_bytes_max = 8192;
    /// A value in a request. Appending may make a stored value longer, up to the next limit.
    std::size_t value_bytes_max = std::size_t{8} << 20U;
    /// Keys in one request, counted with repetition.
    std::size_t keys_max = 131072;
    /// A stored value. Must be below `reply_bytes_max`, otherwise it could not be fetched.
    std::size_t stored_value_bytes_max = std::size_t{32} << 20U;
    /// All keys and values of one request.
    std::size_t request_bytes_max = std::size_t{64} << 20U;
    /// One reply, and also the sum of all replies that a client has not read yet.
    std::size_t reply_bytes_max = std::size_t{64} << 20U;
    /// All keys, values and queued items together, with a fixed charge for each.
    std::size_t total_bytes_max = std::size_t{4} << 30U;
    /// The memory that all clients together make the server hold besides: incomplete requests,
    /// unread replies, and names that they wait for. Beyond it, the clients that hold most are
    /// disconnected.
    std::size_t clients_bytes_max = std::size_t{512} << 20U;
    /// Clients at the same time.
    std::size_t clients_max = std::size_t{1} << 20U;
};

}  // namespace regroup::store
