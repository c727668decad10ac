// SPDX-License-Identifier: Apache-2.0
// Waits in the store, and when each of them ends.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/base/random.h"
#include "rendezvous/store/store_core.h"
#include "tests/support/matchers.h"

namespace regroup::store {
namespace {

constexpr ClientId kAnna{1};
constexpr ClientId kBert{2};
constexpr ClientId kCarl{3};

using Names = std::vector<std::string>;

class StoreWaits : public ::testing::Test {
   protected:
    /// True when the wait is satisfied at once.
    bool wait(ClientId client, const Names& names) { return *core.wait(client, names); }
    Released set(std::string_view key) { return *core.set(key, "v"); }
    Released push(std::string_view key) { return *core.queue_push(key, "item"); }

    StoreCore core;
};

TEST_F(StoreWaits, WaitForNoKeysEndsAtOnce) {
    EXPECT_TRUE(wait(kAnna, {}));
    EXPECT_TRUE(core.check(Names{}));
}

TEST_F(StoreWaits, CancelledWaitForManyNamesReleasesNobodyWhileItIsRemovedInSlices) {
    Names names;
    for (int i = 0; i < 1000; ++i) {
        names.push_back("/" + std::to_string(i));
    }
    EXPECT_FALSE(wait(kAnna, names));
    const std::size_t bytes = core.wait_bytes(kAnna);
    core.cancel_wait(kAnna);
    EXPECT_EQ(core.wait_bytes(kAnna), 0U);
    EXPECT_EQ(core.untidy_bytes(), bytes);
    // The same client, and another one, wait for names that the old wait still holds.
    EXPECT_FALSE(wait(kAnna, {"/1"}));
    EXPECT_FALSE(wait(kBert, {"/2", "/3"}));
    EXPECT_THAT(set("/1"), ElementsAre(kAnna));
    EXPECT_THAT(push("/2"), IsEmpty());
    EXPECT_EQ(core.tidy(300), 300U);
    EXPECT_FALSE(core.is_tidy());
    EXPECT_THAT(set("/3"), ElementsAre(kBert));
    EXPECT_EQ(core.tidy(1000), 700U);
    EXPECT_TRUE(core.is_tidy());
    EXPECT_EQ(core.untidy_bytes(), 0U);
    EXPECT_THAT(set("/4"), IsEmpty());
    EXPECT_EQ(core.tidy(1000), 0U);
}

TEST_F(StoreWaits, StoreIsDismantledInSlices) {
    set("/a");
    set("/b");
    push("/queue");
    push("/queue");
    EXPECT_FALSE(wait(kAnna, {"/c", "/d"}));
    EXPECT_FALSE(core.barrier(kBert, "/barrier", 2)->complete);
    std::size_t count = 0;
    while (const std::size_t removed = core.dismantle(1)) {
        EXPECT_EQ(removed, 1U);
        ++count;
    }
    // Keys, one of them the barrier's; items; and two of each name that is waited for.
    EXPECT_EQ(count, 3U + 2U + 2U * 3U);
}

TEST_F(StoreWaits, EveryOperationThatCreatesTheKeyEndsTheWait) {
    EXPECT_FALSE(wait(kAnna, {"/set"}));
    EXPECT_THAT(set("/set"), ElementsAre(kAnna));
    EXPECT_FALSE(wait(kAnna, {"/add"}));
    EXPECT_THAT(core.add("/add", 1)->released, ElementsAre(kAnna));
    EXPECT_FALSE(wait(kAnna, {"/append"}));
    EXPECT_THAT(*core.append("/append", "v"), ElementsAre(kAnna));
    EXPECT_FALSE(wait(kAnna, {"/compare_set"}));
    EXPECT_THAT(core.compare_set("/compare_set", "", "v")->released, ElementsAre(kAnna));
    EXPECT_FALSE(wait(kAnna, {"/multi", "/set2"}));
    EXPECT_THAT(*core.multi_set(Names{"/multi", "1", "/set2", "2"}), ElementsAre(kAnna));
    EXPECT_FALSE(wait(kAnna, {"/barrier"}));
    EXPECT_THAT(core.barrier(kBert, "/barrier", 2)->released, ElementsAre(kAnna));
    EXPECT_FALSE(wait(kAnna, {"/push"}));
    EXPECT_THAT(push("/push"), ElementsAre(kAnna));
}

TEST_F(StoreWaits, CompareSetThatStoresNothingEndsNoWait) {
    EXPECT_FALSE(wait(kAnna, {"/k"}));
    EXPECT_THAT(core.compare_set("/k", "old", "new")->released, IsEmpty());
    EXPECT_THAT(set("/k"), ElementsAre(kAnna));
}

TEST_F(StoreWaits, RefusedOperationEndsNoWait) {
    Limits limits;
    limits.stored_value_bytes_max = 3;
    core = StoreCore(limits);
    EXPECT_FALSE(wait(kAnna, {"/k"}));
    EXPECT_FALSE(core.set("/k", "four"));
    EXPECT_THAT(set("/k"), ElementsAre(kAnna));
}

TEST_F(StoreWaits, ManyTimesTheSameKeyCostAsMuchAsOnce) {
    EXPECT_FALSE(wait(kAnna, Names(131072, "/a")));
    EXPECT_FALSE(wait(kBert, {"/a"}));
    EXPECT_EQ(core.wait_bytes(kAnna), core.wait_bytes(kBert));
    core.cancel_wait(kAnna);
    EXPECT_EQ(core.wait_bytes(kAnna), 0U);
    EXPECT_THAT(set("/a"), ElementsAre(kBert));
}

TEST_F(StoreWaits, AllClientsThatWaitForAKeyAreReleasedInOrderOfArrival) {
    EXPECT_FALSE(wait(kCarl, {"/a"}));
    EXPECT_FALSE(wait(kAnna, {"/a"}));
    EXPECT_FALSE(wait(kBert, {"/a", "/b"}));
    EXPECT_THAT(set("/a"), ElementsAre(kCarl, kAnna));
    EXPECT_THAT(set("/b"), ElementsAre(kBert));
}

TEST_F(StoreWaits, TooManyKeysAreRefusedAndTheOldWaitStays) {
    Limits limits;
    limits.keys_max = 2;
    core = StoreCore(limits);
    EXPECT_FALSE(wait(kAnna, {"/a"}));
    EXPECT_FALSE(core.wait(kAnna, Names{"/a", "/b", "/c"}).has_value());
    EXPECT_FALSE(core.wait(kAnna, Names{std::string(9000, 'k')}).has_value());
    EXPECT_THAT(set("/a"), ElementsAre(kAnna));
}

// ---- Queues.

TEST_F(StoreWaits, QueueExistsOnlyWhileItHasItems) {
    EXPECT_FALSE(core.check(Names{"/q"}));
    push("/q");
    EXPECT_TRUE(core.check(Names{"/q"}));
    EXPECT_TRUE(wait(kAnna, {"/q"}));
    core.queue_pop("/q");
    EXPECT_FALSE(core.check(Names{"/q"}));
    EXPECT_FALSE(wait(kAnna, {"/q"}));
}

TEST_F(StoreWaits, ItemReleasesOneClientOldestFirst) {
    EXPECT_FALSE(wait(kBert, {"/q"}));
    EXPECT_FALSE(wait(kAnna, {"/q"}));
    EXPECT_THAT(push("/q"), ElementsAre(kBert));
    EXPECT_THAT(push("/q"), ElementsAre(kAnna));
    EXPECT_THAT(push("/q"), IsEmpty());
}

TEST_F(StoreWaits, ItemDoesNotReleaseAClientThatWaitsForOtherKeysToo) {
    EXPECT_FALSE(wait(kAnna, {"/q", "/key"}));
    EXPECT_FALSE(wait(kBert, {"/q"}));
    EXPECT_THAT(push("/q"), ElementsAre(kBert));
    EXPECT_THAT(set("/key"), ElementsAre(kAnna));
}

TEST_F(StoreWaits, FilledQueueDoesNotCountAsMissingBesideAMissingKey) {
    push("/q");
    EXPECT_FALSE(wait(kAnna, {"/q", "/key"}));
    EXPECT_THAT(set("/key"), ElementsAre(kAnna));
}

TEST_F(StoreWaits, FormerQueueDoesNotReleaseAClientFromItsNextWait) {
    EXPECT_FALSE(wait(kAnna, {"/q"}));
    EXPECT_FALSE(wait(kBert, {"/q"}));
    EXPECT_THAT(push("/q"), ElementsAre(kAnna));
    core.queue_pop("/q");
    EXPECT_FALSE(wait(kAnna, {"/other"}));
    EXPECT_THAT(push("/q"), ElementsAre(kBert));
    EXPECT_THAT(set("/other"), ElementsAre(kAnna));
}

TEST_F(StoreWaits, KeyReleasesAllClientsThatWaitForAQueueOfItsName) {
    EXPECT_FALSE(wait(kAnna, {"/x"}));
    EXPECT_FALSE(wait(kBert, {"/x"}));
    EXPECT_THAT(set("/x"), ElementsAre(kAnna, kBert));
}

// ---- Barriers.

TEST_F(StoreWaits, LastArrivalAtABarrierReleasesTheOthers) {
    EXPECT_FALSE(core.barrier(kAnna, "/b", 3)->complete);
    EXPECT_FALSE(core.barrier(kBert, "/b", 3)->complete);
    const auto last = core.barrier(kCarl, "/b", 3);
    EXPECT_TRUE(last->complete);
    EXPECT_THAT(last->released, ElementsAre(kAnna, kBert));
    EXPECT_EQ(*core.find("/b"), "3");
}

TEST_F(StoreWaits, BarrierIsNeverResetAndLaterArrivalsPass) {
    EXPECT_TRUE(core.barrier(kAnna, "/b", 1)->complete);
    const auto late = core.barrier(kBert, "/b", 1);
    EXPECT_TRUE(late->complete);
    EXPECT_THAT(late->released, IsEmpty());
    EXPECT_EQ(*core.find("/b"), "2");
}

TEST_F(StoreWaits, CancelledArrivalStaysCounted) {
    EXPECT_FALSE(core.barrier(kAnna, "/b", 2)->complete);
    core.cancel_wait(kAnna);
    const auto second = core.barrier(kBert, "/b", 2);
    EXPECT_TRUE(second->complete);
    EXPECT_THAT(second->released, IsEmpty());
}

TEST_F(StoreWaits, EachArrivalWaitsForTheWorldItNamed) {
    EXPECT_FALSE(core.barrier(kAnna, "/b", 3)->complete);
    const auto second = core.barrier(kBert, "/b", 2);
    EXPECT_TRUE(second->complete);
    EXPECT_THAT(second->released, IsEmpty());
    EXPECT_THAT(core.barrier(kCarl, "/b", 1)->released, ElementsAre(kAnna));
}

TEST_F(StoreWaits, BarrierOverANonNumberIsRefused) {
    set("/b");
    EXPECT_FALSE(core.barrier(kAnna, "/b", 2));
    EXPECT_EQ(*core.find("/b"), "v");
}

TEST_F(StoreWaits, WaitsAndBarriersReplaceEachOther) {
    EXPECT_FALSE(wait(kAnna, {"/a"}));
    EXPECT_FALSE(core.barrier(kAnna, "/b", 2)->complete);
    EXPECT_THAT(set("/a"), IsEmpty());
    EXPECT_FALSE(wait(kAnna, {"/c"}));
    EXPECT_THAT(core.barrier(kBert, "/b", 2)->released, IsEmpty());
    EXPECT_THAT(set("/c"), ElementsAre(kAnna));
}

// ---- Waits for keys that are set, deleted, given twice, cancelled and replaced, against a model
// that is too simple to be wrong: sets of missing keys.

class ModelledStore {
   public:
    void set(const std::string& key) {
        const std::set<ClientId> expected = released_by(key);
        keys_.insert(key);
        const auto released = core_.set(key, "v");
        ASSERT_TRUE(released);
        ASSERT_EQ(std::set<ClientId>(released->begin(), released->end()), expected);
        ASSERT_EQ(released->size(), expected.size());
    }
    void wait(ClientId client, const Names& names) {
        std::set<std::string> absent(names.begin(), names.end());
        std::erase_if(absent, [this](const std::string& name) { return keys_.contains(name); });
        const auto satisfied = core_.wait(client, names);
        ASSERT_TRUE(satisfied);
        ASSERT_EQ(*satisfied, absent.empty());
        missing_.erase(client);
        if (!absent.empty()) {
            missing_[client] = absent;
        }
    }
    void cancel_wait(ClientId client) {
        core_.cancel_wait(client);
        missing_.erase(client);
    }
    void delete_key(const std::string& key) {
        ASSERT_EQ(core_.delete_key(key), keys_.erase(key) > 0);
    }

