// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/store.h>

#include <condition_variable>
#include <mutex>
#include <utility>

#include "rendezvous/base/clock.h"
#include "rendezvous/store/store_client.h"
#include "rendezvous/store/store_core.h"
#include "worker_sdk/src/base/process_mark.h"
#include "worker_sdk/src/store/interruptible_store.h"

namespace regroup {
namespace {

[[noreturn]] void raise(const Failure& failure) {
    throw Error(failure.code, failure.detail);
}

template <class T>
T value_or_raise(Result<T>&& result) {
    if (!result) {
        raise(result.error());
    }
    if constexpr (!std::is_void_v<T>) {
        return std::move(*result);
    }
}

void require_pairs(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
    if (keys.size() != values.size()) {
        throw Error(Errc::invalid_argument, "multi_set: " + std::to_string(keys.size()) +
                                                " keys and " + std::to_string(values.size()) +
                                                " values");
    }
}

/// Lets in one thread at a time, of the process that made it.
class Gate {
   public:
    [[nodiscard]] std::unique_lock<std::mutex> enter(const char* call) {
        mark_.require(call);
        return std::unique_lock(mutex_);
    }

   private:
    const ProcessMark mark_;
    std::mutex mutex_;
};

/// A store of a server, over one connection.
class TcpStore final : public Store {
   public:
    TcpStore(const std::string& host, std::uint16_t port, Duration timeout,
             std::shared_ptr<RoundScope> scope)
        : host_(host),
          port_(port),
          timeout_(timeout),
          registration_(std::move(scope), [this](const std::string&) { client_.interrupt(); }) {
        value_or_raise(client_.connect(host, port, timeout));
    }

    void set(std::string_view key, std::string_view value) override {
        const auto lock = gate_.enter("store: set");
        value_or_raise(client_.set(key, value, timeout_));
    }
    std::string get(std::string_view key) override {
        const auto lock = gate_.enter("store: get");
        return value_or_raise(client_.get(key, timeout_));
    }
    std::int64_t add(std::string_view key, std::int64_t amount) override {
        const auto lock = gate_.enter("store: add");
        return value_or_raise(client_.add(key, amount, timeout_));
    }
    bool check(const std::vector<std::string>& keys) override {
        const auto lock = gate_.enter("store: check");
        return value_or_raise(client_.check(keys, timeout_));
    }
    void wait(const std::vector<std::string>& keys, Duration timeout) override {
        const auto lock = gate_.enter("store: wait");
        value_or_raise(client_.wait(keys, timeout));
    }
    std::string compare_set(std::string_view key, std::string_view expected,
                            std::string_view desired) override {
        const auto lock = gate_.enter("store: compare_set");
        return value_or_raise(client_.compare_set(key, expected, desired, timeout_));
    }
    bool delete_key(std::string_view key) override {
        const auto lock = gate_.enter("store: delete_key");
        return value_or_raise(client_.delete_key(key, timeout_));
    }
    void append(std::string_view key, std::string_view value) override {
        const auto lock = gate_.enter("store: append");
        value_or_raise(client_.append(key, value, timeout_));
    }
    std::vector<std::string> multi_get(const std::vector<std::string>& keys) override {
        const auto lock = gate_.enter("store: multi_get");
        return value_or_raise(client_.multi_get(keys, timeout_));
    }
    void multi_set(const std::vector<std::string>& keys,
                   const std::vector<std::string>& values) override {
        require_pairs(keys, values);
        const auto lock = gate_.enter("store: multi_set");
        value_or_raise(client_.multi_set(keys, values, timeout_));
    }
    std::int64_t num_keys() override {
        const auto lock = gate_.enter("store: num_keys");
        return value_or_raise(client_.num_keys(timeout_));
    }
    [[nodiscard]] Duration timeout() const noexcept override { return timeout_; }

    [[nodiscard]] std::shared_ptr<Store> connect_again(std::shared_ptr<RoundScope> scope) const {
        return connect_interruptible_store(host_, port_, timeout_, std::move(scope));
    }

   private:
    const std::string host_;
    const std::uint16_t port_;
    const Duration timeout_;
    Gate gate_;
    store::StoreClient client_;  // Guarded by the gate, except for `interrupt`.
    const RoundScope::Registration registration_;
};

/// A store in this process. Waiting threads check again after each change.
class LocalStore final : public Store {
   public:
    explicit LocalStore(Duration timeout) : timeout_(timeout) {}

