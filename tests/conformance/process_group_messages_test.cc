// SPDX-License-Identifier: Apache-2.0
// Sends and receives between pairs of ranks.
#include <chrono>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>

#include "tests/conformance/process_group_ranks.h"

namespace regroup {
namespace {

std::vector<std::int64_t> counting_from(std::int64_t first, std::size_t count) {
    std::vector<std::int64_t> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
}

TEST(Messages, MessagesTravelBothWaysManyTimes) {
    run_ranks(2, [](ProcessGroup& group) {
        std::int64_t ball = 0;
        const std::span<std::int64_t> view(&ball, 1);
        const std::uint32_t other = 1 - group.rank();
        for (int i = 0; i < 200; ++i) {
            if (group.rank() == 0) {
                group.send(view, other).wait();
                group.recv(view, other).wait();
            } else {
                group.recv(view, other).wait();
                ++ball;
                group.send(view, other).wait();
            }
        }
        EXPECT_EQ(ball, 200);
    });
}

TEST(Messages, MessagesOfAnySizeArriveWhole) {
    run_ranks(2, [](ProcessGroup& group) {
        for (const std::size_t count : {0U, 1U, 7U, 1000U, 65537U, 1U << 20U}) {
            std::vector<std::int64_t> values = counting_from(3, count);
            if (group.rank() == 0) {
                group.send(std::span(values), 1).wait();
            } else {
                std::vector<std::int64_t> received(count);
                group.recv(std::span(received), 0).wait();
                EXPECT_EQ(received, values);
            }
        }
    });
}

/// A message that is unlike that of any other tag.
std::vector<std::int64_t> message_of(std::int64_t tag) {
    return counting_from(tag * 1000, static_cast<std::size_t>(tag) * 40);
}

TEST(Messages, MessagesAreMatchedByTagInAnyOrder) {
    run_ranks(2, [](ProcessGroup& group) {
        constexpr std::uint32_t kTags = 50;
        std::vector<std::vector<std::int64_t>> buffers(kTags);
        std::vector<Work> works;
        if (group.rank() == 0) {
            for (std::uint32_t tag = 0; tag < kTags; ++tag) {
                buffers[tag] = message_of(tag);
                works.push_back(group.send(std::span(buffers[tag]), 1, tag));
            }
        } else {
            for (std::uint32_t i = 0; i < kTags; ++i) {
                const std::uint32_t tag = kTags - 1 - i;
                buffers[tag].resize(message_of(tag).size());
                works.push_back(group.recv(std::span(buffers[tag]), 0, tag));
                if (i % 3 == 0) {
                    works.back().wait();
                }
            }
        }
        for (const Work& work : works) {
            work.wait();
        }
        for (std::uint32_t tag = 0; tag < kTags; ++tag) {
            EXPECT_EQ(buffers[tag], message_of(tag));
        }
    });
}

TEST(Messages, MessagesOfOneTagKeepTheirOrder) {
    run_ranks(2, [](ProcessGroup& group) {
        constexpr int kMessages = 100;
        std::vector<std::int32_t> values(kMessages, -1);
        std::vector<Work> works;
        for (int i = 0; i < kMessages; ++i) {
            const std::span<std::int32_t> one(&values[static_cast<std::size_t>(i)], 1);
            if (group.rank() == 0) {
                one[0] = i;
                works.push_back(group.send(one, 1, 5));
            } else {
                works.push_back(group.recv(one, 0, 5));
            }
        }
        for (const Work& work : works) {
            work.wait();
        }
        for (int i = 0; i < kMessages; ++i) {
            EXPECT_EQ(values[static_cast<std::size_t>(i)], i);
        }
    });
}

constexpr std::size_t kCount = 30000;

std::vector<std::int64_t> message_between(std::int64_t sender, std::int64_t receiver) {
    return counting_from(sender * 100 + receiver, kCount);
}

TEST(Messages, AllRanksSendToAllRanksAtOnce) {
    run_ranks(6, [](ProcessGroup& group) {
        std::vector<std::vector<std::int64_t>> sent(group.world_size());
        std::vector<std::vector<std::int64_t>> received(group.world_size());
        std::vector<Work> works;
        for (std::uint32_t peer = 0; peer < group.world_size(); ++peer) {
            if (peer != group.rank()) {
                sent[peer] = message_between(group.rank(), peer);
                received[peer].resize(kCount);
                works.push_back(group.send(std::span(sent[peer]), peer));
                works.push_back(group.recv(std::span(received[peer]), peer));
            }
        }
        for (const Work& work : works) {
            work.wait();
        }
        for (std::uint32_t peer = 0; peer < group.world_size(); ++peer) {
            if (peer != group.rank()) {
                EXPECT_EQ(received[peer], message_between(peer, group.rank()));
            }
        }
    });
}

// A send that is issued behind a collective reaches a peer which enters that collective only after
// it has received: the message does not wait for the collective.
TEST(Messages, MessagesDoNotWaitForACollectiveThatWaitsForThem) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<std::int64_t> message = counting_from(0, 100000);
        if (group.rank() == 0) {
            const Work barrier = group.barrier();
            group.send(std::span(message), 1).wait();
            barrier.wait();
        } else {
            std::vector<std::int64_t> received(message.size());
            group.recv(std::span(received), 0).wait();
            EXPECT_EQ(received, message);
            group.barrier().wait();
        }
    });
}

