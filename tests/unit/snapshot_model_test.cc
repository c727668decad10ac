// SPDX-License-Identifier: Apache-2.0
//
// Histories of a job whose nodes keep snapshots, by random numbers: workers save, agents copy and
// hear that a version is whole, each at its own time; workers die in the middle of a save, nodes
// are lost and join, the number of ranks changes, and workers of a round that is over go on saving.
// The decisions are those of the product: Shelf, Room, slot_for_save and candidates. After each
// event:
//
//  - a version that is offered was saved by every rank;
//  - the newest version that a rank knew to be whole, or a later one, can be loaded as long as no
//    node is lost;
//  - the newest version of which each part was copied too, or a later one, can be loaded after the
//    loss of any one node.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "agent/snapshot/shelf.h"
#include "rendezvous/snapshot/holdings.h"
#include "rendezvous/snapshot/room.h"

namespace regroup::snapshot {
namespace {

using agent::HeldPart;
using agent::ImageMemory;
using agent::Shelf;

constexpr std::uint64_t kBytes = 64;
constexpr std::uint32_t kNodesMax = 4;
constexpr const char* kState = "state";

struct Node {
    std::uint32_t id = 0;
    std::shared_ptr<Shelf> shelf;
};

struct Rank {
    std::shared_ptr<Node> node;
    PartId id;
    std::shared_ptr<Room> room{};
    Version next{};  ///< The version that it saves next.
    std::optional<std::size_t> saving_into{};
    std::optional<Version> in_flight{};  ///< Not kept yet; there is one at most.
    std::vector<Version> pending{};
    std::optional<Version> kept{};
};

/// A copy on its way.
struct Transfer {
    std::shared_ptr<Node> to;
    PartId id;
    Version version;
    std::shared_ptr<ImageMemory> image;
};

class History {
   public:
    explicit History(std::uint32_t seed) : random_(seed) {}

    void run(int events) {
        for (std::uint32_t i = 0; i < 2; ++i) {
            add_node();
        }
        begin_round();
        for (int i = 0; i < events && !::testing::Test::HasFailure(); ++i) {
            happen();
            check();
        }
        if (!::testing::Test::HasFailure()) {
            expect_progress();
        }
    }
    [[nodiscard]] const std::map<std::string, int>& counts() const { return counts_; }

