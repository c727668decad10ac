// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/store/request_channel.h"

namespace regroup::store {

/// A TCPStore client: one connection, blocking calls. On the wire each key has a '/' in front, as
/// in PyTorch's clients, so that both kinds of clients find each other's keys.
///
/// Failures of every call:
///  - invalid_argument: a key, value or list is beyond the limits of TCPStore servers; nothing was
///    sent;
///  - deadline_exceeded: no answer within `timeout`;
///  - disconnected: the connection is gone, or not made yet;
///  - fenced: `interrupt` was called;
///  - system: the operating system refused.
/// After a `deadline_exceeded` of a call that waits for keys or at a barrier the connection is
/// still usable. After any other failure except `invalid_argument` it is gone, because half an
/// exchange cannot be undone: later calls fail with `disconnected` until the next `connect`.
///
/// A call that waits takes longer than its timeout, by a few seconds, only when the server does not
/// answer the request to stop waiting.
///
/// One thread at a time; `interrupt` from any.
class StoreClient {
   public:
    StoreClient() = default;
    StoreClient(const StoreClient&) = delete;
    StoreClient& operator=(const StoreClient&) = delete;

    /// Connects and greets. Tries again after a growing pause, with jitter, while no server answers
    /// at `host` and `port`. Fails with the last reason after `timeout`, and at once when the
    /// server is no store. A former connection is closed first.
    Result<void> connect(const std::string& host, std::uint16_t port, Duration timeout);

    Result<void> set(std::string_view key, std::string_view value, Duration timeout);
    /// Waits until the key exists.
    Result<std::string> get(std::string_view key, Duration timeout);
    /// Adds to a number kept as decimal text, 0 when absent, and returns the sum.
    Result<std::int64_t> add(std::string_view key, std::int64_t amount, Duration timeout);
    /// True if all keys exist now.
    Result<bool> check(const std::vector<std::string>& keys, Duration timeout);
    /// Waits until all keys exist.
    Result<void> wait(const std::vector<std::string>& keys, Duration timeout);
    /// Returns the value afterwards; see StoreCore::compare_set.
    Result<std::string> compare_set(std::string_view key, std::string_view expected,
                                    std::string_view desired, Duration timeout);
    /// True if the key was there.
    Result<bool> delete_key(std::string_view key, Duration timeout);
    Result<void> append(std::string_view key, std::string_view value, Duration timeout);
    /// Waits until all keys exist; their values in order.
    Result<std::vector<std::string>> multi_get(const std::vector<std::string>& keys,
                                               Duration timeout);
    /// Requires as many values as keys.
    Result<void> multi_set(const std::vector<std::string>& keys,
                           const std::vector<std::string>& values, Duration timeout);
    /// Counts all keys, including those without a leading '/'.
    Result<std::int64_t> num_keys(Duration timeout);
    /// All keys that have a leading '/' on the wire, without it, sorted.
    Result<std::vector<std::string>> list_keys(Duration timeout);

    Result<void> queue_push(std::string_view key, std::string_view value, Duration timeout);
    /// Waits for an item and takes it.
    Result<std::string> queue_pop(std::string_view key, Duration timeout);
    /// Takes an item if there is one.
    Result<std::optional<std::string>> queue_try_pop(std::string_view key, Duration timeout);
    Result<std::int64_t> queue_len(std::string_view key, Duration timeout);

    /// Waits until `world` clients have reached the barrier of this key. A key is for one barrier.
    Result<void> barrier(std::string_view key, std::int64_t world, Duration timeout);

    /// Ends the call in progress, if there is one, and all later ones with `fenced`. Permanent.
    void interrupt() noexcept { channel_.interrupt(); }

   private:
    Result<void> wait_for(const Request& request, Instant deadline, Duration timeout);

    RequestChannel channel_;
};

}  // namespace regroup::store
