// SPDX-License-Identifier: Apache-2.0
//
// Which parts of a state exist where, and the choice of the version to load. All ranks have the
// same announcements and so make the same choice. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/snapshot/version.h"

namespace regroup::snapshot {

/// Parts of one version that exist on a node, one after the other.
struct Holding {
    enum class Place : std::uint8_t {
        room,    ///< Saved by a worker of this node, in memory.
        copy,    ///< Of another node's worker, in memory.
        folder,  ///< In a file of the folder for snapshots.
    };
    Place place = Place::room;
    std::uint32_t part = 0;   ///< The first of them.
    std::uint32_t parts = 1;  ///< Of the version.
    Version version{};
    std::uint32_t count = 1;  ///< How many are here.

    friend bool operator==(const Holding&, const Holding&) = default;
};
[[nodiscard]] std::string_view to_string(Holding::Place place) noexcept;
/// The same, with parts that follow each other in one element: all ranks get the lists of all
/// nodes, and a folder has the parts of all ranks.
[[nodiscard]] std::vector<Holding> joined(const std::vector<Holding>& holdings);

/// The parts that one node has of the state of one name.
struct Announcement {
    std::uint32_t node = 0;  ///< The node's group rank.
    std::string name{};      ///< Of the node, for people.
    std::string endpoint{};  ///< Of its agent, for other nodes: "10.0.0.2:4711"; empty: none.
    std::vector<Holding> holdings{};

    friend bool operator==(const Announcement&, const Announcement&) = default;
};
/// As JSON.
[[nodiscard]] std::string encode(const Announcement& announcement);
/// Errors: invalid_argument.
[[nodiscard]] Result<Announcement> decode_announcement(std::string_view text);

/// A place from which a part can be read.
struct Source {
    std::uint32_t node = 0;  ///< A group rank.
    Holding::Place place = Holding::Place::room;

    friend bool operator==(const Source&, const Source&) = default;
};
/// A version that is whole, if what is announced is right.
struct Candidate {
    struct Run {
        Source source{};
        std::uint32_t part = 0;  ///< The first.
        std::uint32_t count = 1;
    };
    Version version{};
    std::uint32_t parts = 1;
    std::vector<Run> runs{};  ///< Each part is in one at least.

    /// The sources of a part; at least one.
    [[nodiscard]] std::vector<Source> sources(std::uint32_t part) const;
    /// The same in the order in which `node` tries them: its own memory, the memory of
    /// other nodes, its own folder, those of other nodes.
    [[nodiscard]] std::vector<Source> order(std::uint32_t part, std::uint32_t node) const;
};
/// The candidates, the latest version first.
[[nodiscard]] std::vector<Candidate> candidates(const std::vector<Announcement>& announcements);

/// True if the bytes of `version` may be given up: a later version is whole, and `held` has that
/// one or a later one. `held`: versions of one part, in any order. `whole`: the latest version that
/// is known to be whole.
[[nodiscard]] bool may_give_up(const Version& version, const std::vector<Version>& held,
                               const std::optional<Version>& whole);

}  // namespace regroup::snapshot
