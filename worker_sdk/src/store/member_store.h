// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>
#include <regroup/store.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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

    void set(std::string_view key, std::string_view value);
    [[nodiscard]] std::string get(std::string_view key);
    [[nodiscard]] std::vector<std::string> multi_get(const std::vector<std::string>& keys);

    std::int64_t add(std::string_view key, std::int64_t amount) {
        return store_->add(place_of(key), amount);
    }
    [[nodiscard]] bool check(std::string_view key) { return store_->check({place_of(key)}); }
    void wait(const std::vector<std::string>& keys, Store::Duration timeout);
    /// The places of the keys that are not there: "3, 5 and 2 more".
    [[nodiscard]] std::string missing(const std::vector<std::string>& keys);
    [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }

   private:
    [[nodiscard]] std::string place_of(std::string_view key) const {
        return prefix_ + std::string(key);
    }
    [[nodiscard]] std::vector<std::string> places_of(const std::vector<std::string>& keys) const;
    [[nodiscard]] std::string open(std::string_view key, const std::string& value) const;

    const std::string prefix_;
    const std::shared_ptr<Store> store_;
    const std::optional<security::Key> key_;
};

}  // namespace regroup
