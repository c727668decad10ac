// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/snapshot/holdings.h"
#include "rendezvous/snapshot/room.h"
#include "rendezvous/snapshot/version.h"
#include "worker_sdk/src/base/round_scope.h"

namespace regroup::snapshot {

/// An image, or a range of one, which stays in memory while this object lives.
struct HeldImage {
    std::shared_ptr<const void> owner{};
    std::span<const std::byte> bytes{};
};

/// Keeps the parts of a state beyond the call that saves them: the agent of this worker, or this
/// process itself. Any thread; calls may block while another one is in progress.
class Keeper {
   public:
    Keeper() = default;
    virtual ~Keeper() = default;
    Keeper(const Keeper&) = delete;
    Keeper& operator=(const Keeper&) = delete;

    /// The memory for the versions of a part. Throws Error `system`, with both numbers, if that is
    /// beyond the limit.
    [[nodiscard]] virtual std::shared_ptr<Room> room(const RoomWanted& wanted) = 0;
    /// Waits until what this process has told is done, as far as `holdings` shows it.
    virtual void settle() = 0;
    /// The parts that this node has of the state.
    [[nodiscard]] virtual Announcement holdings(const std::string& name) = 0;

    struct Wanted {
        PartId id{};
        Version version{};
        Holding::Place place = Holding::Place::room;
        std::string endpoint{};   ///< Empty: on this node.
        std::uint64_t begin = 0;  ///< Of the bytes that are wanted.
        std::uint64_t bytes = 0;  ///< Or as many as there are; 0: all.
        bool patient = false;     ///< Waits for a node that cannot be reached.
    };
    /// Errors: a sentence about why there is none; `disconnected` if the node may have it, but
    /// cannot be reached.
    [[nodiscard]] virtual Result<HeldImage> image(const Wanted& wanted) = 0;

    /// The whole image that `image` gave for `wanted` is undamaged, and the part is this worker's:
    /// it stays where it is until a later version is kept. False: it does not.
    virtual bool adopt(const Wanted& wanted) = 0;

    /// The version is published in its room. True: it is time to write a version to the folder.
    virtual bool saved(const PartId& id, const Version& version) = 0;
    /// Every rank has saved the version. `write`: the folder is to have it.
    virtual void whole(const PartId& id, const Version& version, bool write) = 0;
    /// The version is whole, and each part of it copied: earlier ones may go.
    virtual void kept(const PartId& id, const Version& version) = 0;
    enum class Copied : std::uint8_t { no, yes, in_vain };
    /// `yes`: another node has a copy of the version that this process has saved, or no copy is to
    /// be made. `in_vain`: the training is to go on without the copy.
    [[nodiscard]] virtual Copied is_copied(const Version& version) = 0;
    /// True if the versions in memory outlive this process.
    [[nodiscard]] virtual bool outlives_process() const noexcept = 0;
    /// The agent at `endpoint` holds the copies of this node's parts; empty: none does.
    virtual void copies_to(const std::string& name, const std::string& endpoint) = 0;

    /// Waits until this process reads nothing from the slot. False: not until `deadline`.
    [[nodiscard]] virtual bool await_unread(std::size_t slot, Instant deadline) = 0;
};

/// The keeper of this process: the agent, if the process has one, else the process itself with
/// `folder`, which may be empty. Its calls throw Error `fenced` once `scope` is interrupted. Throws
/// Error if the agent refuses.
[[nodiscard]] std::unique_ptr<Keeper> make_keeper(const std::string& folder,
                                                  std::shared_ptr<RoundScope> scope);
[[nodiscard]] std::unique_ptr<Keeper> make_own_keeper(const std::string& folder);

}  // namespace regroup::snapshot
