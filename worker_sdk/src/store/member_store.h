// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>
#include <regroup/store.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/security/key.h"

namespace regroup {

/// A place in a store where the ranks that form a group tell each other how to meet. With a key,
/// only ranks that have it can read and make the values, and a value is good under its own key
/// alone: whoever else can use the store learns nothing, and can at most prevent the meeting.
/// Counts, and whether a key is there, are not protected.
///
/// Calls throw as those of Store, and Error `invalid_argument` naming the entry that no rank with
/// the same key has made.
class MemberStore {
   public:
    /// The keys of `store` under "`prefix`/".
    MemberStore(std::string prefix, std::shared_ptr<Store> store, std::optional<security::Key> key);
    /// The place under `name` for this round and attempt. Every rank counts its own attempts, so
    /// that keys of failed attempts, which fail on all ranks, do not matter.
    static MemberStore of_attempt(const Context& context, const std::string& name);

    /// The same place and key over another connection to the same store.
    [[nodiscard]] MemberStore over(std::shared_ptr<Store> store) const {
        return {prefix_.substr(0, prefix_.size() - 1), std::move(store), key_};
    }
    /// The keys under "`name`/" of this place.
    [[nodiscard]] MemberStore under(const std::string& name) const {
        return {prefix_ + name, store_, key_};
    }
    [[nodiscard]] const std::shared_ptr<Store>& store() const noexcept { return store_; }

    void set(std::string_view key, std::string_view value);
    /// Sets the value of a key that is not there; returns the value that is there then.
    [[nodiscard]] std::string propose(std::string_view key, std::string_view value);
    [[nodiscard]] std::string get(std::string_view key);
    [[nodiscard]] std::vector<std::string> multi_get(const std::vector<std::string>& keys);

    std::int64_t add(std::string_view key, std::int64_t amount) {
        return store_->add(place_of(key), amount);
    }
    [[nodiscard]] bool check(std::string_view key) { return store_->check({place_of(key)}); }
    /// Appends to a value that every client of the store can read, and reads it.
    void append(std::string_view key, std::string_view value) {
        store_->append(place_of(key), value);
    }
    [[nodiscard]] std::string get_open(std::string_view key) { return store_->get(place_of(key)); }
    void erase(std::string_view key) { static_cast<void>(store_->delete_key(place_of(key))); }
    void wait(const std::vector<std::string>& keys, Store::Duration timeout);
    /// The places of the keys that are not there: "3, 5 and 2 more".
    [[nodiscard]] std::string missing(const std::vector<std::string>& keys);
    [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }

   private:
    [[nodiscard]] std::string place_of(std::string_view key) const {
        return prefix_ + std::string(key);
    }
    [[nodiscard]] std::vector<std::string> places_of(const std::vector<std::string>& keys) const;
    [[nodiscard]] std::string seal(const std::string& place, std::string_view value) const;
    [[nodiscard]] std::string open(std::string_view key, const std::string& value) const;

    std::string prefix_;
    std::shared_ptr<Store> store_;
    std::optional<security::Key> key_;
};

}  // namespace regroup
