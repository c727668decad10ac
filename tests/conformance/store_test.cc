// SPDX-License-Identifier: Apache-2.0
// The behaviour of a server as its client sees it.
#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/store_support.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"

namespace regroup::store {
namespace {

using std::chrono::milliseconds;

using Names = std::vector<std::string>;

class Store : public ::testing::Test {
   protected:
    ServerThread server;
    std::unique_ptr<StoreClient> user = server.connect();
};

TEST_F(Store, ClientSeesKeysThatAnotherSet) {
    ASSERT_TRUE(user->set("k", "v", kPatience));
    ASSERT_TRUE(user->set("empty", "", kPatience));
    const auto other = server.connect();
    // A set has no reply, so another connection is sure to see it only after a wait.
    EXPECT_EQ(*other->get("k", kPatience), "v");
    EXPECT_EQ(*other->get("empty", kPatience), "");
}

TEST_F(Store, ValuesOfAnyBytesAndOfTheGreatestLengthAreKept) {
    std::string value(8 << 20, '\0');
    for (std::size_t i = 0; i < value.size(); ++i) {
        value[i] = static_cast<char>(i * 2654435761U >> 24U);
    }
    ASSERT_TRUE(user->set("large", value, kPatience));
    EXPECT_TRUE(*user->get("large", kPatience) == value);
}

TEST_F(Store, KeysOfTheGreatestLengthAreAcceptedAndLongerOnesRefused) {
    // One byte is left for the slash that the client puts in front.
    ASSERT_TRUE(user->set(std::string(8191, 'k'), "v", kPatience));
    EXPECT_EQ(*user->get(std::string(8191, 'k'), kPatience), "v");
    EXPECT_THAT(user->set(std::string(8193, 'k'), "v", kPatience), fails(Errc::invalid_argument));
    EXPECT_EQ(*user->num_keys(kPatience), 1);
}

TEST_F(Store, AddCountsAndIsReadAsText) {
    EXPECT_EQ(*user->add("n", 3, kPatience), 3);
    EXPECT_EQ(*user->add("n", -5, kPatience), -2);
    EXPECT_EQ(*user->get("n", kPatience), "-2");
    ASSERT_TRUE(user->set("n", "40", kPatience));
    EXPECT_EQ(*user->add("n", 2, kPatience), 42);
}

TEST_F(Store, CheckAsksForAllKeys) {
    ASSERT_TRUE(user->set("a", "", kPatience));
    EXPECT_TRUE(*user->check({"a"}, kPatience));
    EXPECT_FALSE(*user->check({"a", "b"}, kPatience));
    EXPECT_TRUE(*user->check({}, kPatience));
}

TEST_F(Store, CompareSetFollowsPyTorch) {
    EXPECT_EQ(*user->compare_set("k", "expected", "new", kPatience), "expected");
    EXPECT_FALSE(*user->check({"k"}, kPatience));
    EXPECT_EQ(*user->compare_set("k", "", "first", kPatience), "first");
    EXPECT_EQ(*user->compare_set("k", "wrong", "second", kPatience), "first");
    EXPECT_EQ(*user->compare_set("k", "first", "second", kPatience), "second");
    EXPECT_EQ(*user->get("k", kPatience), "second");
}

TEST_F(Store, DeleteAppendCountAndList) {
    ASSERT_TRUE(user->append("b", "po", kPatience));
    ASSERT_TRUE(user->append("b", "tato", kPatience));
    ASSERT_TRUE(user->set("a", "1", kPatience));
    EXPECT_EQ(*user->get("b", kPatience), "potato");
    EXPECT_EQ(*user->num_keys(kPatience), 2);
    EXPECT_THAT(*user->list_keys(kPatience), ElementsAre("a", "b"));
    EXPECT_TRUE(*user->delete_key("b", kPatience));
    EXPECT_FALSE(*user->delete_key("b", kPatience));
    EXPECT_THAT(*user->list_keys(kPatience), ElementsAre("a"));
}

TEST_F(Store, MultiSetAndMultiGetKeepTheOrder) {
    ASSERT_TRUE(user->multi_set({"a", "b", "c"}, {"1", "", "3"}, kPatience));
    EXPECT_THAT(*user->multi_get({"c", "a", "b", "a"}, kPatience), ElementsAre("3", "1", "", "1"));
    EXPECT_THAT(*user->multi_get({}, kPatience), IsEmpty());
    ASSERT_TRUE(user->multi_set({}, {}, kPatience));
}

TEST_F(Store, ClientIsUsableAfterAWaitTimedOut) {
    EXPECT_THAT(user->wait({"never", "nor this"}, milliseconds(1)), fails(Errc::deadline_exceeded));
    EXPECT_EQ(user->get("never", milliseconds(0)).error().code, Errc::deadline_exceeded);
    EXPECT_EQ(user->multi_get({"never"}, milliseconds(1)).error().code, Errc::deadline_exceeded);
    EXPECT_EQ(user->queue_pop("never", milliseconds(1)).error().code, Errc::deadline_exceeded);
    ASSERT_TRUE(user->set("never", "now", kPatience));
    EXPECT_EQ(*user->get("never", kPatience), "now");
    EXPECT_EQ(*user->add("n", 1, kPatience), 1);
}

TEST_F(Store, ExistingKeyNeedsNoTimeout) {
    ASSERT_TRUE(user->set("k", "v", kPatience));
    EXPECT_TRUE(*user->check({"k"}, kPatience));
    EXPECT_TRUE(user->wait({"k", "k"}, milliseconds(0)));
    EXPECT_EQ(*user->get("k", milliseconds(0)), "v");
    EXPECT_TRUE(user->wait({}, milliseconds(0)));
}

TEST_F(Store, WaitEndsWhenOthersHaveSetAllKeys) {
    const auto first = server.connect();
    const auto second = server.connect();
    std::thread waiting([&] { EXPECT_TRUE(user->wait({"a", "b", "a"}, kPatience)); });
    EXPECT_TRUE(first->set("a", "", kPatience));
    EXPECT_EQ(*second->add("b", 1, kPatience), 1);
    waiting.join();
}

TEST_F(Store, QueueGivesEachItemToOneClient) {
    constexpr int kItems = 60;
    const auto consumer = server.connect();
    std::multiset<std::string> seen;
    std::mutex mutex;
    const auto consume = [&](StoreClient& from) {
        for (int i = 0; i < kItems / 2; ++i) {
            const auto item = from.queue_pop("q", kPatience);
            ASSERT_TRUE(item) << item.error().detail;
            const std::lock_guard lock(mutex);
            seen.insert(*item);
        }
    };
    std::thread other([&] { consume(*consumer); });
    std::thread producer([&, pusher = server.connect()] {
        for (int i = 0; i < kItems; ++i) {
            ASSERT_TRUE(pusher->queue_push("q", std::to_string(i), kPatience));
        }
    });
    consume(*user);
    other.join();
    producer.join();
    EXPECT_EQ(seen.size(), std::size_t{kItems});
    EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()).size(), std::size_t{kItems});
    EXPECT_EQ(*user->queue_len("q", kPatience), 0);
}

TEST_F(Store, QueueKeepsTheOrderOfOneClient) {
    ASSERT_TRUE(user->queue_push("q", "1", kPatience));
    ASSERT_TRUE(user->queue_push("q", "", kPatience));
    EXPECT_EQ(*user->queue_len("q", kPatience), 2);
    EXPECT_TRUE(*user->check({"q"}, kPatience));
    EXPECT_EQ(*user->queue_pop("q", kPatience), "1");
    EXPECT_EQ(*user->queue_pop("q", kPatience), "");
    EXPECT_EQ(*user->num_keys(kPatience), 0);
}

TEST_F(Store, BarrierArrivalThatTimedOutStaysCounted) {
    EXPECT_THAT(user->barrier("b", 2, milliseconds(1)), fails(Errc::deadline_exceeded));
    EXPECT_TRUE(user->barrier("b", 2, kPatience));
}

}  // namespace
}  // namespace regroup::store
