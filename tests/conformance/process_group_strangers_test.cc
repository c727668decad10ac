// SPDX-License-Identifier: Apache-2.0
// Processes that are no ranks of a group and try to be: with all that the store holds, with the key
// of another round, in large numbers, with nonsense.
#include <array>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/base/random.h"
#include "tests/conformance/process_group_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "worker_sdk/src/net/poll_set.h"
#include "worker_sdk/src/net/protection.h"
#include "worker_sdk/src/net/socket.h"
#include "worker_sdk/src/store/member_store.h"

namespace regroup {
namespace {

using testing::context_of_rank;

const ProcessGroupOptions kOptions{.timeout = kPatience, .name = "test"};

/// The errors with which the ranks of a world of two end, each with a change to its context.
std::array<std::optional<Error>, 2> errors_of(const std::function<void(Context&)>& first,
                                              const std::function<void(Context&)>& second) {
    const auto store = make_local_store(kPatience);
    std::array<std::optional<Error>, 2> errors;
    std::vector<std::jthread> threads;
    for (const std::uint32_t rank : {0U, 1U}) {
        threads.emplace_back([&, rank] {
            Context context = context_of_rank(rank, 2, store);
            (rank == 0 ? first : second)(context);
            errors[rank] =
                error_of([&] { ProcessGroup::create("cpu", context, kOptions)->barrier().wait(); });
        });
    }
    threads.clear();
    return errors;
}

TEST(GroupStrangers, ProcessWithoutTheSecretTakesNoRank) {
    const auto errors = errors_of([](Context&) {},
                                  [](Context& context) {
                                      context.group_secret.clear();
                                      context.group_encryption = false;
                                  });
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
        ASSERT_TRUE(errors[rank]) << rank;
        EXPECT_EQ(errors[rank]->code(), Errc::invalid_argument);
        EXPECT_THAT(errors[rank]->what(), HasSubstr("addr/" + std::to_string(1 - rank)));
        EXPECT_THAT(errors[rank]->what(), HasSubstr("REGROUP_GROUP_SECRET_FILE"));
    }
}

TEST(GroupStrangers, MemberOfAnotherRoundTakesNoRank) {
    const auto errors = errors_of(
        [](Context&) {}, [](Context& context) { context.group_secret += ", one round earlier"; });
    for (const auto& error : errors) {
        EXPECT_THAT(error, is_error("another secret of the group"));
    }
}

TEST(GroupStrangers, SecretThatCanBeGuessedIsRefused) {
    const auto errors = errors_of([](Context& context) { context.group_secret = "short"; },
                                  [](Context& context) { context.group_secret = "short"; });
    ASSERT_TRUE(errors[0] && errors[1]);
    EXPECT_THAT(errors[0]->what(), HasSubstr("the group's secret has 5 bytes"));
}

TEST(GroupStrangers, RanksAgreeWhetherTheyEncrypt) {
    const auto errors = errors_of([](Context& context) { context.group_encryption = true; },
                                  [](Context& context) { context.group_encryption = false; });
    for (const auto& error : errors) {
        EXPECT_THAT(error, is_error("encrypt", "rank "));
    }
    const auto without_secret = [](Context& context) {
        context.group_secret.clear();
        context.group_encryption = true;
    };
    const auto refused = errors_of(without_secret, without_secret);
    ASSERT_TRUE(refused[0]);
    EXPECT_THAT(refused[0]->what(), HasSubstr("the ranks have no secret for it"));
}

TEST(GroupStrangers, StoreShowsNoAddress) {
    const auto store = make_local_store(kPatience);
    testing::World world(2);
    world.store = store;
    run_ranks(world, [](ProcessGroup& group) { group.barrier().wait(); });
    EXPECT_EQ(store->get("pg/test/0.0/1/addr/0").find("127.0.0.1"), std::string::npos);
}

/// Rank 0 waits for the other one while strangers call it.
class BesetRank : public ::testing::Test {
   protected:
    BesetRank()
        : first_(std::async(std::launch::async, [this] { return join(0); })),
          context_(context_of_rank(1, 2, store_)) {
        MemberStore entries("pg/test/0.0/1", store_, net::group_key(context_, "regroup store"));
        const std::string entry = entries.get("addr/0");
        address_ = net::SocketAddress::parse(entry.substr(0, entry.find(' ')));
    }

    [[nodiscard]] std::unique_ptr<ProcessGroup> join(std::uint32_t rank) const {
        return ProcessGroup::create("cpu", context_of_rank(rank, 2, store_), kOptions);
    }
    net::Stream& call() {
        net::Stream& stream = strangers_.emplace_back(net::begin_connect(address_));
        net::PollSet poll;
        stream.writable = false;
        poll.want_write(stream);
        poll.wait(after(SteadyClock().now(), kPatience));
        return stream;
    }
    /// Both ranks are there and agree.
    void form() {
        groups_[1] = join(1);
        groups_[0] = first_.get();
        const std::jthread thread([&] { groups_[0]->barrier().wait(); });
        groups_[1]->barrier().wait();
    }
    /// False if rank 0 has hung up on this stranger.
    static bool is_connected(net::Stream& stream) {
        std::array<std::byte, 512> words{};
        stream.readable = true;
        static_cast<void>(stream.read_some(words));
        stream.readable = true;
        static_cast<void>(stream.read_some(words));
        return !stream.ended();
    }

    std::shared_ptr<Store> store_ = make_local_store(kPatience);
    std::future<std::unique_ptr<ProcessGroup>> first_;
    const Context context_;
    net::SocketAddress address_;
    std::vector<net::Stream> strangers_;
    std::array<std::unique_ptr<ProcessGroup>, 2> groups_;
};

TEST_F(BesetRank, SilentStrangersDelayNoRank) {
    constexpr std::size_t kStrangers = 300;
    for (std::size_t i = 0; i < kStrangers; ++i) {
        call();
    }
    form();
    // Had it waited for their deadline, these would be gone.
    for (std::size_t i = kStrangers - 100; i < kStrangers; ++i) {
        EXPECT_TRUE(is_connected(strangers_[i])) << i;
    }
}

TEST_F(BesetRank, NonsenseHarmsNoGroup) {
    Random random(7);
    for (std::size_t i = 0; i < 200; ++i) {
        std::vector<std::byte> words(1 + i * 3);
        for (std::byte& word : words) {
            word = static_cast<std::byte>(random.below(256));
        }
        call().write_some(words);
    }
    form();
}

}  // namespace
}  // namespace regroup
