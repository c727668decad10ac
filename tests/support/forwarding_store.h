// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/store.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace regroup::testing {

/// Another store, of which a test changes some calls.
class ForwardingStore : public Store {
   public:
    explicit ForwardingStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}

    void set(std::string_view key, std::string_view value) override { store_->set(key, value); }
    std::string get(std::string_view key) override { return store_->get(key); }
    std::int64_t add(std::string_view key, std::int64_t amount) override {
        return store_->add(key, amount);
    }
    bool check(const std::vector<std::string>& keys) override { return store_->check(keys); }
    void wait(const std::vector<std::string>& keys, Duration timeout) override {
        store_->wait(keys, timeout);
    }
    std::string compare_set(std::string_view key, std::string_view expected,
                            std::string_view desired) override {
        return store_->compare_set(key, expected, desired);
    }
    bool delete_key(std::string_view key) override { return store_->delete_key(key); }
    void append(std::string_view key, std::string_view value) override {
        store_->append(key, value);
    }
    std::vector<std::string> multi_get(const std::vector<std::string>& keys) override {
        return store_->multi_get(keys);
    }
    void multi_set(const std::vector<std::string>& keys,
                   const std::vector<std::string>& values) override {
        store_->multi_set(keys, values);
    }
    std::int64_t num_keys() override { return store_->num_keys(); }
    [[nodiscard]] Duration timeout() const noexcept override { return store_->timeout(); }

   private:
    const std::shared_ptr<Store> store_;
};

}  // namespace regroup::testing
