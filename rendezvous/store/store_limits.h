// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace regroup::store {

/// What one client may ask of a store. The first three are those of PyTorch's server, so that
/// whatever works there works here; it has none of the others, and they are generous. A request
/// beyond any of them changes nothing and costs its sender the connection.
struct Limits {
    std::size_t key_bytes_max = 8192;
    /// A value as it is sent. Appending may make a stored one longer, up to the next limit.
    std::size_t value_bytes_max = std::size_t{8} << 20U;
    /// Keys in one request, counted with repetition.
    std::size_t keys_max = 131072;
    /// A stored value. Below `reply_bytes_max`, or it could never be fetched.
    std::size_t stored_value_bytes_max = std::size_t{32} << 20U;
    /// All keys and values of one request.
    std::size_t request_bytes_max = std::size_t{64} << 20U;
    /// One reply, and also all replies that a client has not read yet.
    std::size_t reply_bytes_max = std::size_t{64} << 20U;
    /// All keys, values and queued items together, with a fixed charge for each.
    std::size_t total_bytes_max = std::size_t{4} << 30U;
};

}  // namespace regroup::store
