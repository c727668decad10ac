// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace regroup::store {

/// Identifies one client of a store, for its waits. Chosen by the caller.
enum class ClientId : std::uint64_t {};

/// Clients whose wait has just ended, in the order in which their waits began.
using Released = std::vector<ClientId>;

struct KeyHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const noexcept {
        return std::hash<std::string_view>()(key);
    }
};
template <class Value>
using KeyMap = std::unordered_map<std::string, Value, KeyHash, std::equal_to<>>;

/// Removes some of the items of some of `lists`, `count_max` at most, and the lists that become
/// empty. Returns the count of items.
template <class Lists>
std::size_t take_one_by_one(Lists& lists, std::size_t count_max) {
    std::size_t count = 0;
    for (; count < count_max && !lists.empty(); ++count) {
        auto& list = lists.begin()->second;
        list.erase(list.begin());
        if (list.empty()) {
            lists.erase(lists.begin());
        }
    }
    return count;
}

/// The clients of a StoreCore that wait for names, or at barriers. See there.
class Waits {
   public:
    /// The client waits until each of `names`, none of which exists, has appeared.
    void begin(ClientId client, std::vector<std::string> names);
    /// The client waits until `world` arrivals have been counted in `key`.
    void begin_at_barrier(ClientId client, std::string_view key, std::int64_t world);
    /// Ends the client's wait, if it has one, without release.
    void cancel(ClientId client);
    /// The memory that the client's wait takes, approximately.
    [[nodiscard]] std::size_t bytes(ClientId client) const;

    /// The name has appeared.
    void wake_all(std::string_view name, Released& released);
    /// An item of the name has appeared, for one client.
    void wake_one(std::string_view name, Released& released);
    /// `count` arrivals have been counted in `key`.
    void arrive(std::string_view key, std::int64_t count, Released& released);

    /// Removes some of what cancelled waits have left behind: see StoreCore::tidy().
    std::size_t tidy(std::size_t names_max);
    [[nodiscard]] bool is_tidy() const noexcept { return ended_.empty(); }
    [[nodiscard]] std::size_t untidy_bytes() const noexcept { return ended_bytes_; }
    /// Removes some of all waits: see StoreCore::dismantle().
    std::size_t dismantle(std::size_t count_max);

   private:
    /// Numbers the waits in the order in which they begin.
    using Ticket = std::uint64_t;
    struct Wait {
        Ticket ticket = 0;
        std::vector<std::string> names{};  ///< The missing names, each once, or the barrier's key.
        std::size_t missing_count = 0;
        std::optional<std::int64_t> world{};  ///< Of the barrier.
        std::size_t bytes = 0;                ///< See bytes().
    };
    using Place = std::pair<std::int64_t, Ticket>;  ///< At a barrier: its world comes first.

    [[nodiscard]] bool count_down(Ticket ticket, ClientId client);
    void forget_name(const Wait& wait, const std::string& name);

    /// The clients that wait for a name, oldest first; none is empty. A ticket that is not that of
    /// its client's wait belongs to one of `ended_`.
    KeyMap<std::map<Ticket, ClientId>> waiters_;
    KeyMap<std::map<Place, ClientId>> barriers_;  ///< None is empty.
    std::unordered_map<ClientId, Wait> waits_;
    std::deque<Wait> ended_;  ///< Cancelled; with the names that are still to be removed.
    std::size_t ended_bytes_ = 0;
    Ticket last_ticket_ = 0;
};

}  // namespace regroup::store
