// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/store/store_limits.h"
#include "rendezvous/store/waits.h"

namespace regroup::store {

/// The key-value store of a round: keys, queues, and the clients that wait for them. It does no I/O
/// and knows no time (a client cancels its wait on timeout). Keys are hashed, since their order is
/// never visible.
///
/// A name *exists* when it is a key or when its queue has items. Otherwise keys and queues of one
/// name are independent. A client has at most one wait, for names or at a barrier; a new one
/// replaces it. Each wait ends once: it is listed in a `Released`, or it is cancelled.
///
/// Operations that can be refused return `invalid_argument` and have changed no key or queue.
class StoreCore {
   public:
    explicit StoreCore(const Limits& limits = {}) : limits_(limits) {}

    [[nodiscard]] const Limits& limits() const noexcept { return limits_; }

    // ---- Keys.

    Result<Released> set(std::string_view key, std::string_view value);
    /// Sets keys_and_values[0] to keys_and_values[1], and so on: all, or none when one is refused.
    /// Requires an even count.
    Result<Released> multi_set(std::span<const std::string> keys_and_values);
    Result<Released> append(std::string_view key, std::string_view value);

    /// The value, until the next operation; nullptr when there is none.
    [[nodiscard]] const std::string* find(std::string_view key) const;

    struct Sum {
        std::int64_t value = 0;
        Released released;
    };
    /// Adds to a number kept as decimal text; an absent one is 0. Refused when the value is no
    /// number or when the sum would not fit 64 bits.
    Result<Sum> add(std::string_view key, std::int64_t amount);

    struct Exchange {
        std::string value;
        Released released;
    };
    /// Stores `desired` where the value is `expected`, or where there is none and `expected` is
    /// empty. Returns the value afterwards. For an absent key with a non-empty `expected` it
    /// returns `expected`, as PyTorch's stores do and programs rely on.
    Result<Exchange> compare_set(std::string_view key, std::string_view expected,
                                 std::string_view desired);

    /// True if the key was there. Queues are not touched.
    bool delete_key(std::string_view key);
    [[nodiscard]] std::size_t num_keys() const noexcept { return values_.size(); }
    /// All keys, in no order.
    [[nodiscard]] std::vector<std::string> list_keys() const;
    /// The length of all keys together. O(1).
    [[nodiscard]] std::size_t keys_bytes() const noexcept { return keys_bytes_; }

    // ---- Queues.

    /// Adds an item at the end and releases at most one client, which is expected to fetch it.
    Result<Released> queue_push(std::string_view key, std::string_view value);

    struct Popped {
        std::size_t count_before = 0;  ///< Items before this call; with 0 there is no value.
        std::string value;
    };
    /// Takes the oldest item.
    Popped queue_pop(std::string_view key);
    [[nodiscard]] std::size_t queue_len(std::string_view key) const;

    // ---- Waits.

    /// True if all names exist now; also for an empty list.
    [[nodiscard]] bool check(std::span<const std::string> names) const;

    /// True if all names exist now. Otherwise the client waits until each missing one has appeared,
    /// even if it is deleted again meanwhile.
    Result<bool> wait(ClientId client, std::span<const std::string> names);

    struct Arrival {
        bool complete = false;  ///< This client need not wait.
        Released released;
    };
    /// Counts an arrival in the key, as `add` does, and waits until `world` have been counted. The
    /// count never returns to 0, and a cancelled arrival stays in it.
    Result<Arrival> barrier(ClientId client, std::string_view key, std::int64_t world);

    /// Ends the client's wait, if it has one, without release. Also for a disconnected client. A
    /// wait for many names leaves data behind, which `tidy` removes.
    void cancel_wait(ClientId client) { waits_.cancel(client); }

    /// The memory that the client's wait takes, approximately.
    [[nodiscard]] std::size_t wait_bytes(ClientId client) const { return waits_.bytes(client); }

    // ---- Removal in slices, since a wait may be for many thousand names.

    /// Removes some of what cancelled waits have left behind, `names_max` names at most, and
    /// returns the count of them. O(log clients) for each.
    std::size_t tidy(std::size_t names_max) { return waits_.tidy(names_max); }
    [[nodiscard]] bool is_tidy() const noexcept { return waits_.is_tidy(); }
    /// The memory that `tidy` will free, approximately.
    [[nodiscard]] std::size_t untidy_bytes() const noexcept { return waits_.untidy_bytes(); }
    /// Removes some of all that the store holds, `count_max` keys, items and names at most, and
    /// returns the count of them. For a store that is not used any more: nobody is released.
    std::size_t dismantle(std::size_t count_max);

    /// The bytes that count against `Limits::total_bytes_max`.
    [[nodiscard]] std::size_t total_bytes() const noexcept { return total_bytes_; }

   private:
    [[nodiscard]] bool exists(std::string_view name) const;
    [[nodiscard]] Result<void> check_key(std::string_view key) const;
    [[nodiscard]] Result<void> admit(std::string_view key, std::size_t value_bytes,
                                     std::size_t more_bytes = 0) const;
    void put(std::string_view key, std::string_view value, Released& released);

    Limits limits_;
    KeyMap<std::string> values_;
    KeyMap<std::deque<std::string>> queues_;  ///< None is empty.
    Waits waits_;                             ///< None is for a name that exists.
    std::size_t total_bytes_ = 0;
    std::size_t keys_bytes_ = 0;
};

}  // namespace regroup::store
