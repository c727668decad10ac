// SPDX-License-Identifier: Apache-2.0
// The agreement of the ranks of a group about shared memory.
#include <regroup/error.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/matchers.h"
#include "tests/support/patience.h"
#include "worker_sdk/src/cpu/node_formation.h"

namespace regroup::cpu {
namespace {

/// Two nodes with two ranks each, as threads of this process.
class TwoNodes : public ::testing::Test {
   protected:
    static constexpr std::uint32_t kRanks = 4;

    TwoNodes() {
        for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
            shares_.push_back(make_share(2, 2));
            Peer peer;
            peer.node = 1 + rank / 2;
            peer.name = "rank " + std::to_string(rank);
            peer.offer = shares_.back().offer;
            peers_.push_back(std::move(peer));
        }
    }

    struct Result {
        bool shares = false;
        std::string problem{};
        Errc code{};
        std::string error{};
    };

    /// Forms the nodes on the ranks of `taking_part`.
    std::vector<Result> form(const std::vector<std::uint32_t>& taking_part = {0, 1, 2, 3},
                             Duration limit = kPatience) {
        std::vector<Result> results(kRanks);
        std::barrier<> leaders(2);
        std::atomic<bool> all = true;
        std::vector<std::thread> threads;
        for (const std::uint32_t rank : taking_part) {
            threads.emplace_back([&, rank] {
                Result& result = results[rank];
                const Agreement agreement{.deadline = after(SteadyClock().now(), limit),
                                          .check = check_,
                                          .among_nodes = [&](bool mine) {
                                              if (!mine) {
                                                  all = false;
                                              }
                                              leaders.arrive_and_wait();
                                              return all.load();
                                          }};
                try {
                    const auto node =
                        form_nodes(peers_, layout_of(peers_, rank), std::move(shares_[rank].memory),
                                   agreement, result.problem);
                    result.shares = node.has_value() && node->memory != nullptr;
                } catch (const Error& error) {
                    result.code = error.code();
                    result.error = error.what();
                }
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        return results;
    }

    static std::vector<bool> sharing(const std::vector<Result>& results) {
        std::vector<bool> all;
        std::transform(results.begin(), results.end(), std::back_inserter(all),
                       [](const Result& result) { return result.shares; });
        return all;
    }

    std::vector<NodeShare> shares_;
    std::vector<Peer> peers_;
    std::function<void()> check_ = [] {};
};

TEST_F(TwoNodes, RanksThatCanOpenAllMemoryShareIt) {
    EXPECT_THAT(sharing(form()), Each(true));
}

TEST_F(TwoNodes, RankOutOfReachKeepsAllRanksFromSharing) {
    peers_[3].offer->memory.file.inode += 1;  // As in another container.
    const std::vector<Result> results = form();
    EXPECT_THAT(sharing(results), Each(false));
    EXPECT_THAT(results[2].problem, HasSubstr("rank 2 cannot open"));
    // Rank 2 may be gone already, with its memory.
    EXPECT_THAT(results[3].problem, HasSubstr(" cannot open"));
    EXPECT_THAT(results[0].problem, Not(IsEmpty()));
    EXPECT_THAT(results[1].problem, Not(IsEmpty()));
}

TEST_F(TwoNodes, RankOutOfReachOfItsDoorbellKeepsAllRanksFromSharing) {
    peers_[0].offer->doorbell.inode += 1;
    EXPECT_THAT(sharing(form()), Each(false));
}

TEST_F(TwoNodes, RankWithoutMemoryKeepsAllRanksFromSharing) {
    peers_[1].offer->memory = {};
    const std::vector<Result> results = form();
    EXPECT_THAT(sharing(results), Each(false));
    for (const Result& result : results) {
        EXPECT_THAT(result.problem, HasSubstr("rank 1 has no "));
    }
}

TEST_F(TwoNodes, RankThatNeverAnswersIsNamedAtTheDeadline) {
    const std::vector<Result> results = form({1}, std::chrono::milliseconds(50));
    EXPECT_EQ(results[1].code, Errc::deadline_exceeded);
    EXPECT_THAT(results[1].error, HasSubstr("rank 0 has not joined in"));
}

TEST_F(TwoNodes, EndOfTheAttemptEndsTheWait) {
    check_ = [] { throw Error(Errc::disconnected, "rank 0 is gone"); };
    EXPECT_EQ(form({1})[1].error, "rank 0 is gone");
}

}  // namespace
}  // namespace regroup::cpu