   private:
    std::uint32_t below(std::size_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
    template <class T>
    T& any_of(std::vector<T>& all) {
        return all[below(all.size())];
    }

    void add_node() {
        nodes_.push_back(std::make_shared<Node>(
            Node{++nodes_added_, std::make_shared<Shelf>(Shelf::Limits{1U << 30U, false})}));
        std::shuffle(nodes_.begin(), nodes_.end(), random_);
    }

    [[nodiscard]] static std::vector<Candidate> offered(
        const std::vector<std::shared_ptr<Node>>& nodes) {
        std::vector<Announcement> announcements;
        for (std::size_t i = 0; i < nodes.size(); ++i) {
            Announcement& said = announcements.emplace_back();
            said.node = static_cast<std::uint32_t>(i);
            for (const HeldPart& part : nodes[i]->shelf->parts()) {
                said.holdings.push_back({part.place, part.id.part, part.id.parts, part.version});
            }
            said.holdings = joined(said.holdings);
        }
        return candidates(announcements);
    }

    /// All workers are new: they load, and go on.
    void begin_round() {
        ++counts_["rounds"];
        copied_parts_.clear();
        transfers_.clear();
        ++round_;
        ranks_.clear();
        if (below(4) == 0) {
            workers_ = 1 + below(3);
        }
        const std::vector<Candidate> found = offered(nodes_);
        const std::optional<Version> loaded =
            found.empty() ? std::nullopt : std::optional(found.front().version);
        const std::uint64_t history = loaded ? loaded->history : ++histories_;
        const auto parts = static_cast<std::uint32_t>(nodes_.size()) * workers_;
        for (const auto& node : nodes_) {
            node->shelf->begin_round(round_, nodes_.size() > 1);
            for (auto candidate = found.rbegin(); candidate != found.rend(); ++candidate) {
                node->shelf->set_whole(kState, candidate->version, Shelf::Teller::worker);
            }
            for (std::uint32_t i = 0; i < workers_; ++i) {
                const auto part = static_cast<std::uint32_t>(ranks_.size());
                Rank& rank = ranks_.emplace_back(Rank{node, {kState, part, parts}});
                rank.next = {history, round_, loaded ? loaded->step + 1 : 1};
                for (const Candidate& candidate : found) {
                    rank.pending.push_back(candidate.version);
                }
                take_room(rank, loaded && found.front().parts == parts ? loaded : std::nullopt);
            }
        }
        truth_[{history, round_}] = parts;
    }

    /// A version that may be loaded is not given up before a later one is kept. `own`: the loaded
    /// version, if it has the same parts as this round. The room then has it, or the memory into
    /// which it came from another node.
    void take_room(Rank& rank, const std::optional<Version>& own) {
        auto room = rank.node->shelf->room({.id = rank.id, .bytes = kBytes});
        ASSERT_TRUE(room) << room.error().detail;
        rank.in_flight = own;
        if (own && (*room)->find(*own)) {
            rank.room = *room;
            return;
        }
        if (!slot_for_save((*room)->contents(), rank.pending, {})) {
            ++counts_["second rooms"];
            room = rank.node->shelf->room({.id = rank.id, .bytes = kBytes, .fresh = true});
            ASSERT_TRUE(room) << room.error().detail;
        }
        rank.room = *room;
        if (own && !rank.node->shelf->has(rank.id, *own, Holding::Place::copy)) {
            ++counts_["adopted"];
            rank.node->shelf->adopt(rank.id, *own, *rank.node->shelf->scratch(kBytes));
            copied_parts_[*own].insert(rank.id.part);
        } else if (own) {
            const auto slot = slot_for_save(rank.room->contents(), rank.pending, {});
            ASSERT_TRUE(slot);
            rank.room->withdraw(*slot);
            rank.room->publish(*slot, *own, kBytes);
        }
    }

    void save(Rank& rank, bool is_zombie) {
        if (rank.saving_into) {  // Ends now.
            rank.room->publish(*rank.saving_into, rank.next, kBytes);
            saved_[rank.next].insert(rank.id.part);
            rank.saving_into.reset();
            rank.pending.push_back(rank.next);
            rank.in_flight = rank.next;
            ++rank.next.step;
            ++counts_[is_zombie ? "saves of zombies" : "saves"];
            return;
        }
        const auto slot = slot_for_save(rank.room->contents(), rank.pending, rank.kept);
        if (slot && !rank.in_flight) {
            rank.room->withdraw(*slot);
            rank.saving_into = slot;
        }
    }

    [[nodiscard]] bool was_saved_by_all(const Version& version) const {
        const auto found = saved_.find(version);
        return found != saved_.end() &&
               found->second.size() == truth_.at({version.history, version.round});
    }

    [[nodiscard]] bool is_kept(const Version& version) const {
        const auto found = copied_parts_.find(version);
        // Versions of the round before are copied anew: nodes may be other ones.
        return was_saved_by_all(version) &&
               (nodes_.size() == 1 ||
                (found != copied_parts_.end() && found->second == saved_.at(version)));
    }

    void learn(Rank& rank) {
        for (const Version version : rank.pending) {
            if (was_saved_by_all(version)) {
                known_whole_ = std::max(known_whole_.value_or(Version{}), version);
                rank.node->shelf->set_whole(kState, version, Shelf::Teller::worker);
            }
            if (is_kept(version) && (!rank.kept || *rank.kept < version)) {
                rank.node->shelf->set_kept(rank.id, version);
                rank.kept = version;
                rank.in_flight.reset();
                std::erase_if(rank.pending, [&](const Version& v) { return v <= version; });
                ++counts_["versions known to be kept"];
                return;
            }
        }
    }

    [[nodiscard]] std::shared_ptr<Node> holder_for(const std::shared_ptr<Node>& node) const {
        const auto at = std::find(nodes_.begin(), nodes_.end(), node);
        if (nodes_.size() < 2 || at == nodes_.end()) {
            return nullptr;
        }
        const auto place = static_cast<std::size_t>(at - nodes_.begin());
        return nodes_[(place + nodes_.size() / 2) % nodes_.size()];
    }

    void begin_copy(Rank& rank) {
        const auto to = holder_for(rank.node);
        if (!to || !rank.in_flight || !rank.room->find(*rank.in_flight)) {
            return;
        }
        const Version version = *rank.in_flight;
        auto image = to->shelf->begin_copy(rank.id, version, kBytes);
        if (image && *image) {
            transfers_.push_back({to, rank.id, version, *image});
        } else if (image && to->shelf->has(rank.id, version, Holding::Place::copy)) {
            copied_parts_[version].insert(rank.id.part);
        } else if (!image && gives_up_) {
            copied_parts_[version].insert(rank.id.part);
            ++counts_["copies given up"];
        }
    }

    void end_copy() {
        if (transfers_.empty()) {
            return;
        }
        const auto which = static_cast<std::ptrdiff_t>(below(transfers_.size()));
        const Transfer transfer = transfers_[static_cast<std::size_t>(which)];
        transfers_.erase(std::next(transfers_.begin(), which));
        copied_parts_[transfer.version].insert(transfer.id.part);
        transfer.to->shelf->keep_copy(transfer.id, transfer.version, transfer.image);
        ++counts_["copies"];
    }

    void lose_node() {
        if (nodes_.size() < 2) {
            return;
        }
        ++counts_["nodes lost"];
        const std::shared_ptr<Node> lost = any_of(nodes_);
        std::erase(nodes_, lost);
        std::erase_if(transfers_, [&](const Transfer& each) { return each.to == lost; });
        if (below(2) == 0) {
            // It is only out of reach. Its workers go on, and it comes back with what it has.
            away_.push_back(lost);
            std::copy_if(ranks_.begin(), ranks_.end(), std::back_inserter(zombies_),
                         [&](const Rank& rank) { return rank.node == lost; });
        }
        known_whole_ = copied_;
        copied_.reset();
        begin_round();
    }

    void come_back() {
        ++counts_["nodes back"];
        const std::shared_ptr<Node> back = any_of(away_);
        std::erase(away_, back);
        std::erase_if(zombies_, [&](const Rank& rank) { return rank.node == back; });
        nodes_.push_back(back);
        begin_round();
    }

    void happen() {
        const std::uint32_t dice = below(1000);
        if (dice < 450) {
            save(any_of(ranks_), false);
        } else if (dice < 480 && !zombies_.empty()) {
            save(any_of(zombies_), true);
        } else if (dice < 700) {
            learn(any_of(ranks_));
        } else if (dice < 820) {
            begin_copy(any_of(ranks_));
        } else if (dice < 960) {
            end_copy();
        } else if (dice < 975) {
            ++counts_["workers lost"];
            begin_round();
        } else if (dice < 988) {
            lose_node();
        } else if (nodes_.size() < kNodesMax && !away_.empty() && below(2) == 0) {
            come_back();
        } else if (nodes_.size() < kNodesMax) {
            ++counts_["nodes joined"];
            add_node();
            begin_round();
        }
    }

    /// Without further losses, some version of this round is kept soon. Where the holder has no
    /// place for a copy, the agent gives up after some time.
    void expect_progress() {
        for (int i = 0; i < 8; ++i) {
            gives_up_ = i >= 4;
            for (Rank& rank : ranks_) {
                save(rank, false);
                save(rank, false);
            }
            for (Rank& rank : ranks_) {
                begin_copy(rank);
            }
            while (!transfers_.empty()) {
                end_copy();
            }
            for (Rank& rank : ranks_) {
                learn(rank);
            }
        }
        for (const Rank& rank : ranks_) {
            EXPECT_TRUE(rank.kept && rank.kept->round == round_) << "part " << rank.id.part;
        }
    }

    /// The newest version that is whole, and of which each part is on two nodes.
    void note_copied() {
        for (const Candidate& candidate : offered(nodes_)) {
            bool is_copied = true;
            for (std::uint32_t part = 0; part < candidate.parts; ++part) {
                const std::vector<Source> sources = candidate.sources(part);
                is_copied = is_copied && std::ranges::any_of(sources, [&](const Source& source) {
                                return source.node != sources.front().node;
                            });
            }
            if (is_copied && known_whole_ && candidate.version <= *known_whole_) {
                copied_ = std::max(copied_.value_or(Version{}), candidate.version);
                return;
            }
        }
    }

    void check() {
        const auto newest_without = [&](const std::shared_ptr<Node>& lost) {
            std::vector<std::shared_ptr<Node>> left = nodes_;
            std::erase(left, lost);
            const auto found = offered(left);
            return found.empty() ? std::optional<Version>() : std::optional(found.front().version);
        };
        for (const Candidate& candidate : offered(nodes_)) {
            ASSERT_TRUE(was_saved_by_all(candidate.version)) << to_string(candidate.version);
        }
        if (known_whole_) {
            const auto newest = newest_without(nullptr);
            ASSERT_TRUE(newest && *newest >= *known_whole_) << to_string(*known_whole_);
        }
        note_copied();
        for (const auto& node : nodes_) {
            if (copied_ && nodes_.size() > 1) {
                const auto newest = newest_without(node);
                ASSERT_TRUE(newest && *newest >= *copied_)
                    << to_string(*copied_) << " without node " << node->id;
            }
        }
    }

    std::mt19937 random_;
    std::uint32_t nodes_added_ = 0;
    std::uint64_t round_ = 0;
    std::uint64_t histories_ = 0;
    std::uint32_t workers_ = 2;
    std::vector<std::shared_ptr<Node>> nodes_;
    std::vector<std::shared_ptr<Node>> away_;
    std::vector<Rank> ranks_;
    std::vector<Rank> zombies_;
    std::vector<Transfer> transfers_;
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> truth_;  // Parts of a round.
    std::map<Version, std::set<std::uint32_t>> saved_;
    std::map<Version, std::set<std::uint32_t>> copied_parts_;
    bool gives_up_ = false;
    std::optional<Version> known_whole_;
    std::optional<Version> copied_;
    std::map<std::string, int> counts_;
};

TEST(SnapshotModel, NoWholeVersionIsLostAndNoOtherIsOffered) {
    constexpr std::uint32_t kSeeds = 100;
    std::map<std::string, int> total;
    for (std::uint32_t seed = 1; seed <= kSeeds && !HasFailure(); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        History history(seed);
        history.run(600);
        for (const auto& [name, count] : history.counts()) {
            total[name] += count;
        }
    }
    for (const auto& [name, count] : total) {
        RecordProperty(name, count);
        EXPECT_TRUE(HasFailure() || count > 0) << name;
    }
}

}  // namespace
}  // namespace regroup::snapshot