TEST(Messages, UnreceivedMessagesDoNotBlockCollectives) {
    run_ranks(3, [](ProcessGroup& group) {
        std::vector<std::int64_t> message = counting_from(0, 1U << 20U);
        std::vector<std::int64_t> received(message.size());
        const std::uint32_t next = (group.rank() + 1) % 3;
        const std::uint32_t previous = (group.rank() + 2) % 3;
        const Work send = group.send(std::span(message), next, 9);
        std::vector<float> values(50000, 1.0F);
        group.all_reduce(std::span(values), ReduceOp::sum).wait();
        EXPECT_EQ(values.back(), 3.0F);
        group.recv(std::span(received), previous, 9).wait();
        send.wait();
        EXPECT_EQ(received, message);
    });
}

// More than may be put aside: the sender has to wait, and everything still arrives.
TEST(Messages, MessagesBeyondTheBoundWaitAtTheSender) {
    run_ranks(2, [](ProcessGroup& group) {
        constexpr std::size_t kLargeCount = std::size_t{4} << 20U;  // 32 MiB each
        constexpr std::uint32_t kMessages = 3;
        std::vector<std::vector<std::int64_t>> buffers(kMessages,
                                                       std::vector<std::int64_t>(kLargeCount));
        if (group.rank() == 0) {
            std::vector<Work> works;
            for (std::uint32_t tag = 0; tag < kMessages; ++tag) {
                buffers[tag].back() = tag;
                works.push_back(group.send(std::span(buffers[tag]), 1, tag));
            }
            const Work barrier = group.barrier();
            works[0].wait();
            barrier.wait();
            EXPECT_FALSE(works.back().done());
            group.barrier().wait();
            std::int64_t go = 0;
            group.send(std::span(&go, 1), 1, 99).wait();
            works.back().wait();
        } else {
            group.barrier().wait();
            group.barrier().wait();  // The sender has seen that this rank takes no more.
            for (std::uint32_t tag = 0; tag < kMessages; ++tag) {
                group.recv(std::span(buffers[tag]), 0, tag).wait();
                EXPECT_EQ(buffers[tag].back(), tag);
            }
            std::int64_t go = 1;
            group.recv(std::span(&go, 1), 0, 99).wait();
            EXPECT_EQ(go, 0);
        }
    });
}

/// Fails if the operation does not end.
void poll_until_done(const Work& work) {
    const auto until = std::chrono::steady_clock::now() + testing::kPatience;
    while (!work.done() && std::chrono::steady_clock::now() < until) {
        std::this_thread::yield();
    }
    EXPECT_TRUE(work.done());
}

TEST(Messages, MessageArrivesThoughNoRankWaits) {
    run_ranks(2, [](ProcessGroup& group) {
        constexpr std::size_t kCount = std::size_t{1} << 20U;  // 8 MiB
        std::vector<std::int64_t> values(kCount, group.rank());
        const std::uint32_t other = 1 - group.rank();
        const Work work =
            group.rank() == 0 ? group.send(values, other) : group.recv(std::span(values), other);
        poll_until_done(work);
        EXPECT_THAT(values, ::testing::Each(0));
        group.barrier().wait();
    });
}

TEST(Messages, RecvExpiresThoughNoCallerWaits) {
    run_ranks(2, [](ProcessGroup& group) {
        const std::uint32_t other = 1 - group.rank();
        std::int64_t value = 0;
        // The group's own limit is much later than that of the second recv.
        const Work sent = group.send(std::span(&value, 1), other);
        group.recv(std::span(&value, 1), other).wait();
        sent.wait();
        const Work work = group.rank() == 0 ? group.recv(std::span(&value, 1), other, 1,
                                                         {.timeout = std::chrono::milliseconds(50)})
                                            : group.recv(std::span(&value, 1), other, 2);
        poll_until_done(work);
        const auto error = testing::error_of(work);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), Errc::deadline_exceeded);
        EXPECT_THAT(error->what(), ::testing::ContainsRegex(
                                       "rank 1 \\(.*\\) has not sent the message within 50 ms"));
    });
}

TEST(Messages, ThreadsOfARankExchangeMessagesAtOnce) {
    run_ranks(3, [](ProcessGroup& group) {
        constexpr std::int64_t kRounds = 300;
        std::vector<std::jthread> threads;
        for (std::uint32_t tag = 0; tag < 3; ++tag) {
            threads.emplace_back([&group, tag] {
                const std::uint32_t next = (group.rank() + 1) % 3;
                const std::uint32_t previous = (group.rank() + 2) % 3;
                for (std::int64_t round = 0; round < kRounds; ++round) {
                    const std::int64_t mine = round * 10 + tag;
                    std::int64_t theirs = -1;
                    const Work work = group.send(std::span(&mine, 1), next, tag);
                    group.recv(std::span(&theirs, 1), previous, tag).wait();
                    work.wait();
                    EXPECT_EQ(theirs, mine);
                }
            });
        }
    });
}

TEST(Messages, MessagesOfDifferentCountsAreRefusedAndNamed) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<float> values(group.rank() == 0 ? 10 : 20);
        if (group.rank() == 0) {
            group.send(std::span(values), 1).wait();
        }
        const auto error = testing::error_of(group.rank() == 0 ? group.barrier()
                                                               : group.recv(std::span(values), 0));
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), Errc::invalid_argument);
        EXPECT_THAT(error->what(), ::testing::HasSubstr("10 x float32"));
        EXPECT_THAT(error->what(), ::testing::HasSubstr("20 x float32"));
    });
}

}  // namespace
}  // namespace regroup