    void set(std::string_view key, std::string_view value) override {
        const auto lock = gate_.enter("store: set");
        value_or_raise(core_.set(key, value));
        changed_.notify_all();
    }
    std::string get(std::string_view key) override {
        auto lock = gate_.enter("store: get");
        wait_locked(lock, {std::string(key)}, timeout_);
        return *core_.find(key);
    }
    std::int64_t add(std::string_view key, std::int64_t amount) override {
        const auto lock = gate_.enter("store: add");
        changed_.notify_all();
        return value_or_raise(core_.add(key, amount)).value;
    }
    bool check(const std::vector<std::string>& keys) override {
        const auto lock = gate_.enter("store: check");
        return core_.check(keys);
    }
    void wait(const std::vector<std::string>& keys, Duration timeout) override {
        auto lock = gate_.enter("store: wait");
        wait_locked(lock, keys, timeout);
    }
    std::string compare_set(std::string_view key, std::string_view expected,
                            std::string_view desired) override {
        const auto lock = gate_.enter("store: compare_set");
        changed_.notify_all();
        return value_or_raise(core_.compare_set(key, expected, desired)).value;
    }
    bool delete_key(std::string_view key) override {
        const auto lock = gate_.enter("store: delete_key");
        return core_.delete_key(key);
    }
    void append(std::string_view key, std::string_view value) override {
        const auto lock = gate_.enter("store: append");
        value_or_raise(core_.append(key, value));
        changed_.notify_all();
    }
    std::vector<std::string> multi_get(const std::vector<std::string>& keys) override {
        auto lock = gate_.enter("store: multi_get");
        wait_locked(lock, keys, timeout_);
        std::vector<std::string> values;
        for (const std::string& key : keys) {
            values.push_back(*core_.find(key));
        }
        return values;
    }
    void multi_set(const std::vector<std::string>& keys,
                   const std::vector<std::string>& values) override {
        require_pairs(keys, values);
        std::vector<std::string> pairs;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            pairs.push_back(keys[i]);
            pairs.push_back(values[i]);
        }
        const auto lock = gate_.enter("store: multi_set");
        value_or_raise(core_.multi_set(pairs));
        changed_.notify_all();
    }
    std::int64_t num_keys() override {
        const auto lock = gate_.enter("store: num_keys");
        return static_cast<std::int64_t>(core_.num_keys());
    }
    [[nodiscard]] Duration timeout() const noexcept override { return timeout_; }

   private:
    void wait_locked(std::unique_lock<std::mutex>& lock, const std::vector<std::string>& keys,
                     Duration timeout) {
        const auto arrived = [&] { return core_.check(keys); };
        const Instant deadline = after(SteadyClock().now(), timeout);
        if (deadline == Instant::max()) {
            changed_.wait(lock, arrived);
        } else if (!changed_.wait_until(lock, deadline, arrived)) {
            std::string missing;
            for (const std::string& key : keys) {
                if (core_.find(key) == nullptr) {
                    missing += (missing.empty() ? "" : ", ") + key;
                }
            }
            throw Error(Errc::deadline_exceeded,
                        "nobody has set " + missing + " within " + format_duration(timeout));
        }
    }

    const Duration timeout_;
    Gate gate_;
    std::condition_variable changed_;
    store::StoreCore core_;  // Guarded by the gate.
};

/// Another store's keys under a prefix.
class PrefixStore final : public Store {
   public:
    PrefixStore(std::string prefix, std::shared_ptr<Store> store)
        : prefix_(std::move(prefix) + "/"), store_(std::move(store)) {}

    void set(std::string_view key, std::string_view value) override {
        store_->set(prefixed(key), value);
    }
    std::string get(std::string_view key) override { return store_->get(prefixed(key)); }
    std::int64_t add(std::string_view key, std::int64_t amount) override {
        return store_->add(prefixed(key), amount);
    }
    bool check(const std::vector<std::string>& keys) override {
        return store_->check(prefixed(keys));
    }
    void wait(const std::vector<std::string>& keys, Duration timeout) override {
        store_->wait(prefixed(keys), timeout);
    }
    std::string compare_set(std::string_view key, std::string_view expected,
                            std::string_view desired) override {
        return store_->compare_set(prefixed(key), expected, desired);
    }
    bool delete_key(std::string_view key) override { return store_->delete_key(prefixed(key)); }
    void append(std::string_view key, std::string_view value) override {
        store_->append(prefixed(key), value);
    }
    std::vector<std::string> multi_get(const std::vector<std::string>& keys) override {
        return store_->multi_get(prefixed(keys));
    }
    void multi_set(const std::vector<std::string>& keys,
                   const std::vector<std::string>& values) override {
        store_->multi_set(prefixed(keys), values);
    }
    std::int64_t num_keys() override { return store_->num_keys(); }
    [[nodiscard]] Duration timeout() const noexcept override { return store_->timeout(); }

   private:
    [[nodiscard]] std::string prefixed(std::string_view key) const {
        return prefix_ + std::string(key);
    }
    [[nodiscard]] std::vector<std::string> prefixed(const std::vector<std::string>& keys) const {
        std::vector<std::string> result;
        for (const std::string& key : keys) {
            result.push_back(prefix_ + key);
        }
        return result;
    }

    const std::string prefix_;
    const std::shared_ptr<Store> store_;
};

}  // namespace

std::shared_ptr<Store> connect_store(const std::string& host, std::uint16_t port,
                                     Store::Duration timeout) {
    return connect_interruptible_store(host, port, timeout, nullptr);
}

std::shared_ptr<Store> connect_interruptible_store(const std::string& host, std::uint16_t port,
                                                   Store::Duration timeout,
                                                   std::shared_ptr<RoundScope> scope) {
    return {new TcpStore(host, port, timeout, std::move(scope)), OwnerDeleter()};
}

std::shared_ptr<Store> connect_again(const std::shared_ptr<Store>& store,
                                     std::shared_ptr<RoundScope> scope) {
    const auto* const connection = dynamic_cast<const TcpStore*>(store.get());
    return connection == nullptr ? nullptr : connection->connect_again(std::move(scope));
}

std::shared_ptr<Store> make_local_store(Store::Duration timeout) {
    return {new LocalStore(timeout), OwnerDeleter()};
}

std::shared_ptr<Store> prefix_store(std::string prefix, std::shared_ptr<Store> store) {
    return std::make_shared<PrefixStore>(std::move(prefix), std::move(store));
}

}  // namespace regroup
