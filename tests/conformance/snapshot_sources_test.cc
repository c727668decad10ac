// SPDX-License-Identifier: Apache-2.0
//
// Which nodes are asked for a part, or for some of it, and how often.
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
#include "rendezvous/snapshot/pieces.h"
#include "tests/support/matchers.h"
#include "worker_sdk/src/snapshot/opened_version.h"

namespace regroup::snapshot {
namespace {

constexpr Version kVersion{1, 2, 30};

constexpr std::size_t kSmall = 24;
constexpr std::size_t kLarge = std::size_t{8} << 20U;

/// A part with tensors "small/P" and "large/P", where P is its number.
std::string image_of(const PartId& id) {
    std::string data;
    std::vector<TensorEntry> tensors;
    std::vector<std::uint64_t> hashes;
    for (const auto& [name, bytes] : {std::pair("small/", kSmall), std::pair("large/", kLarge)}) {
        const std::string content(bytes, static_cast<char>('a' + id.part));
        tensors.push_back({.name = name + std::to_string(id.part),
                           .dtype = "U8",
                           .shape = {bytes},
                           .offset = {0},
                           .global_shape = {bytes}});
        hashes.push_back(hash_of_tensor(std::as_bytes(std::span(content))));
        data += content;
    }
    const auto layout = ImageLayout::of(id, tensors);
    ENSURE(layout);
    return layout->header(kVersion, hashes) + data;
}

/// Nodes that answer as they are told. Their endpoints are their numbers.
class ToldNodes : public Keeper {
   public:
    /// The next answers of the node: an error, or nullopt for what it is asked for.
    void answer(const std::string& node, std::deque<std::optional<Errc>> answers) {
        answers_[node] = std::move(answers);
    }
    /// The next answer of this node that is more than a header has a wrong byte.
    void damage(std::string node) { damaged_ = std::move(node); }
    [[nodiscard]] std::uint64_t bytes_given() const { return bytes_given_; }
    /// The nodes that were asked, in order; "again" if patiently.
    [[nodiscard]] const std::vector<std::string>& asked() const { return asked_; }

    Result<HeldImage> image(const Wanted& wanted) override {
        asked_.push_back(wanted.endpoint + (wanted.patient ? " again" : ""));
        auto& answers = answers_[wanted.endpoint];
        if (!answers.empty()) {
            const std::optional<Errc> error = answers.front();
            answers.pop_front();
            if (error) {
                return Failure(*error, "node " + wanted.endpoint + " has an error");
            }
        }
        const std::string whole = image_of(wanted.id);
        const auto held = std::make_shared<std::string>(
            whole.substr(wanted.begin, wanted.bytes == 0 ? whole.npos : wanted.bytes));
        if (damaged_ == wanted.endpoint && (wanted.begin > 0 || wanted.bytes == 0)) {
            held->back() = '?';
            damaged_.clear();
        }
        bytes_given_ += held->size();
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
    std::string damaged_;
    std::uint64_t bytes_given_ = 0;
};

/// Parts that nodes 1 and 2 have, and node 0 wants.
class SnapshotSources : public ::testing::Test {
   protected:
    OpenedVersion version_of(std::uint32_t parts) {
        Candidate candidate{kVersion, parts, {}};
        std::vector<Announcement> announcements;
        for (std::uint32_t node = 1; node <= 2; ++node) {
            candidate.runs.push_back({{node, Holding::Place::room}, 0, parts});
            announcements.push_back({node, "", std::to_string(node), {}});
        }
        return {nodes_,
                std::move(candidate),
                std::move(announcements),
                {"state", 0, 0, parts},
                [this](const std::string& sentence) { said_.push_back(sentence); }};
    }
    Result<void> open() { return version_of(1).verify_share(); }
    /// Reads a tensor, and returns its first byte.
    static Result<char> read(OpenedVersion& opened, const std::string& name, std::size_t bytes) {
        std::string memory(bytes, '\0');
        CopyPool pool(1);
        const Entry entry{.tensor = {.name = name,
                                     .dtype = "U8",
                                     .shape = {bytes},
                                     .offset = {0},
                                     .global_shape = {bytes},
                                     .bytes = bytes},
                          .data = memory.data()};
        const Result<void> done = opened.read(entry, pool);
        return done ? Result<char>(memory.front()) : Result<char>(done.error());
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

TEST_F(SnapshotSources, SmallTensorOfAnotherPartCostsItsBytesAlone) {
    OpenedVersion opened = version_of(3);
    const Result<char> small = read(opened, "small/2", kSmall);
    ASSERT_TRUE(small);
    EXPECT_EQ(*small, 'c');
    // Three headers, each asked for with a guess of its length, and the tensor.
    EXPECT_EQ(nodes_.asked().size(), 4U);
    EXPECT_LT(nodes_.bytes_given(), std::uint64_t{1} << 20U);
    const auto bytes = opened.bytes("small/2");
    ASSERT_TRUE(bytes);
    EXPECT_EQ(bytes->size(), kSmall);
    EXPECT_EQ(nodes_.asked().size(), 4U);
}

TEST_F(SnapshotSources, WholeImageIsGotWhereMostOfItIsNeeded) {
    OpenedVersion opened = version_of(2);
    const Result<char> large = read(opened, "large/1", kLarge);
    ASSERT_TRUE(large);
    EXPECT_EQ(*large, 'b');
    const std::size_t asked = nodes_.asked().size();
    EXPECT_TRUE(read(opened, "small/1", kSmall));
    EXPECT_EQ(nodes_.asked().size(), asked);
}

TEST_F(SnapshotSources, TensorThatIsDamagedComesFromTheNextNode) {
    nodes_.damage("1");
    OpenedVersion opened = version_of(2);
    const Result<char> small = read(opened, "small/1", kSmall);
    ASSERT_TRUE(small);
    EXPECT_EQ(*small, 'b');
    // The headers, the tensor, and both again from the other node.
    EXPECT_THAT(nodes_.asked(), ElementsAre("1", "1", "1", "2", "2"));
    EXPECT_THAT(said_, ElementsAre(saying("part 1", "node 1", "tensor small/1", "damaged")));
}

TEST_F(SnapshotSources, TensorThatNoNodeHasUndamagedIsLost) {
    nodes_.damage("1");
    nodes_.answer("2", {Errc::overloaded});
    OpenedVersion opened = version_of(2);
    const Result<char> small = read(opened, "small/1", kSmall);
    ASSERT_FALSE(small);
    EXPECT_EQ(small.error().code, Errc::overloaded);
}

}  // namespace
}  // namespace regroup::snapshot
