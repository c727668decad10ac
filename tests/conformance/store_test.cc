// SPDX-License-Identifier: Apache-2.0
// The behaviour of a store, tested with the core in this process and with a server through its
// client. Both must behave alike.
#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/store/store_core.h"
#include "tests/conformance/store_support.h"

namespace regroup::store {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Names = std::vector<std::string>;

/// The interface of a store client that the cases need.
class StoreUser {
   public:
    virtual ~StoreUser() = default;
    virtual Result<void> set(std::string_view key, std::string_view value) = 0;
    virtual Result<std::string> get(std::string_view key, Duration timeout) = 0;
    virtual Result<std::int64_t> add(std::string_view key, std::int64_t amount) = 0;
    virtual Result<bool> check(const Names& keys) = 0;
    virtual Result<void> wait(const Names& keys, Duration timeout) = 0;
    virtual Result<std::string> compare_set(std::string_view key, std::string_view expected,
                                            std::string_view desired) = 0;
    virtual Result<bool> delete_key(std::string_view key) = 0;
    virtual Result<void> append(std::string_view key, std::string_view value) = 0;
    virtual Result<Names> multi_get(const Names& keys, Duration timeout) = 0;
    virtual Result<void> multi_set(const Names& keys, const Names& values) = 0;
    virtual Result<std::int64_t> num_keys() = 0;
    virtual Result<Names> list_keys() = 0;
    virtual Result<void> queue_push(std::string_view key, std::string_view value) = 0;
    virtual Result<std::string> queue_pop(std::string_view key, Duration timeout) = 0;
    virtual Result<std::int64_t> queue_len(std::string_view key) = 0;
    virtual Result<void> barrier(std::string_view key, std::int64_t world, Duration timeout) = 0;
};

/// A store, and clients that may run on separate threads.
class StoreBench {
   public:
    virtual ~StoreBench() = default;
    virtual std::unique_ptr<StoreUser> new_user() = 0;
};

// ---- Through the network.

class RemoteUser final : public StoreUser {
   public:
    explicit RemoteUser(std::unique_ptr<StoreClient> client) : client_(std::move(client)) {}

    Result<void> set(std::string_view key, std::string_view value) override {
        return client_->set(key, value, kPatience);
    }
    Result<std::string> get(std::string_view key, Duration timeout) override {
        return client_->get(key, timeout);
    }
    Result<std::int64_t> add(std::string_view key, std::int64_t amount) override {
        return client_->add(key, amount, kPatience);
    }
    Result<bool> check(const Names& keys) override { return client_->check(keys, kPatience); }
    Result<void> wait(const Names& keys, Duration timeout) override {
        return client_->wait(keys, timeout);
    }
    Result<std::string> compare_set(std::string_view key, std::string_view expected,
                                    std::string_view desired) override {
        return client_->compare_set(key, expected, desired, kPatience);
    }
    Result<bool> delete_key(std::string_view key) override {
        return client_->delete_key(key, kPatience);
    }
    Result<void> append(std::string_view key, std::string_view value) override {
        return client_->append(key, value, kPatience);
    }
    Result<Names> multi_get(const Names& keys, Duration timeout) override {
        return client_->multi_get(keys, timeout);
    }
    Result<void> multi_set(const Names& keys, const Names& values) override {
        return client_->multi_set(keys, values, kPatience);
    }
    Result<std::int64_t> num_keys() override { return client_->num_keys(kPatience); }
    Result<Names> list_keys() override { return client_->list_keys(kPatience); }
    Result<void> queue_push(std::string_view key, std::string_view value) override {
        return client_->queue_push(key, value, kPatience);
    }
    Result<std::string> queue_pop(std::string_view key, Duration timeout) override {
        return client_->queue_pop(key, timeout);
    }
    Result<std::int64_t> queue_len(std::string_view key) override {
        return client_->queue_len(key, kPatience);
    }
    Result<void> barrier(std::string_view key, std::int64_t world, Duration timeout) override {
        return client_->barrier(key, world, timeout);
    }

   private:
    std::unique_ptr<StoreClient> client_;
};

class RemoteBench final : public StoreBench {
   public:
    std::unique_ptr<StoreUser> new_user() override {
        return std::make_unique<RemoteUser>(server_.connect());
    }

   private:
    ServerThread server_;
};

// ---- In this process.

struct SharedCore {
    std::mutex mutex;
    std::condition_variable changed;
    StoreCore core;
    std::set<ClientId> released;
    std::uint64_t clients_count = 0;

    void release(const Released& clients) {
        released.insert(clients.begin(), clients.end());
        changed.notify_all();
    }
};

class LocalUser final : public StoreUser {
   public:
    LocalUser(SharedCore& shared, ClientId id) : shared_(shared), id_(id) {}

