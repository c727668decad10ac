// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/snapshot/held_copies.h"
#include "agent/snapshot/image_memory.h"
#include "rendezvous/snapshot/holdings.h"
#include "rendezvous/snapshot/room.h"
#include "rendezvous/snapshot/version.h"

namespace regroup::agent {

/// An image in memory that exists as long as `owner`. One in a room may be overwritten by its
/// worker at any time: Shelf::has() says whether it still was there.
struct ImageRef {
    std::shared_ptr<const void> owner;
    int fd = -1;
    std::uint64_t offset = 0;  ///< In the file.
    std::span<const std::byte> bytes;
};

/// One part in memory, as for holdings.
struct HeldPart {
    snapshot::PartId id;
    snapshot::Version version;
    snapshot::Holding::Place place = snapshot::Holding::Place::room;
    std::uint64_t bytes = 0;
    bool replicated = false;
};

/// The snapshots that this node has in memory: the rooms of its workers and the copies of parts of
/// another node. Keeps them within a limit, and gives up those that later ones replace. Any thread;
/// `room`, and nothing else, may take as long as the kernel needs to give the memory.
class Shelf {
   public:
    struct Limits {
        std::uint64_t bytes_max = 0;
        /// The folder is written from a copy in memory, so that workers can save meanwhile: each
        /// room needs the memory of a third slot.
        bool has_folder = false;
    };
    explicit Shelf(Limits limits) : limits_(limits) {}

    void begin_round(std::uint64_t round, bool has_other_nodes);

    /// See snapshot::Ask::Kind::room. The remains of earlier rounds may be beyond the limit until
    /// a version of this round is kept, if the node has the memory. Errors: overloaded, with both
    /// numbers and the flag, if the memory is beyond the limit; system.
    Result<std::shared_ptr<snapshot::Room>> room(const snapshot::RoomWanted& wanted);

    [[nodiscard]] std::vector<HeldPart> parts() const;
    [[nodiscard]] std::optional<ImageRef> find(const snapshot::PartId& id,
                                               const snapshot::Version& version,
                                               snapshot::Holding::Place place) const;
    /// As find(), for a worker, which may read it for as long as it likes.
    [[nodiscard]] std::optional<ImageRef> lend(const snapshot::PartId& id,
                                               const snapshot::Version& version,
                                               snapshot::Holding::Place place);
    [[nodiscard]] bool has(const snapshot::PartId& id, const snapshot::Version& version,
                           snapshot::Holding::Place place) const {
        return find(id, version, place).has_value();
    }

    enum class Teller : std::uint8_t { worker, agent };
    /// Every rank has saved `version`. In a round, workers first tell what can be loaded of earlier
    /// rounds: all else is lost. False if a later one is known.
    bool set_whole(const std::string& state, const snapshot::Version& version, Teller teller);
    [[nodiscard]] std::optional<snapshot::Version> whole(const std::string& state) const;
    /// The state with the latest whole version.
    [[nodiscard]] std::optional<std::string> latest_state() const;
    /// The version is whole, and each part of it has its copy: gives up what is earlier. `id` has
    /// the number of its parts.
    void set_kept(const snapshot::PartId& id, const snapshot::Version& version);
    [[nodiscard]] std::optional<snapshot::Version> kept(const std::string& state) const;
    /// Another node has a copy of what is in the room, or none is to be made, or the worker is to
    /// go on without it (`in_vain`): tells the worker, unless there is a Hold.
    void note_copied(const snapshot::PartId& id, const snapshot::Version& version,
                     bool in_vain = false);
    /// While there is one, workers do not hear that their parts are copied. So no later version is
    /// kept, and no worker of any node overwrites the last two versions.
    class Hold {
       public:
        explicit Hold(std::shared_ptr<Shelf> shelf);
        ~Hold();
        Hold(const Hold&) = delete;
        Hold& operator=(const Hold&) = delete;

       private:
        std::shared_ptr<Shelf> shelf_;
    };

    /// Memory for a copy of another node's part, after those that it replaces were given up. Null:
    /// the copy is here. Errors: overloaded, if both copies of the part are still needed, or the
    /// memory is beyond the limit.
    Result<std::shared_ptr<ImageMemory>> begin_copy(const snapshot::PartId& id,
                                                    const snapshot::Version& version,
                                                    std::uint64_t bytes);
    /// The copy is complete and verified.
    void keep_copy(const snapshot::PartId& id, const snapshot::Version& version,
                   std::shared_ptr<ImageMemory> image);

    /// A worker has loaded this part, which was fetched into memory of `scratch`: it is kept until
    /// a later version is kept.
    void adopt(const snapshot::PartId& id, const snapshot::Version& version,
               std::shared_ptr<ImageMemory> image);

    /// Memory for an image that workers read, or that is written to the folder; not allocated yet.
    /// It may go beyond the limit if the node has the memory. Errors: overloaded.
    Result<std::shared_ptr<ImageMemory>> scratch(std::uint64_t bytes);

    /// All that is counted against the limit.
    [[nodiscard]] std::uint64_t bytes() const;
    [[nodiscard]] std::uint64_t bytes_max() const noexcept { return limits_.bytes_max; }

   private:
    struct RoomEntry {
        std::shared_ptr<snapshot::Room> room;
        std::uint64_t round = 0;  ///< In which it was last asked for.
        std::uint64_t charge = 0;
        std::uint64_t reserve = 0;  ///< Part of `charge`, for copies of another node's part.
        bool replicated = false;
    };
    enum class Counted { all, this_round };
    /// With `this_round`: without what goes once a version of this round is kept, or is not for
    /// long.
    [[nodiscard]] std::uint64_t bytes_locked(Counted counted = Counted::all) const;
    [[nodiscard]] bool fits_locked(std::uint64_t room_bytes) const;
    [[nodiscard]] Failure too_large(std::uint64_t wanted, const std::string& what) const;
    [[nodiscard]] RoomEntry charge_for(std::uint64_t bytes, bool replicated) const;
    void drop_rooms(const std::string& state, const snapshot::Version& kept);
    struct Copied {
        snapshot::PartId id;
        snapshot::Version version;
        bool in_vain = false;
    };
    void note_copied_locked(const Copied& copied);
    [[nodiscard]] KnownVersions known_locked(const std::string& state) const;

    const Limits limits_;
    mutable std::mutex mutex_;
    // All below are guarded by it.
    std::uint64_t round_ = 0;
    bool has_other_nodes_ = false;
    std::map<snapshot::PartId, std::vector<RoomEntry>> rooms_;  ///< The present one last.
    HeldCopies copies_;
    std::map<std::string, KnownVersions> known_;  ///< By the name of the state.
    int holds_ = 0;
    std::vector<Copied> held_back_;  ///< Meanwhile.
    std::uint64_t pending_ = 0;      ///< Of rooms that are being made.
    LentImages scratch_;
};

}  // namespace regroup::agent