   private:
    /// Removes `key` from the missing ones, and returns the clients for which it was the last.
    std::set<ClientId> released_by(const std::string& key) {
        std::set<ClientId> clients;
        for (auto& [waiter, names] : missing_) {
            if (names.erase(key) > 0 && names.empty()) {
                clients.insert(waiter);
            }
        }
        for (const ClientId waiter : clients) {
            missing_.erase(waiter);
        }
        return clients;
    }

    StoreCore core_;
    std::set<std::string> keys_;
    std::map<ClientId, std::set<std::string>> missing_;
};

std::string random_key(Random& random) {
    return "/" + std::to_string(random.below(8));
}

void take_random_step(ModelledStore& store, Random& random) {
    const ClientId client{random.below(6)};
    const std::string key = random_key(random);
    switch (random.below(5)) {
        case 0:
        case 1:
            return store.set(key);
        case 2: {
            Names names(1 + random.below(4));
            std::ranges::generate(names, [&] { return random_key(random); });
            return store.wait(client, names);
        }
        case 3:
            return store.cancel_wait(client);
        default:
            return store.delete_key(key);
    }
}

TEST(StoreWaitsModel, RandomHistoriesReleaseExactlyTheRightClients) {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        Random random(seed);
        ModelledStore store;
        for (int step = 0; step < 200; ++step) {
            take_random_step(store, random);
            ASSERT_FALSE(HasFailure()) << "seed " << seed << " step " << step;
        }
    }
}

}  // namespace
}  // namespace regroup::store
