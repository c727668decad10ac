// SPDX-License-Identifier: Apache-2.0
//
// Which nodes are asked for a part, and how often.
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/base/ensure.h"
#include "rendezvous/snapshot/image.h"
#include "tests/support/matchers.h"
#include "worker_sdk/src/snapshot/opened_version.h"

namespace regroup::snapshot {
namespace {

constexpr Version kVersion{1, 2, 30};

/// A part without tensors.
std::string image() {
    const auto layout = ImageLayout::of({"state", 0, 1}, {});
    ENSURE(layout);
    return layout->header(kVersion, {});
}

/// Nodes that answer as they are told. Their endpoints are their numbers.
class ToldNodes : public Keeper {
   public:
    /// What the node answers next: an error, or the image.
    void answer(const std::string& node, std::deque<std::optional<Errc>> answers) {
        answers_[node] = std::move(answers);
    }
    /// The nodes that were asked, in order; "again" if patiently.
    [[nodiscard]] const std::vector<std::string>& asked() const { return asked_; }

    Result<HeldImage> image(const Wanted& wanted) override {
        asked_.push_back(wanted.endpoint + (wanted.patient ? " again" : ""));
        auto& answers = answers_[wanted.endpoint];
        ENSURE(!answers.empty());
        const std::optional<Errc> error = answers.front();
        answers.pop_front();
        if (error) {
            return Failure(*error, "node " + wanted.endpoint + " has an error");
        }
        const auto held = std::make_shared<std::string>(snapshot::image());
        return HeldImage{held, std::as_bytes(std::span(*held))};
    }

    std::shared_ptr<Room> room(const RoomWanted& /*wanted*/) override { return nullptr; }
    void settle() override {}
    Announcement holdings(const std::string& /*name*/) override { return {}; }
    bool adopt(const Wanted& /*wanted*/) override { return false; }
    bool saved(const PartId& /*id*/, const Version& /*version*/) override { return false; }
    void whole(const PartId& /*id*/, const Version& /*version*/, bool /*write*/) override {}
    void kept(const PartId& /*id*/, const Version& /*version*/) override {}
    Copied is_copied(const Version& /*version*/) override { return Copied::yes; }
    bool outlives_process() const noexcept override { return true; }
    void copies_to(const std::string& /*name*/, const std::string& /*endpoint*/) override {}
    bool await_unread(std::size_t /*slot*/, Instant /*deadline*/) override { return true; }

   private:
    std::map<std::string, std::deque<std::optional<Errc>>> answers_;
    std::vector<std::string> asked_;
};

/// A part that nodes 1 and 2 have, and node 0 wants.
class SnapshotSources : public ::testing::Test {
   protected:
    Result<void> open() {
        Candidate candidate{kVersion, 1, {}};
        std::vector<Announcement> announcements;
        for (std::uint32_t node = 1; node <= 2; ++node) {
            candidate.runs.push_back({{node, Holding::Place::room}});
            announcements.push_back({node, "", std::to_string(node), {}});
        }
        OpenedVersion opened(nodes_, std::move(candidate), std::move(announcements), {"state"},
                             [this](const std::string& sentence) { said_.push_back(sentence); });
        return opened.verify_share();
    }

    ToldNodes nodes_;
    std::vector<std::string> said_;
};

TEST_F(SnapshotSources, OtherNodeIsAskedBeforeTheTrainingWaits) {
    nodes_.answer("1", {Errc::disconnected});
    nodes_.answer("2", {std::nullopt});
    EXPECT_TRUE(open());
    EXPECT_THAT(nodes_.asked(), ElementsAre("1", "2"));
    EXPECT_THAT(said_, ElementsAre(saying("on node 1", "has an error")));
}

TEST_F(SnapshotSources, NodeThatCouldNotBeReachedIsAskedAgain) {
    nodes_.answer("1", {Errc::overloaded});
    nodes_.answer("2", {Errc::disconnected, std::nullopt});
    EXPECT_TRUE(open());
    EXPECT_THAT(nodes_.asked(), ElementsAre("1", "2", "2 again"));
    EXPECT_THAT(said_, ElementsAre(saying("on node 1"), saying("on node 2")));
}

TEST_F(SnapshotSources, PartThatMayBeThereIsNotLost) {
    nodes_.answer("1", {Errc::disconnected, Errc::disconnected});
    nodes_.answer("2", {Errc::overloaded});
    const Result<void> opened = open();
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, Errc::disconnected);
    EXPECT_THAT(opened.error().detail, saying("part 0", "step 30", "can be reached"));
    EXPECT_THAT(nodes_.asked(), ElementsAre("1", "2", "1 again"));
}

TEST_F(SnapshotSources, PartThatNoNodeHasIsLost) {
    nodes_.answer("1", {Errc::disconnected, Errc::overloaded});
    nodes_.answer("2", {Errc::overloaded});
    const Result<void> opened = open();
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, Errc::overloaded);
    EXPECT_THAT(opened.error().detail, saying("part 0", "step 30", "is left"));
}

}  // namespace
}  // namespace regroup::snapshot