    Result<void> set(std::string_view key, std::string_view value) override {
        const std::lock_guard lock(shared_.mutex);
        return release(shared_.core.set(key, value));
    }
    Result<std::string> get(std::string_view key, Duration timeout) override {
        if (auto there = wait({std::string(key)}, timeout); !there) {
            return there.error();
        }
        const std::lock_guard lock(shared_.mutex);
        return *shared_.core.find(key);
    }
    Result<std::int64_t> add(std::string_view key, std::int64_t amount) override {
        const std::lock_guard lock(shared_.mutex);
        auto sum = shared_.core.add(key, amount);
        if (!sum) {
            return sum.error();
        }
        shared_.release(sum->released);
        return sum->value;
    }
    Result<bool> check(const Names& keys) override {
        const std::lock_guard lock(shared_.mutex);
        return shared_.core.check(keys);
    }
    Result<void> wait(const Names& keys, Duration timeout) override {
        std::unique_lock lock(shared_.mutex);
        return await(lock, shared_.core.wait(id_, keys), timeout, "wait");
    }
    Result<std::string> compare_set(std::string_view key, std::string_view expected,
                                    std::string_view desired) override {
        const std::lock_guard lock(shared_.mutex);
        auto exchange = shared_.core.compare_set(key, expected, desired);
        if (!exchange) {
            return exchange.error();
        }
        shared_.release(exchange->released);
        return exchange->value;
    }
    Result<bool> delete_key(std::string_view key) override {
        const std::lock_guard lock(shared_.mutex);
        return shared_.core.delete_key(key);
    }
    Result<void> append(std::string_view key, std::string_view value) override {
        const std::lock_guard lock(shared_.mutex);
        return release(shared_.core.append(key, value));
    }
    Result<Names> multi_get(const Names& keys, Duration timeout) override {
        if (auto there = wait(keys, timeout); !there) {
            return there.error();
        }
        const std::lock_guard lock(shared_.mutex);
        Names values;
        for (const std::string& key : keys) {
            values.push_back(*shared_.core.find(key));
        }
        return values;
    }
    Result<void> multi_set(const Names& keys, const Names& values) override {
        Names pairs;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            pairs.push_back(keys[i]);
            pairs.push_back(values[i]);
        }
        const std::lock_guard lock(shared_.mutex);
        return release(shared_.core.multi_set(pairs));
    }
    Result<std::int64_t> num_keys() override {
        const std::lock_guard lock(shared_.mutex);
        return static_cast<std::int64_t>(shared_.core.num_keys());
    }
    Result<Names> list_keys() override {
        const std::lock_guard lock(shared_.mutex);
        Names keys = shared_.core.list_keys();
        std::sort(keys.begin(), keys.end());
        return keys;
    }
    Result<void> queue_push(std::string_view key, std::string_view value) override {
        const std::lock_guard lock(shared_.mutex);
        return release(shared_.core.queue_push(key, value));
    }
    Result<std::string> queue_pop(std::string_view key, Duration timeout) override {
        std::unique_lock lock(shared_.mutex);
        while (true) {
            StoreCore::Popped popped = shared_.core.queue_pop(key);
            if (popped.count_before > 0) {
                return std::move(popped.value);
            }
            const Names names = {std::string(key)};
            if (auto there = await(lock, shared_.core.wait(id_, names), timeout, "wait"); !there) {
                return there.error();
            }
        }
    }
    Result<std::int64_t> queue_len(std::string_view key) override {
        const std::lock_guard lock(shared_.mutex);
        return static_cast<std::int64_t>(shared_.core.queue_len(key));
    }
    Result<void> barrier(std::string_view key, std::int64_t world, Duration timeout) override {
        std::unique_lock lock(shared_.mutex);
        auto arrival = shared_.core.barrier(id_, key, world);
        if (!arrival) {
            return arrival.error();
        }
        shared_.release(arrival->released);
        return await(lock, arrival->complete, timeout, "barrier");
    }

   private:
    Result<void> release(const Result<Released>& released) {
        if (!released) {
            return released.error();
        }
        shared_.release(*released);
        return {};
    }
    Result<void> await(std::unique_lock<std::mutex>& lock, const Result<bool>& satisfied,
                       Duration timeout, const std::string& what) {
        if (!satisfied) {
            return satisfied.error();
        }
        const auto is_released = [this] { return shared_.released.erase(id_) > 0; };
        if (*satisfied || shared_.changed.wait_for(lock, timeout, is_released)) {
            return {};
        }
        shared_.core.cancel_wait(id_);
        return Failure(Errc::deadline_exceeded, what + " timeout");
    }

    SharedCore& shared_;
    ClientId id_;
};

