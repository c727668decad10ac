// SPDX-License-Identifier: Apache-2.0
// Ranks that share memory, when one of them gives up.
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/matchers.h"
#include "tests/support/patience.h"
#include "worker_sdk/src/cpu/executor.h"
#include "worker_sdk/src/cpu/node_collectives.h"

namespace regroup::cpu {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20U;

std::vector<SharedMemory> views_of(std::vector<SharedMemory>& made) {
    std::vector<SharedMemory> views;
    for (const SharedMemory& memory : made) {
        views.push_back(std::move(*SharedMemory::open(memory.ticket())));
    }
    return views;
}

class NodeEngine final : public CollectiveEngine {
   public:
    explicit NodeEngine(std::unique_ptr<NodeCollectives> node) : node_(std::move(node)) {}
    void carry_out(Operation& operation, Instant now) override {
        node_->carry_out(operation, now, operation.signature);
    }
    void stop(bool orderly) noexcept override { node_->stop(orderly); }

   private:
    std::unique_ptr<NodeCollectives> node_;
};

/// Two ranks: one carries out a broadcast from memory that both have mapped, the other is played by
/// the test, which enters and arrives for it.
class TwoRanks : public ::testing::Test {
   protected:
    TwoRanks() {
        region_->number = 1;
        region_->parts = views_of(buffers_);
    }

    std::unique_ptr<NodeCollectives> real(std::uint32_t rank) {
        auto node = std::make_unique<NodeCollectives>(
            std::make_shared<NodeMemory>(views_of(segments_), true), rank,
            std::vector<std::string>{"rank 0", "rank 1"}, [](std::uint32_t, const Standing&) {});
        node->regions().add(region_);
        return node;
    }
    std::unique_ptr<CollectiveEngine> engine(std::uint32_t rank) {
        return std::make_unique<NodeEngine>(real(rank));
    }
    [[nodiscard]] const Signature& signature() const { return signature_; }
    [[nodiscard]] Operation broadcast(std::uint32_t rank) const {
        return {.signature = signature_,
                .buffer = {region_->parts[rank].data(), kBytes, DType::uint8},
                .limit = limit_};
    }
    void enter(std::uint32_t rank) {
        played_.board(rank).entries[1] = {.called = signature_, .region = 1};
        arrive();
    }
    void arrive() {
        ASSERT_EQ(barrier_.pass(after(SteadyClock().now(), kPatience)),
                  NodeBarrier::Outcome::passed);
    }
    NodeMemory::Board& board(std::uint32_t rank) { return played_.board(rank); }
    void set_limit(Duration limit) { limit_ = limit; }

   private:
    static std::vector<SharedMemory> make_two(std::size_t bytes) {
        std::vector<SharedMemory> made;
        made.push_back(SharedMemory::create(bytes, false));
        made.push_back(SharedMemory::create(bytes, false));
        return made;
    }

    const Signature signature_{
        .number = 1, .count = kBytes, .peer = 0, .kind = OperationKind::broadcast};
    std::vector<SharedMemory> segments_ = make_two(NodeMemory::segment_bytes());
    std::vector<SharedMemory> buffers_ = make_two(kBytes);
    const std::shared_ptr<Region> region_ = std::make_shared<Region>();
    Duration limit_ = kPatience;
    NodeMemory played_{views_of(segments_), true};
    NodeBarrier barrier_{played_.board(0).barrier, 2, true, [] { return false; }};
};

TEST_F(TwoRanks, DataOfARankThatHasGivenUpIsNoResult) {
    const auto reader = real(1);
    std::optional<GroupFailure> failure;
    std::jthread thread([&] {
        try {
            reader->carry_out(broadcast(1), SteadyClock().now(), signature());
        } catch (const GroupFailure& caught) {
            failure = caught;
        }
    });
    enter(0);
    board(0).failed = 1;  // As if it had run out of patience after arriving for the last time.
    arrive();
    thread.join();
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->code, Errc::disconnected);
    EXPECT_EQ(failure->cause, "rank 0 has given the group up");
    EXPECT_TRUE(failure->follows);
}

TEST_F(TwoRanks, RankThatGivesUpSaysSoBeforeItsCallerCanKnow) {
    std::promise<GroupFailure> failed;
    set_limit(std::chrono::seconds(2));
    Executor executor(engine(0),
                      {.start = [](const Operation&, Instant) {},
                       .complete = [](const Operation&) { ADD_FAILURE(); },
                       .fail = [&](const GroupFailure& failure) { failed.set_value(failure); }});
    executor.post(broadcast(0));
    enter(1);  // And never arrives again.
    const GroupFailure failure = failed.get_future().get();
    EXPECT_EQ(failure.code, Errc::deadline_exceeded);
    EXPECT_THAT(failure.cause, HasSubstr("rank 1 has not joined in"));
    EXPECT_EQ(executor.stop(false).size(), 1U);
    EXPECT_EQ(board(0).failed, 1U);
    EXPECT_EQ(board(0).left, 0U);
}

TEST_F(TwoRanks, RankThatLeavesInOrderHasNotGivenUp) {
    Executor executor(engine(0), {.start = {}, .complete = {}, .fail = {}});
    EXPECT_TRUE(executor.stop(true).empty());
    EXPECT_EQ(board(0).failed, 0U);
    EXPECT_EQ(board(0).left, 1U);
}

}  // namespace
}  // namespace regroup::cpu
