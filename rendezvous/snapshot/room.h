// SPDX-License-Identifier: Apache-2.0
//
// The memory in which a worker saves its part of each version. The agent owns it (a memfd that
// cannot shrink), and it outlives the worker.
//
//     4096 bytes     RoomPage
//     slot_bytes     the first slot: an image (image.h)
//     slot_bytes     the second slot
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/files/unique_fd.h"
#include "rendezvous/snapshot/version.h"

namespace regroup::snapshot {

inline constexpr std::size_t kSlotsCount = 2;

/// The facts of a slot. The worker writes all of them but `copied`, and `number` last.
struct SlotPage {
    /// 0: the slot is empty or being written. Otherwise it is published; the later of the two has
    /// the greater number.
    std::atomic<std::uint64_t> number{0};
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::uint64_t> history{0};
    std::atomic<std::uint64_t> round{0};
    std::atomic<std::uint64_t> step{0};
    /// The agent writes it: the `number` of the content of which another node has a copy, or no
    /// copy is to be made; with kNoCopy if one was to be made in vain.
    std::atomic<std::uint64_t> copied{0};

    static constexpr std::uint64_t kNoCopy = std::uint64_t{1} << 63U;
};
struct RoomPage {
    std::array<SlotPage, kSlotsCount> slots{};
};
inline constexpr std::size_t kRoomPageBytes = 4096;
static_assert(sizeof(RoomPage) <= kRoomPageBytes);

/// The memory that a rank wants for the versions of its part.
struct RoomWanted {
    PartId id{};
    std::uint64_t bytes = 0;  ///< Each slot has as many, at least.
    std::uint64_t spare = 0;  ///< A new room has so many more: the part may grow.
    /// Each node has the same part, so that no other node need hold a copy.
    bool replicated = false;
    /// One more, also if there is one that is large enough. Those before keep their versions until
    /// a later one is kept.
    bool fresh = false;
};

/// A published slot, as one look at the room finds it.
struct SlotContent {
    std::size_t slot = 0;
    Version version{};
    std::uint64_t bytes = 0;
    bool is_copied = false;    ///< Another node has a copy, or the worker is to go on without.
    bool has_no_copy = false;  ///< Of these: a copy was to be made, in vain.
};

/// The slot that a worker may overwrite with its next version: an empty one, else the one that is
/// not needed. A version is *kept* if it is whole, and each part of it copied. `contents`: as of
/// Room::contents. `pending`: what this worker has saved without knowing yet whether it is kept;
/// `kept`: the newest version that it knows to be kept. Nothing if the worker must first learn
/// whether a pending version is kept.
[[nodiscard]] std::optional<std::size_t> slot_for_save(const std::vector<SlotContent>& contents,
                                                       const std::vector<Version>& pending,
                                                       const std::optional<Version>& kept);

/// A room, mapped into this process. One thread; a copy of the descriptor can be mapped by another
/// process.
class Room {
   public:
    /// A new room of 2 slots of `slot_bytes`, which are allocated now. Errors: system.
    static Result<std::shared_ptr<Room>> create(std::uint64_t slot_bytes);
    /// The room behind a descriptor that another process has made. Errors: invalid_argument if it
    /// is no room; system.
    static Result<std::shared_ptr<Room>> map(UniqueFd file);
    ~Room();
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;

    [[nodiscard]] int fd() const noexcept { return file_.get(); }
    [[nodiscard]] std::uint64_t slot_bytes() const noexcept { return slot_bytes_; }
    /// Of the room.
    [[nodiscard]] std::uint64_t bytes() const noexcept {
        return kRoomPageBytes + kSlotsCount * slot_bytes_;
    }

    /// The published slots, the latest first. Another process may write them: nothing in them is
    /// trusted but that each is within the slot.
    [[nodiscard]] std::vector<SlotContent> contents() const;
    /// The published slot with that version.
    [[nodiscard]] std::optional<SlotContent> find(const Version& version) const;
    /// All of the slot, or the image in it.
    [[nodiscard]] std::span<std::byte> slot(std::size_t index) const noexcept;
    [[nodiscard]] std::span<const std::byte> image(const SlotContent& content) const noexcept {
        return slot(content.slot).first(content.bytes);
    }

    /// The slot may be overwritten from now on: it counts as empty until it is published again.
    void withdraw(std::size_t slot) noexcept;
    /// The slot holds an image of `bytes` bytes, complete.
    void publish(std::size_t slot, const Version& version, std::uint64_t bytes) noexcept;
    /// For the agent: another node has a copy of that version, or no copy is to be made; or, with
    /// `in_vain`, the worker is to go on without the copy. False if no slot has it. Any thread.
    bool note_copied(const Version& version, bool in_vain = false) noexcept;

   private:
    Room(UniqueFd file, std::byte* memory, std::uint64_t slot_bytes) noexcept
        : file_(std::move(file)), memory_(memory), slot_bytes_(slot_bytes) {}
    [[nodiscard]] RoomPage& page() const noexcept;

    UniqueFd file_;
    std::byte* memory_;
    std::uint64_t slot_bytes_;
};

}  // namespace regroup::snapshot
