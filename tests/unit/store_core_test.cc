// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/store_core.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/failures.h"
#include "tests/support/matchers.h"

namespace regroup::store {
namespace {

using ::testing::Pointee;

std::string value_of(const StoreCore& core, std::string_view key) {
    const std::string* value = core.find(key);
    return value == nullptr ? "<absent>" : *value;
}

// ---- Keys.

TEST(StoreCore, FindReturnsOnlyKeysThatWereSet) {
    StoreCore core;
    ASSERT_TRUE(core.set("/k", "v"));
    EXPECT_THAT(core.find("/k"), Pointee(std::string("v")));
    EXPECT_EQ(core.find("/other"), nullptr);
    EXPECT_EQ(core.find(""), nullptr);
}

TEST(StoreCore, KeysAndValuesAreBytes) {
    StoreCore core;
    const std::string key("/a\0b", 4);
    const std::string value("\0\xff\n", 3);
    ASSERT_TRUE(core.set(key, value));
    EXPECT_EQ(value_of(core, key), value);
    EXPECT_EQ(core.find("/a"), nullptr);
}

TEST(StoreCore, SettingAgainReplacesTheValue) {
    StoreCore core;
    ASSERT_TRUE(core.set("/k", "a long value that does not fit a short string"));
    ASSERT_TRUE(core.set("/k", ""));
    EXPECT_EQ(value_of(core, "/k"), "");
    EXPECT_EQ(core.num_keys(), 1U);
}

TEST(StoreCore, AppendCreatesThenExtends) {
    StoreCore core;
    ASSERT_TRUE(core.append("/k", "po"));
    ASSERT_TRUE(core.append("/k", "tato"));
    ASSERT_TRUE(core.append("/k", ""));
    EXPECT_EQ(value_of(core, "/k"), "potato");
}

TEST(StoreCore, MultiSetSetsInOrder) {
    StoreCore core;
    const std::vector<std::string> pairs = {"/a", "1", "/b", "2", "/a", "3"};
    ASSERT_TRUE(core.multi_set(pairs));
    EXPECT_EQ(value_of(core, "/a"), "3");
    EXPECT_EQ(value_of(core, "/b"), "2");
    EXPECT_EQ(core.num_keys(), 2U);
}

TEST(StoreCore, DeleteReturnsWhetherTheKeyExisted) {
    StoreCore core;
    ASSERT_TRUE(core.set("/k", "v"));
    EXPECT_TRUE(core.delete_key("/k"));
    EXPECT_FALSE(core.delete_key("/k"));
    EXPECT_EQ(core.find("/k"), nullptr);
    EXPECT_EQ(core.num_keys(), 0U);
}

TEST(StoreCore, CountsAndListsAllKeysWithInternalOnesAndWithoutQueues) {
    StoreCore core;
    ASSERT_TRUE(core.add("init/", 1));
    ASSERT_TRUE(core.set("/b", ""));
    ASSERT_TRUE(core.set("/a", ""));
    ASSERT_TRUE(core.queue_push("/q", "item"));
    EXPECT_EQ(core.num_keys(), 3U);
    EXPECT_THAT(core.list_keys(), UnorderedElementsAre("/a", "/b", "init/"));
}

TEST(StoreCore, AddStartsAtZeroAndStoresDecimalText) {
    StoreCore core;
    EXPECT_EQ(core.add("/n", 41)->value, 41);
    EXPECT_EQ(core.add("/n", 1)->value, 42);
    EXPECT_EQ(value_of(core, "/n"), "42");
    EXPECT_EQ(core.add("/n", -50)->value, -8);
    EXPECT_EQ(value_of(core, "/n"), "-8");
    EXPECT_EQ(core.add("/n", 0)->value, -8);
}

TEST(StoreCore, AddReadsNumbersAsPyTorchsServersDo) {
    struct Case {
        const char* text;
        std::int64_t sum;
    };
    for (const Case& c : {Case{"7", 8}, Case{"+7", 8}, Case{" \t7", 8}, Case{"-7", -6},
                          Case{"7\n", 8}, Case{"7 apples", 8}, Case{"007", 8}}) {
        StoreCore core;
        ASSERT_TRUE(core.set("/n", c.text));
        const auto sum = core.add("/n", 1);
        ASSERT_TRUE(sum) << c.text;
        EXPECT_EQ(sum->value, c.sum) << c.text;
    }
}

TEST(StoreCore, AddToANonNumberIsRefusedAndChangesNothing) {
    for (const char* text : {"", "apples", "-", "+", "+-7", " ", "9223372036854775808"}) {
        StoreCore core;
        ASSERT_TRUE(core.set("/n", text));
        EXPECT_THAT(core.add("/n", 1), fails(Errc::invalid_argument, "'/n'")) << text;
        EXPECT_EQ(value_of(core, "/n"), text);
    }
}

TEST(StoreCore, AddRefusesToOverflow) {
    StoreCore core;
    const std::int64_t most = std::numeric_limits<std::int64_t>::max();
    EXPECT_EQ(core.add("/n", most)->value, most);
    EXPECT_FALSE(core.add("/n", 1));
    EXPECT_EQ(value_of(core, "/n"), "9223372036854775807");
    EXPECT_EQ(core.add("/m", std::numeric_limits<std::int64_t>::min())->value,
              std::numeric_limits<std::int64_t>::min());
    EXPECT_FALSE(core.add("/m", -1));
}

// ---- compare_set: the four cases.

TEST(StoreCore, CompareSetCreatesAnAbsentKeyWhenNothingIsExpected) {
    StoreCore core;
    EXPECT_EQ(core.compare_set("/k", "", "new")->value, "new");
    EXPECT_EQ(value_of(core, "/k"), "new");
}

TEST(StoreCore, CompareSetOfAnAbsentKeyStoresNothingAndAnswersTheExpectedValue) {
    StoreCore core;
    EXPECT_EQ(core.compare_set("/k", "old", "new")->value, "old");
    EXPECT_EQ(core.find("/k"), nullptr);
    EXPECT_EQ(core.num_keys(), 0U);
}

TEST(StoreCore, CompareSetReplacesTheExpectedValue) {
    StoreCore core;
    ASSERT_TRUE(core.set("/k", "old"));
    EXPECT_EQ(core.compare_set("/k", "old", "new")->value, "new");
    EXPECT_EQ(value_of(core, "/k"), "new");
}

TEST(StoreCore, CompareSetAnswersTheValueThatWasNotExpected) {
    StoreCore core;
    ASSERT_TRUE(core.set("/k", "current"));
    EXPECT_EQ(core.compare_set("/k", "old", "new")->value, "current");
    EXPECT_EQ(core.compare_set("/k", "", "new")->value, "current");
    EXPECT_EQ(value_of(core, "/k"), "current");
}

TEST(StoreCore, CompareSetOfAnEmptyValueWithNothingExpectedStores) {
    StoreCore core;
    ASSERT_TRUE(core.set("/k", ""));
    EXPECT_EQ(core.compare_set("/k", "", "new")->value, "new");
}

// ---- Queues.

TEST(StoreCore, QueuesAreFirstInFirstOut) {
    StoreCore core;
    ASSERT_TRUE(core.queue_push("/q", "1"));
    ASSERT_TRUE(core.queue_push("/q", ""));
    ASSERT_TRUE(core.queue_push("/q", "3"));
    EXPECT_EQ(core.queue_len("/q"), 3U);
    StoreCore::Popped popped = core.queue_pop("/q");
    EXPECT_EQ(popped.count_before, 3U);
    EXPECT_EQ(popped.value, "1");
    popped = core.queue_pop("/q");
    EXPECT_EQ(popped.count_before, 2U);
    EXPECT_EQ(popped.value, "");
    EXPECT_EQ(core.queue_pop("/q").value, "3");
    EXPECT_EQ(core.queue_pop("/q").count_before, 0U);
    EXPECT_EQ(core.queue_len("/q"), 0U);
}

TEST(StoreCore, KeyAndQueueOfOneNameAreIndependent) {
    StoreCore core;
    ASSERT_TRUE(core.set("/x", "value"));
    ASSERT_TRUE(core.queue_push("/x", "item"));
    EXPECT_TRUE(core.delete_key("/x"));
    EXPECT_EQ(core.queue_len("/x"), 1U);
    ASSERT_TRUE(core.set("/x", "value"));
    EXPECT_EQ(core.queue_pop("/x").value, "item");
    EXPECT_EQ(value_of(core, "/x"), "value");
}

// ---- Limits.

TEST(StoreCore, KeysAreAcceptedUpToTheLimitExactly) {
    StoreCore core;
    EXPECT_TRUE(core.set(std::string(8192, 'k'), ""));
    EXPECT_THAT(core.set(std::string(8193, 'k'), ""),
                fails(Errc::invalid_argument, "8193", "8192"));
}

TEST(StoreCore, AppendedValuesAreBounded) {
    Limits limits;
    limits.stored_value_bytes_max = 10;
    StoreCore core(limits);
    ASSERT_TRUE(core.append("/k", "12345"));
    ASSERT_TRUE(core.append("/k", "67890"));
    EXPECT_FALSE(core.append("/k", "x"));
    EXPECT_EQ(value_of(core, "/k"), "1234567890");
}

TEST(StoreCore, FullStoreRefusesMoreAndKeepsServing) {
    Limits limits;
    limits.total_bytes_max = 1000;
    StoreCore core(limits);
    ASSERT_TRUE(core.set("/a", std::string(400, 'a')));
    EXPECT_THAT(core.set("/b", std::string(500, 'b')), fails("1000"));
    EXPECT_FALSE(core.queue_push("/q", std::string(500, 'q')));
    const std::vector<std::string> pairs = {"/c", std::string(200, 'c'), "/d",
                                            std::string(200, 'd')};
    EXPECT_FALSE(core.multi_set(pairs));
    EXPECT_EQ(core.num_keys(), 1U);
    EXPECT_EQ(value_of(core, "/a"), std::string(400, 'a'));
    EXPECT_TRUE(core.wait(ClientId{1}, std::vector<std::string>{"/a"}));
}

TEST(StoreCore, FreedSpaceCanBeUsedAgain) {
    Limits limits;
    limits.total_bytes_max = 1000;
    StoreCore core(limits);
    const std::string large(700, 'x');
    for (int i = 0; i < 50; ++i) {
        ASSERT_TRUE(core.set("/key", large));
        ASSERT_TRUE(core.set("/key", "small"));
        ASSERT_TRUE(core.append("/key", "er"));
        ASSERT_TRUE(core.delete_key("/key"));
        ASSERT_TRUE(core.queue_push("/queue", std::string(100, 'x')));
        ASSERT_EQ(core.queue_pop("/queue").count_before, 1U);
    }
}

TEST(StoreCore, QueuesAndTheirNamesAreCharged) {
    Limits limits;
    limits.total_bytes_max = std::size_t{1} << 20U;
    StoreCore core(limits);
    int queues = 0;
    while (queues < 10000 &&
           core.queue_push("/q" + std::to_string(queues) + std::string(1000, 'n'), "")) {
        ++queues;
    }
    // A queue of one item takes about 2 KB.
    EXPECT_LT(queues, 1000);
    EXPECT_GT(queues, 100);
    for (int queue = 0; queue < queues; ++queue) {
        core.queue_pop("/q" + std::to_string(queue) + std::string(1000, 'n'));
    }
    EXPECT_EQ(core.total_bytes(), 0U);
}

TEST(StoreCore, RefusedMultiSetStoresNothing) {
    StoreCore core;
    const std::vector<std::string> pairs = {"/a", "1", std::string(9000, 'k'), "2"};
    EXPECT_FALSE(core.multi_set(pairs));
    EXPECT_THAT(core.list_keys(), IsEmpty());
}

}  // namespace
}  // namespace regroup::store
