// SPDX-License-Identifier: Apache-2.0
//
// One turn of a StoreEngine is bounded, however much its clients ask for or leave behind.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/store/store_engine.h"

namespace regroup::store {
namespace {

std::string bytes_of_request(const Request& request) {
    std::string bytes;
    encode(request, bytes);
    return bytes;
}

class StoreTurns : public ::testing::Test {
   protected:
    static constexpr std::size_t kNames = 32768;

    /// The client's end of a new connection.
    UniqueFd connect() {
        int ends[2] = {-1, -1};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
        engine.admit({UniqueFd(ends[0])});
        UniqueFd client(ends[1]);
        say(client, bytes_of_request({Opcode::validate, {}, kMagic}));
        return client;
    }
    [[nodiscard]] bool is_ready() const {
        pollfd ready{engine.ready_fd(), POLLIN, 0};
        return ::poll(&ready, 1, 0) == 1;
    }
    void turn() {
        engine.serve_ready();
        ++turns;
        most_work = std::max(most_work, engine.turn_work());
    }
    /// Turns until nothing is left to do.
    void run() {
        while (is_ready()) {
            turn();
        }
    }
    void say(const UniqueFd& client, std::string_view bytes) {
        while (!bytes.empty()) {
            const ssize_t sent =
                ::send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent > 0) {
                bytes.remove_prefix(static_cast<std::size_t>(sent));
            } else {
                ASSERT_EQ(errno, EAGAIN);
                run();
            }
        }
    }
    /// The bytes that have arrived.
    static std::size_t hear(const UniqueFd& client) {
        std::vector<char> bytes(std::size_t{1} << 20U);
        const ssize_t count = ::recv(client.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        return count > 0 ? static_cast<std::size_t>(count) : 0;
    }
    /// Clients that wait for kNames names each.
    std::vector<UniqueFd> waiting_clients(std::size_t count) {
        std::vector<UniqueFd> clients;
        for (std::size_t i = 0; i < count; ++i) {
            Request wait{Opcode::wait, {}, 0};
            for (std::size_t name = 0; name < kNames; ++name) {
                wait.texts.push_back(std::to_string(i) + "-" + std::to_string(name));
            }
            clients.push_back(connect());
            say(clients.back(), bytes_of_request(wait));
        }
        run();
        EXPECT_LE(most_work, StoreEngine::kTurnWork + kNames + 1);
        turns = 0;
        most_work = 0;
        return clients;
    }

    StoreEngine engine;
    std::size_t turns = 0;
    std::size_t most_work = 0;
};

TEST_F(StoreTurns, ManyWaitsOfClientsThatHangUpTogetherEndInSlices) {
    std::vector<UniqueFd> clients = waiting_clients(4);
    const UniqueFd honest = connect();
    run();
    clients.clear();
    say(honest, bytes_of_request({Opcode::num_keys, {}, 0}));
    turns = 0;
    most_work = 0;
    turn();
    EXPECT_GT(hear(honest), 0U);  // It does not wait for the end of that.
    EXPECT_TRUE(is_ready());
    run();
    EXPECT_EQ(engine.clients_count(), 1U);
    EXPECT_LE(most_work, StoreEngine::kTurnWork);
    EXPECT_GE(turns, 4 * kNames / StoreEngine::kTurnWork);
}

TEST_F(StoreTurns, StoreThatIsResetIsDismantledInSlices) {
    const std::vector<UniqueFd> clients = waiting_clients(4);
    engine.reset();
    EXPECT_EQ(engine.clients_count(), 0U);
    EXPECT_TRUE(is_ready());
    run();
    EXPECT_LE(most_work, StoreEngine::kTurnWork);
    EXPECT_GE(turns, 4 * kNames / StoreEngine::kTurnWork);
}

TEST_F(StoreTurns, ManyRequestsInOnePieceAreExecutedInSeveralTurnsAndInOrder) {
    constexpr std::size_t kKeys = 1000;
    for (std::size_t i = 0; i < kKeys; ++i) {
        ASSERT_TRUE(engine.set("a rather long name of a key, number " + std::to_string(i), ""));
    }
    const UniqueFd client = connect();
    run();
    turns = 0;
    most_work = 0;
    std::string requests;
    for (int i = 0; i < 100; ++i) {
        requests += bytes_of_request({Opcode::list_keys, {}, 0});
    }
    say(client, requests + bytes_of_request({Opcode::set, {"last", ""}, 0}));
    while (is_ready()) {
        turn();
        std::size_t heard = 0;
        do {
            heard = hear(client);
        } while (heard > 0);
    }
    const std::size_t one_reply = kKeys * 64 / 64 + 2;
    EXPECT_LE(most_work, StoreEngine::kTurnWork + one_reply);
    EXPECT_GT(turns, 3U);
    say(client, bytes_of_request({Opcode::num_keys, {}, 0}));
    run();
    std::int64_t keys = 0;
    ASSERT_EQ(::recv(client.get(), &keys, sizeof keys, MSG_DONTWAIT), 8);
    EXPECT_EQ(keys, static_cast<std::int64_t>(kKeys + 1));
    EXPECT_EQ(engine.clients_count(), 1U);
}

TEST_F(StoreTurns, ClientWithoutASocketThatLeavesHasItsRequestsExecuted) {
    struct End final : FarEnd {
        std::size_t take(std::string_view bytes) override { return bytes.size(); }
        void closed() override {}
        [[nodiscard]] std::string name() const override { return "a test"; }
    } far_end;
    for (std::size_t i = 0; i < 1000; ++i) {
        ASSERT_TRUE(engine.set("a rather long name of a key, number " + std::to_string(i), ""));
    }
    const ClientId client = engine.attach(far_end);
    std::string requests = bytes_of_request({Opcode::validate, {}, kMagic});
    for (int i = 0; i < 100; ++i) {
        requests += bytes_of_request({Opcode::list_keys, {}, 0});
    }
    engine.receive(client, requests + bytes_of_request({Opcode::set, {"last", ""}, 0}));
    engine.detach(client);
    const UniqueFd other = connect();
    run();
    hear(other);
    say(other, bytes_of_request({Opcode::check, {"last"}, 0}));
    run();
    std::vector<char> answer(1);
    ASSERT_EQ(::recv(other.get(), answer.data(), 1, MSG_DONTWAIT), 1);
    EXPECT_EQ(answer[0], '\0');  // "Ready".
}

}  // namespace
}  // namespace regroup::store
