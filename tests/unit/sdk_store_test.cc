// SPDX-License-Identifier: Apache-2.0
// The Store of the SDK, the same for every way to have one.
#include <regroup/error.h>
#include <regroup/store.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/files/unique_fd.h"
#include "rendezvous/store/store_wire.h"
#include "tests/support/matchers.h"
#include "tests/support/patience.h"
#include "worker_sdk/src/net/socket.h"
#include "worker_sdk/src/store/store_service.h"

namespace regroup {
namespace {

/// One store as two clients see it.
struct Clients {
    std::shared_ptr<void> server;
    std::shared_ptr<Store> first;
    std::shared_ptr<Store> second;
};

Clients local_clients() {
    const auto store = make_local_store(kPatience);
    return {nullptr, store, store};
}

Clients tcp_clients() {
    const auto service = std::make_shared<StoreService>("127.0.0.1", 0, store::Limits());
    return {service, connect_store("127.0.0.1", service->port(), kPatience),
            connect_store("127.0.0.1", service->port(), kPatience)};
}

Clients prefixed_clients() {
    const auto store = make_local_store(kPatience);
    return {nullptr, prefix_store("some/place", store), prefix_store("some/place", store)};
}

struct Kind {
    const char* name;
    Clients (*make)();
};

class StoreKinds : public ::testing::TestWithParam<Kind> {
   protected:
    const Clients clients = GetParam().make();
    Store& store = *clients.first;
    Store& other = *clients.second;
};

INSTANTIATE_TEST_SUITE_P(Kinds, StoreKinds,
                         ::testing::Values(Kind{"Local", local_clients}, Kind{"Tcp", tcp_clients},
                                           Kind{"Prefixed", prefixed_clients}),
                         [](const auto& test) { return test.param.name; });

TEST_P(StoreKinds, ValuesMayHoldAnyBytes) {
    const std::string value("a\0b\xff\n", 5);
    store.set("key", value);
    EXPECT_EQ(other.get("key"), value);
    store.set("key", "");
    EXPECT_EQ(other.get("key"), "");
}

TEST_P(StoreKinds, GetWaitsForALaterKey) {
    std::string value;
    std::jthread waiter([&] { value = other.get("later"); });
    store.set("later", "now");
    waiter.join();
    EXPECT_EQ(value, "now");
}

TEST_P(StoreKinds, WaitEndsAtItsTimeout) {
    store.set("there", "");
    try {
        store.wait({"there", "absent"}, std::chrono::milliseconds(50));
        FAIL() << "the key is not there";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::deadline_exceeded);
        EXPECT_THAT(error.what(), HasSubstr("absent"));
    }
    store.set("absent", "");
    store.wait({"there", "absent"}, kPatience);  // The store is none the worse for it.
}

TEST_P(StoreKinds, AddCounts) {
    EXPECT_EQ(store.add("count", 5), 5);
    EXPECT_EQ(other.add("count", -7), -2);
    EXPECT_EQ(store.get("count"), "-2");
}

TEST_P(StoreKinds, CheckDoesNotWait) {
    EXPECT_FALSE(store.check({"a", "b"}));
    store.set("a", "1");
    EXPECT_FALSE(store.check({"a", "b"}));
    store.set("b", "1");
    EXPECT_TRUE(store.check({"a", "b"}));
}

TEST_P(StoreKinds, CompareSetStoresOnlyOverTheExpected) {
    EXPECT_EQ(store.compare_set("key", "x", "y"), "x");
    EXPECT_FALSE(store.check({"key"}));
    EXPECT_EQ(store.compare_set("key", "", "y"), "y");
    EXPECT_EQ(store.compare_set("key", "x", "z"), "y");
    EXPECT_EQ(store.compare_set("key", "y", "z"), "z");
    EXPECT_EQ(store.get("key"), "z");
}

TEST_P(StoreKinds, DeleteAppendAndCountKeys) {
    store.append("key", "one");
    store.append("key", "two");
    EXPECT_EQ(store.get("key"), "onetwo");
    EXPECT_EQ(store.num_keys(), 1);
    EXPECT_TRUE(store.delete_key("key"));
    EXPECT_FALSE(store.delete_key("key"));
    EXPECT_EQ(store.num_keys(), 0);
}

TEST_P(StoreKinds, SetAndGetMany) {
    store.multi_set({"a", "b"}, {"1", "2"});
    EXPECT_THAT(other.multi_get({"b", "a", "b"}), ElementsAre("2", "1", "2"));
    EXPECT_THROW(store.multi_set({"a"}, {}), Error);
}

TEST(PrefixStore, PrefixSeparatesKeys) {
    const auto store = make_local_store(kPatience);
    prefix_store("one", store)->set("key", "1");
    prefix_store("two", store)->set("key", "2");
    EXPECT_EQ(store->get("one/key"), "1");
    EXPECT_EQ(store->get("two/key"), "2");
}

TEST(StoreService, ManyWaitersAreReleasedAtOnce) {
    const StoreService service("localhost", 0, {});
    std::vector<std::jthread> waiters;
    for (int i = 0; i < 20; ++i) {
        waiters.emplace_back([&] {
            const auto store = connect_store("127.0.0.1", service.port(), kPatience);
            store->add("ready", 1);
            EXPECT_EQ(store->get("go"), "ahead");
        });
    }
    const auto store = connect_store("localhost", service.port(), kPatience);
    while (store->add("ready", 0) < 20) {
        std::this_thread::yield();
    }
    store->set("go", "ahead");
}

TEST(StoreService, OccupiedPortIsNamed) {
    const StoreService service("", 0, {});
    try {
        const StoreService second("", service.port(), {});
        FAIL() << "the port is taken";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::system);
        EXPECT_THAT(error.what(), saying(std::to_string(service.port()), "Address already in use"));
    }
}