class LocalBench final : public StoreBench {
   public:
    std::unique_ptr<StoreUser> new_user() override {
        const std::lock_guard lock(shared_.mutex);
        return std::make_unique<LocalUser>(shared_, ClientId{shared_.clients_count++});
    }

   private:
    SharedCore shared_;
};

// ---- The suite.

struct Kind {
    const char* name;
    std::unique_ptr<StoreBench> (*make)();
};

class Store : public testing::TestWithParam<Kind> {
   protected:
    std::unique_ptr<StoreBench> bench = GetParam().make();
    std::unique_ptr<StoreUser> user = bench->new_user();
};

INSTANTIATE_TEST_SUITE_P(
    Conformance, Store,
    testing::Values(Kind{"Core", [] { return std::unique_ptr<StoreBench>(new LocalBench()); }},
                    Kind{"Network", [] { return std::unique_ptr<StoreBench>(new RemoteBench()); }}),
    [](const auto& kind) { return kind.param.name; });

TEST_P(Store, ClientSeesKeysThatAnotherSet) {
    ASSERT_TRUE(user->set("k", "v"));
    ASSERT_TRUE(user->set("empty", ""));
    const auto other = bench->new_user();
    // A set has no reply, so another connection is sure to see it only after a wait.
    EXPECT_EQ(*other->get("k", kPatience), "v");
    EXPECT_EQ(*other->get("empty", kPatience), "");
}

TEST_P(Store, ValuesOfAnyBytesAndOfTheGreatestLengthAreKept) {
    std::string value(8 << 20, '\0');
    for (std::size_t i = 0; i < value.size(); ++i) {
        value[i] = static_cast<char>(i * 2654435761U >> 24U);
    }
    ASSERT_TRUE(user->set("large", value));
    EXPECT_TRUE(*user->get("large", kPatience) == value);
}

TEST_P(Store, KeysOfTheGreatestLengthAreAcceptedAndLongerOnesRefused) {
    // One byte is left for the slash that the client puts in front.
    ASSERT_TRUE(user->set(std::string(8191, 'k'), "v"));
    EXPECT_EQ(*user->get(std::string(8191, 'k'), kPatience), "v");
    const auto refused = user->set(std::string(8193, 'k'), "v");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::invalid_argument);
    EXPECT_EQ(*user->num_keys(), 1);
}

TEST_P(Store, AddCountsAndIsReadAsText) {
    EXPECT_EQ(*user->add("n", 3), 3);
    EXPECT_EQ(*user->add("n", -5), -2);
    EXPECT_EQ(*user->get("n", kPatience), "-2");
    ASSERT_TRUE(user->set("n", "40"));
    EXPECT_EQ(*user->add("n", 2), 42);
}

TEST_P(Store, CheckAsksForAllKeys) {
    ASSERT_TRUE(user->set("a", ""));
    EXPECT_TRUE(*user->check({"a"}));
    EXPECT_FALSE(*user->check({"a", "b"}));
    EXPECT_TRUE(*user->check({}));
}

TEST_P(Store, CompareSetFollowsPyTorch) {
    EXPECT_EQ(*user->compare_set("k", "expected", "new"), "expected");
    EXPECT_FALSE(*user->check({"k"}));
    EXPECT_EQ(*user->compare_set("k", "", "first"), "first");
    EXPECT_EQ(*user->compare_set("k", "wrong", "second"), "first");
    EXPECT_EQ(*user->compare_set("k", "first", "second"), "second");
    EXPECT_EQ(*user->get("k", kPatience), "second");
}

TEST_P(Store, DeleteAppendCountAndList) {
    ASSERT_TRUE(user->append("b", "po"));
    ASSERT_TRUE(user->append("b", "tato"));
    ASSERT_TRUE(user->set("a", "1"));
    EXPECT_EQ(*user->get("b", kPatience), "potato");
    EXPECT_EQ(*user->num_keys(), 2);
    EXPECT_THAT(*user->list_keys(), ElementsAre("a", "b"));
    EXPECT_TRUE(*user->delete_key("b"));
    EXPECT_FALSE(*user->delete_key("b"));
    EXPECT_THAT(*user->list_keys(), ElementsAre("a"));
}

TEST_P(Store, MultiSetAndMultiGetKeepTheOrder) {
    ASSERT_TRUE(user->multi_set({"a", "b", "c"}, {"1", "", "3"}));
    EXPECT_THAT(*user->multi_get({"c", "a", "b", "a"}, kPatience), ElementsAre("3", "1", "", "1"));
    EXPECT_THAT(*user->multi_get({}, kPatience), IsEmpty());
    ASSERT_TRUE(user->multi_set({}, {}));
}

