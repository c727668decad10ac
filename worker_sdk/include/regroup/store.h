// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// The key-value store through which the workers of a round find each other, for small values. It
/// has the calls of PyTorch's stores and the wire protocol of its TCPStore, so C++ and Python
/// workers can share one.
///
/// Every call that waits has a deadline: its own argument, else `timeout()`. Calls throw Error:
/// `deadline_exceeded` naming the missing keys, `disconnected` naming the server. Thread-safe; the
/// calls of one object run one after the other, also while one waits. In a forked child they throw
/// `invalid_argument`: make a store of its own there.
class Store {
   public:
    using Duration = std::chrono::nanoseconds;

    virtual ~Store() = default;
    Store() = default;
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;

    virtual void set(std::string_view key, std::string_view value) = 0;
    /// Waits until `key` exists, for at most `timeout()`.
    virtual std::string get(std::string_view key) = 0;
    /// Adds to a number in decimal text (absent = 0) and returns the sum.
    virtual std::int64_t add(std::string_view key, std::int64_t amount) = 0;
    /// True if all keys exist now.
    virtual bool check(const std::vector<std::string>& keys) = 0;
    /// Waits until all keys exist.
    virtual void wait(const std::vector<std::string>& keys, Duration timeout) = 0;
    /// Stores `desired` if the value is `expected` (or absent, with `expected` empty). Returns the
    /// value afterwards; for an absent key with a non-empty `expected`, `expected` itself, as
    /// PyTorch's stores do.
    virtual std::string compare_set(std::string_view key, std::string_view expected,
                                    std::string_view desired) = 0;
    /// True if the key existed.
    virtual bool delete_key(std::string_view key) = 0;
    virtual void append(std::string_view key, std::string_view value) = 0;
    /// All values, in the keys' order; waits for them like `get`.
    virtual std::vector<std::string> multi_get(const std::vector<std::string>& keys) = 0;
    /// Requires equally many keys and values.
    virtual void multi_set(const std::vector<std::string>& keys,
                           const std::vector<std::string>& values) = 0;
    virtual std::int64_t num_keys() = 0;

    [[nodiscard]] virtual Duration timeout() const noexcept = 0;
};

/// Connects to a TCPStore server, retrying with back-off until `timeout`, which is also the limit
/// of later waits. `host` is a name or an IPv4 or IPv6 address.
[[nodiscard]] std::shared_ptr<Store> connect_store(const std::string& host, std::uint16_t port,
                                                   Store::Duration timeout);

/// A store in this process, for world size 1 and for tests with ranks as threads.
[[nodiscard]] std::shared_ptr<Store> make_local_store(Store::Duration timeout);

/// `store` with every key prefixed by "`prefix`/". num_keys is not filtered.
[[nodiscard]] std::shared_ptr<Store> prefix_store(std::string prefix, std::shared_ptr<Store> store);

}  // namespace regroup
