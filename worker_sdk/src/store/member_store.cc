// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/store/member_store.h"

#include <regroup/error.h>

#include <utility>

#include "worker_sdk/src/base/text.h"
#include "worker_sdk/src/net/cipher.h"
#include "worker_sdk/src/net/protection.h"

namespace regroup {
namespace {

/// Tells a rank without a secret why it cannot read a value.
constexpr std::string_view kSealed = "sealed:";

}  // namespace

MemberStore::MemberStore(std::string prefix, std::shared_ptr<Store> store,
                         std::optional<security::Key> key)
    : prefix_(std::move(prefix) + "/"), store_(std::move(store)), key_(std::move(key)) {}

MemberStore MemberStore::of_attempt(const Context& context, const std::string& name) {
    const std::shared_ptr<Store> store = context.store();
    const std::string place =
        name + "/" + std::to_string(context.round) + "." + std::to_string(context.restart_count);
    const std::int64_t attempt = store->add(place + "/attempt/" + std::to_string(context.rank), 1);
    return {place + "/" + std::to_string(attempt), store, net::group_key(context, "regroup store")};
}

std::vector<std::string> MemberStore::places_of(const std::vector<std::string>& keys) const {
    std::vector<std::string> places;
    for (const std::string& key : keys) {
        places.push_back(place_of(key));
    }
    return places;
}

std::string MemberStore::seal(const std::string& place, std::string_view value) const {
    return key_ ? std::string(kSealed) + net::seal(*key_, place, value) : std::string(value);
}

void MemberStore::set(std::string_view key, std::string_view value) {
    const std::string place = place_of(key);
    store_->set(place, seal(place, value));
}

std::string MemberStore::propose(std::string_view key, std::string_view value) {
    const std::string place = place_of(key);
    return open(key, store_->compare_set(place, "", seal(place, value)));
}

std::string MemberStore::open(std::string_view key, const std::string& value) const {
    const bool is_sealed = value.starts_with(kSealed);
    if (!key_ && !is_sealed) {
        return value;
    }
    const std::string place = place_of(key);
    std::string problem = "is of a rank that has a secret of the group, which this rank lacks";
    if (key_) {
        auto text =
            is_sealed ? net::unseal(*key_, place, value.substr(kSealed.size())) : std::nullopt;
        if (text) {
            return *std::move(text);
        }
        problem = is_sealed ? "was made with another secret of the group than this rank's"
                            : "is of a rank without a secret of the group, unlike this rank";
    }
    throw Error(Errc::invalid_argument,
                "the store's entry \"" + place + "\" " + problem +
                    ", or of a stranger; give all ranks the same secret (Context::group_secret, "
                    "REGROUP_GROUP_SECRET_FILE), or none");
}

std::string MemberStore::get(std::string_view key) {
    return open(key, store_->get(place_of(key)));
}

std::vector<std::string> MemberStore::multi_get(const std::vector<std::string>& keys) {
    std::vector<std::string> values = store_->multi_get(places_of(keys));
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = open(keys[i], values[i]);
    }
    return values;
}

void MemberStore::wait(const std::vector<std::string>& keys, Store::Duration timeout) {
    store_->wait(places_of(keys), timeout);
}

std::string MemberStore::missing(const std::vector<std::string>& keys) {
    std::vector<std::string> missing;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if (!check(keys[i])) {
            missing.push_back(std::to_string(i));
        }
    }
    return listed(missing);
}

}  // namespace regroup