TEST_P(Store, ClientIsUsableAfterAWaitTimedOut) {
    const auto waited = user->wait({"never", "nor this"}, milliseconds(1));
    ASSERT_FALSE(waited);
    EXPECT_EQ(waited.error().code, Errc::deadline_exceeded);
    EXPECT_EQ(user->get("never", milliseconds(0)).error().code, Errc::deadline_exceeded);
    EXPECT_EQ(user->multi_get({"never"}, milliseconds(1)).error().code, Errc::deadline_exceeded);
    EXPECT_EQ(user->queue_pop("never", milliseconds(1)).error().code, Errc::deadline_exceeded);
    ASSERT_TRUE(user->set("never", "now"));
    EXPECT_EQ(*user->get("never", kPatience), "now");
    EXPECT_EQ(*user->add("n", 1), 1);
}

TEST_P(Store, ExistingKeyNeedsNoTimeout) {
    ASSERT_TRUE(user->set("k", "v"));
    EXPECT_TRUE(*user->check({"k"}));
    EXPECT_TRUE(user->wait({"k", "k"}, milliseconds(0)));
    EXPECT_EQ(*user->get("k", milliseconds(0)), "v");
    EXPECT_TRUE(user->wait({}, milliseconds(0)));
}

TEST_P(Store, WaitEndsWhenOthersHaveSetAllKeys) {
    const auto first = bench->new_user();
    const auto second = bench->new_user();
    std::thread waiting([&] { EXPECT_TRUE(user->wait({"a", "b", "a"}, kPatience)); });
    EXPECT_TRUE(first->set("a", ""));
    EXPECT_EQ(*second->add("b", 1), 1);
    waiting.join();
}

TEST_P(Store, QueueGivesEachItemToOneClient) {
    constexpr int kItems = 60;
    const auto consumer = bench->new_user();
    std::multiset<std::string> seen;
    std::mutex mutex;
    const auto consume = [&](StoreUser& from) {
        for (int i = 0; i < kItems / 2; ++i) {
            const auto item = from.queue_pop("q", kPatience);
            ASSERT_TRUE(item) << item.error().detail;
            const std::lock_guard lock(mutex);
            seen.insert(*item);
        }
    };
    std::thread other([&] { consume(*consumer); });
    std::thread producer([&, pusher = bench->new_user()] {
        for (int i = 0; i < kItems; ++i) {
            ASSERT_TRUE(pusher->queue_push("q", std::to_string(i)));
        }
    });
    consume(*user);
    other.join();
    producer.join();
    EXPECT_EQ(seen.size(), std::size_t{kItems});
    EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()).size(), std::size_t{kItems});
    EXPECT_EQ(*user->queue_len("q"), 0);
}

TEST_P(Store, QueueKeepsTheOrderOfOneClient) {
    ASSERT_TRUE(user->queue_push("q", "1"));
    ASSERT_TRUE(user->queue_push("q", ""));
    EXPECT_EQ(*user->queue_len("q"), 2);
    EXPECT_TRUE(*user->check({"q"}));
    EXPECT_EQ(*user->queue_pop("q", kPatience), "1");
    EXPECT_EQ(*user->queue_pop("q", kPatience), "");
    EXPECT_EQ(*user->num_keys(), 0);
}

TEST_P(Store, BarrierHoldsAllClientsUntilTheLast) {
    constexpr int kWorld = 16;
    std::atomic<int> arrived_count = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < kWorld; ++i) {
        threads.emplace_back([&, own = bench->new_user()] {
            ++arrived_count;
            ASSERT_TRUE(own->barrier("b", kWorld, kPatience));
            EXPECT_EQ(arrived_count, kWorld);
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_TRUE(user->barrier("b", kWorld, kPatience)) << "those who come later pass";
    EXPECT_EQ(*user->get("b", kPatience), std::to_string(kWorld + 1));
}

TEST_P(Store, BarrierArrivalThatTimedOutStaysCounted) {
    const auto alone = user->barrier("b", 2, milliseconds(1));
    ASSERT_FALSE(alone);
    EXPECT_EQ(alone.error().code, Errc::deadline_exceeded);
    EXPECT_TRUE(user->barrier("b", 2, kPatience));
}

TEST_P(Store, ManyClientsMeetByTheirKeys) {
    constexpr int kWorld = 24;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kWorld; ++rank) {
        threads.emplace_back([&, rank, own = bench->new_user()] {
            ASSERT_TRUE(own->set("rank" + std::to_string(rank), std::to_string(rank * rank)));
            Names all;
            for (int i = 0; i < kWorld; ++i) {
                all.push_back("rank" + std::to_string(i));
            }
            const auto values = own->multi_get(all, kPatience);
            ASSERT_TRUE(values) << values.error().detail;
            for (int i = 0; i < kWorld; ++i) {
                EXPECT_EQ((*values)[static_cast<std::size_t>(i)], std::to_string(i * i));
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

}  // namespace
}  // namespace regroup::store
