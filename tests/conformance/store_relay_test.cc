// SPDX-License-Identifier: Apache-2.0
//
// Workers that reach the store of another node through their own agent.
#include <cerrno>
#include <future>
#include <sys/socket.h>
#include <sys/time.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

#include "rendezvous/store/store_wire.h"
#include "tests/conformance/store_relay_support.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"
#include "tests/support/program.h"

namespace regroup::store {
namespace {

using regroup::testing::eventually;

std::string all_encoded(const std::vector<Request>& requests) {
    std::string bytes;
    encode({Opcode::validate, {}, kMagic}, bytes);
    for (const Request& request : requests) {
        encode(request, bytes);
    }
    return bytes;
}

TEST(StoreRelay, WorkersOfAllNodesShareOneStore) {
    StoreNode store;
    store.serve();
    LoopThread loop;
    RelayNode first(loop, store.port());
    RelayNode second(loop, store.port());
    const auto a = first.connect();
    const auto b = second.connect();
    ASSERT_TRUE(a->set("key", "value", kPatience));
    EXPECT_EQ(*b->get("key", kPatience), "value");
    EXPECT_EQ(*b->add("number", 5, kPatience), 5);
    EXPECT_EQ(*a->add("number", 5, kPatience), 10);
    auto waits = std::async(std::launch::async, [&] { return b->wait({"late"}, kPatience); });
    ASSERT_TRUE(a->set("late", "", kPatience));
    EXPECT_TRUE(waits.get());
    ASSERT_TRUE(a->queue_push("queue", "item", kPatience));
    EXPECT_EQ(*b->queue_pop("queue", kPatience), "item");
    EXPECT_EQ(store.connections(), 2U);
    EXPECT_THAT(store.sentences(), IsEmpty());
    EXPECT_THAT(loop.sentences(), IsEmpty());
}

TEST(StoreRelay, StoreHasOneConnectionForEachNode) {
    constexpr int kNodes = 64;
    constexpr int kWorkers = 8;
    StoreNode store;
    store.serve();
    LoopThread loop;
    std::vector<std::unique_ptr<RelayNode>> nodes;
    std::vector<std::unique_ptr<StoreClient>> workers;
    for (int node = 0; node < kNodes; ++node) {
        nodes.push_back(std::make_unique<RelayNode>(loop, store.port()));
        for (int worker = 0; worker < kWorkers; ++worker) {
            workers.push_back(nodes.back()->connect());
        }
    }
    std::vector<std::thread> threads;
    std::atomic<int> passed = 0;
    for (const auto& worker : workers) {
        threads.emplace_back([&] {
            const auto done = worker->barrier("all", kNodes * kWorkers, kPatience);
            EXPECT_TRUE(done) << done.error().detail;
            passed += done ? 1 : 0;
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(passed, kNodes * kWorkers);
    EXPECT_EQ(store.connections(), kNodes);
    EXPECT_EQ(store.clients(), kNodes * kWorkers);
}

TEST(StoreRelay, WorkerThatComesBeforeTheRoundBeginsWaits) {
    StoreNode store;
    LoopThread loop;
    RelayNode node(loop, store.port());
    auto worker = std::async(std::launch::async, [&] {
        const auto client = node.connect();
        return client->add("number", 1, kPatience);
    });
    ASSERT_TRUE(eventually([&] { return node.workers() == 1; }));
    store.serve();
    const auto sum = worker.get();
    ASSERT_TRUE(sum) << sum.error().detail;
    EXPECT_EQ(*sum, 1);
    EXPECT_THAT(loop.sentences(), IsEmpty());
}

TEST(StoreRelay, WorkerThatComesBeforeTheStoreListensWaits) {
    StoreNode store;
    store.end();
    LoopThread loop;
    RelayNode node(loop, store.port());
    auto worker = std::async(std::launch::async, [&] {
        const auto client = node.connect();
        return client->add("number", 1, kPatience);
    });
    ASSERT_TRUE(eventually([&] { return node.workers() == 1; }));
    store.offer_again();
    store.serve();
    const auto sum = worker.get();
    EXPECT_TRUE(sum) << sum.error().detail;
}

TEST(StoreRelay, WorkerIsDisconnectedWhenTheStoreNeverServes) {
    StoreNode store;  // Its kernel accepts for it.
    LoopThread loop;
    RelayClient::Options options;
    options.patience = std::chrono::milliseconds(200);
    RelayNode node(loop, store.port(), options);
    RawSocket worker(node.port());
    EXPECT_TRUE(worker.is_closed());
    EXPECT_THAT(loop.sentences(), Contains(HasSubstr("gave up after 200 ms")));
    EXPECT_EQ(node.workers(), 0U);
}

TEST(StoreRelay, LongValuesPassInBothDirectionsAtOnce) {
    StoreNode store;
    store.serve();
    LoopThread loop;
    RelayNode node(loop, store.port());
    std::vector<std::future<bool>> done;
    for (int i = 0; i < 6; ++i) {
        done.push_back(std::async(std::launch::async, [&, i] {
            const auto client = node.connect();
            std::string value(std::size_t{8} << 20U, static_cast<char>('a' + i));
            value.back() = '.';
            const std::string key = "value" + std::to_string(i);
            return client->set(key, value, kPatience) && *client->get(key, kPatience) == value;
        }));
    }
    for (auto& one : done) {
        EXPECT_TRUE(one.get());
    }
}

// The slow worker asks for far more than the kernel's buffers hold.
constexpr int kLongReplies = 40;
constexpr std::size_t kLongBytes = std::size_t{1} << 20U;

void ask_for_long_replies(RawSocket& slow, StoreClient& other) {
    ASSERT_TRUE(other.set("long", std::string(kLongBytes, 'x'), kPatience));
    ASSERT_TRUE(*other.check({"long"}, kPatience));
    slow.send(all_encoded(std::vector<Request>(kLongReplies, Request{Opcode::get, {"/long"}, 0})));
}

TEST(StoreRelay, SlowReaderKeepsNoOtherWaitingAndGetsAllInTheEnd) {
    StoreNode store;
    store.serve();
    LoopThread loop;
    RelayNode node(loop, store.port());
    const auto other = node.connect();
    RawSocket slow(node.port());
    ask_for_long_replies(slow, *other);
    for (int i = 0; i < 100; ++i) {
        ASSERT_TRUE(other->add("number", 1, kPatience));
    }
    for (int i = 0; i < kLongReplies; ++i) {
        const std::string reply = slow.receive(8 + kLongBytes);
        ASSERT_EQ(reply.size(), 8 + kLongBytes);
        EXPECT_EQ(reply.find_first_not_of('x', 8), reply.npos);
    }
    EXPECT_THAT(loop.sentences(), IsEmpty());
}

TEST(StoreRelay, WorkerThatDoesNotReadIsDisconnectedAlone) {
    StoreNode store;
    store.serve();
    LoopThread loop;
    RelayClient::Options options;
    options.limits.reply_bytes_max = 2 * kLongBytes;
    RelayNode node(loop, store.port(), options);
    const auto other = node.connect();
    RawSocket slow(node.port());
    ask_for_long_replies(slow, *other);
    EXPECT_TRUE(eventually([&] { return node.workers() == 1; }));
    EXPECT_TRUE(slow.is_closed());
    EXPECT_TRUE(eventually([&] { return store.clients() == 1; }));
    EXPECT_TRUE(other->add("number", 1, kPatience));
    EXPECT_THAT(loop.sentences(), Contains(HasSubstr("does not read its replies")));
}

TEST(StoreRelay, WorkerWithMostUnreadBytesIsDisconnectedWhenAllHaveTooMany) {
    StoreNode store;
    store.serve();
    LoopThread loop;
    RelayClient::Options options;
    options.limits.clients_bytes_max = 2 * kLongBytes;
    RelayNode node(loop, store.port(), options);
    const auto other = node.connect();
    RawSocket slow(node.port());
    ask_for_long_replies(slow, *other);
    EXPECT_TRUE(eventually([&] { return node.workers() == 1; }));
    EXPECT_TRUE(other->add("number", 1, kPatience));
    EXPECT_THAT(loop.sentences(), Contains(HasSubstr("most unread replies")));
}

TEST(StoreRelay, WorkerThatLeavesLeavesTheStore) {
    StoreNode store;
    store.serve();
    LoopThread loop;
    RelayNode node(loop, store.port());
    const auto stays = node.connect();
    auto leaves = node.connect();
    EXPECT_EQ(store.clients(), 2U);
    leaves.reset();
    EXPECT_TRUE(eventually([&] { return store.clients() == 1; }));
    EXPECT_TRUE(stays->add("number", 1, kPatience));
}

TEST(StoreRelay, WorkerThatBreaksTheProtocolIsDisconnectedAlone) {
    StoreNode store;
    store.serve();
    LoopThread loop;
    RelayNode node(loop, store.port());
    const auto other = node.connect();
    RawSocket confused(node.port());
    confused.send(all_encoded({}) + "\xFF");
    EXPECT_TRUE(confused.is_closed());
    EXPECT_TRUE(other->add("number", 1, kPatience));
    EXPECT_EQ(store.clients(), 1U);
    EXPECT_THAT(store.sentences(), Contains(HasSubstr("a worker behind 127.0.0.1:")));
}

TEST(StoreRelay, LimitOfTheStoreHoldsForEachWorker) {
    Limits limits;
    limits.value_bytes_max = 100;
    StoreNode store(limits);
    store.serve();
    LoopThread loop;
    RelayNode node(loop, store.port());
    const auto other = node.connect();
    RawSocket greedy(node.port());
    greedy.send(all_encoded({{Opcode::set, {"/key", std::string(101, 'x')}, 0}}));
    EXPECT_TRUE(greedy.is_closed());
    EXPECT_FALSE(*other->check({"key"}, kPatience));
}

TEST(StoreRelay, EndOfTheStoreDisconnectsAllWorkersAndTheNextFindsItsSuccessor) {
    StoreNode store;
    store.serve();
    LoopThread loop;
    RelayNode node(loop, store.port());
    const auto first = node.connect();
    const auto second = node.connect();
    auto waits = std::async(std::launch::async, [&] { return first->wait({"never"}, kPatience); });
    ASSERT_TRUE(second->add("number", 1, kPatience));
    store.end();
    EXPECT_THAT(waits.get(), fails(Errc::disconnected));
    EXPECT_FALSE(second->add("number", 1, kPatience));
    store.offer_again();
    store.serve();
    const auto third = node.connect();
    EXPECT_EQ(*third->add("number", 1, kPatience), 1);
}

TEST(StoreRelay, EndOfTheRelayDisconnectsItsWorkersAndNoOthers) {
    StoreNode store;
    store.serve();
    LoopThread loop;
    auto node = std::make_unique<RelayNode>(loop, store.port());
    RelayNode other(loop, store.port());
    const auto worker = node->connect();
    const auto stays = other.connect();
    node.reset();
    EXPECT_FALSE(worker->add("number", 1, kPatience));
    EXPECT_TRUE(eventually([&] { return store.clients() == 1; }));
    EXPECT_TRUE(stays->add("number", 1, kPatience));
}

TEST(StoreRelay, WorkersBeyondTheLimitAreRefused) {
    StoreNode store;
    store.serve();
    LoopThread loop;
    RelayClient::Options options;
    options.workers_max = 2;
    RelayNode node(loop, store.port(), options);
    const auto first = node.connect();
    const auto second = node.connect();
    RawSocket third(node.port());
    EXPECT_TRUE(third.is_closed());
    EXPECT_TRUE(first->add("number", 1, kPatience));
}

}  // namespace
}  // namespace regroup::store