TEST(StoreService, EndOfTheServiceDisconnectsItsClients) {
    auto service = std::make_unique<StoreService>("127.0.0.1", 0, store::Limits());
    const auto store = connect_store("127.0.0.1", service->port(), kPatience);
    store->set("key", "value");
    service.reset();
    try {
        (void)store->get("key");
        FAIL() << "nobody serves it";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::disconnected) << error.what();
    }
}

/// Connects to the port of a loopback address; -1 if nobody listens there.
UniqueFd dial(const char* host, std::uint16_t port) {
    const auto address = net::SocketAddress::parse(host + std::string(":0")).with_port(port);
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), address.get(), address.bytes()) != 0) {
        socket.reset();
    }
    return socket;
}

/// A client that has sent all of a `set` but its last byte. The service may end it meanwhile.
UniqueFd dial_with_half_a_request(const StoreService& service, std::size_t value_bytes) {
    UniqueFd socket = dial("127.0.0.1", service.port());
    std::string bytes;
    store::encode({store::Opcode::validate, {}, store::kMagic}, bytes);
    store::encode({store::Opcode::set, {"/key", std::string(value_bytes, 'v')}, 0}, bytes);
    bytes.pop_back();
    for (std::size_t sent = 0; sent < bytes.size();) {
        const ssize_t count = ::send(socket.get(), &bytes[sent], bytes.size() - sent, MSG_NOSIGNAL);
        if (count <= 0) {
            break;
        }
        sent += static_cast<std::size_t>(count);
    }
    return socket;
}

/// Waits until the service closes the connection.
bool is_closed(const UniqueFd& socket) {
    char byte = 0;
    return ::recv(socket.get(), &byte, 1, 0) <= 0;
}

TEST(StoreService, ClientThatHoldsMostIsDisconnectedWhenAllHoldTooMuch) {
    store::Limits limits;
    limits.clients_bytes_max = std::size_t{1} << 20U;
    const StoreService service("127.0.0.1", 0, limits);
    const auto small = dial_with_half_a_request(service, 1000);
    EXPECT_TRUE(is_closed(dial_with_half_a_request(service, 2 << 20U)));
    ASSERT_EQ(::send(small.get(), "v", 1, MSG_NOSIGNAL), 1);
    EXPECT_EQ(connect_store("127.0.0.1", service.port(), kPatience)->get("key").size(), 1000U);
}

TEST(StoreService, ClientBeyondTheLimitIsDisconnected) {
    const StoreService service("127.0.0.1", 0, StoreService::limits_of(1));
    std::vector<std::shared_ptr<Store>> clients;
    for (std::size_t i = 0; i < StoreService::limits_of(1).clients_max; ++i) {
        clients.push_back(connect_store("127.0.0.1", service.port(), kPatience));
    }
    EXPECT_TRUE(is_closed(dial("127.0.0.1", service.port())));
    clients.front()->set("key", "value");
    EXPECT_EQ(clients.back()->get("key"), "value");
    clients.pop_back();
    EXPECT_EQ(connect_store("127.0.0.1", service.port(), kPatience)->get("key"), "value");
}

TEST(StoreService, ForkedProcessHoldsNeitherItsPortNorItsConnections) {
    auto service = std::make_unique<StoreService>("127.0.0.1", 0, store::Limits());
    const std::uint16_t port = service->port();
    const auto client = connect_store("127.0.0.1", port, kPatience);
    int is_forked[2];
    ASSERT_EQ(::pipe(is_forked), 0);
    const pid_t child = ::fork();
    char byte = 'f';
    if (child == 0) {
        (void)!::write(is_forked[1], &byte, 1);
        ::pause();
        ::_exit(0);
    }
    EXPECT_EQ(::read(is_forked[0], &byte, 1), 1);
    service.reset();
    EXPECT_FALSE(dial("127.0.0.1", port));
    EXPECT_THROW((void)client->get("key"), Error);
    ::kill(child, SIGKILL);
    EXPECT_EQ(::waitpid(child, nullptr, 0), child);
    ::close(is_forked[0]);
    ::close(is_forked[1]);
}

TEST(StoreService, LoopbackHostIsServedOnThatAddressOnly) {
    for (const char* const host : {"127.0.0.1", "localhost"}) {
        const StoreService service(host, 0, {});
        EXPECT_TRUE(dial("127.0.0.1", service.port())) << host;
        EXPECT_FALSE(dial("127.0.0.2", service.port())) << host;
    }
}

TEST(StoreService, NamedHostIsServedOnAllAddresses) {
    const StoreService service("node0", 0, {});
    EXPECT_TRUE(dial("127.0.0.1", service.port()));
    EXPECT_TRUE(dial("127.0.0.2", service.port()));
}

}  // namespace
}  // namespace regroup
