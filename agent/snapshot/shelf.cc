// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshot/shelf.h"

#include <algorithm>
#include <utility>

#include "agent/health/findings.h"
#include "rendezvous/cgroup/cgroup.h"

namespace regroup::agent {

using snapshot::Holding;
using snapshot::PartId;
using snapshot::Room;
using snapshot::Version;

void Shelf::begin_round(std::uint64_t round, bool has_other_nodes) {
    const std::lock_guard lock(mutex_);
    round_ = round;
    copies_.forget_spares();
    has_other_nodes_ = has_other_nodes;
}

// ---- Memory.

std::uint64_t Shelf::bytes_locked(Counted counted) const {
    std::uint64_t charged = pending_;
    std::uint64_t reserve = 0;
    for (const auto& [id, entries] : rooms_) {
        for (const RoomEntry& entry : entries) {
            if (counted == Counted::all || entry.round >= round_) {
                charged += entry.charge - entry.reserve;
                reserve += entry.reserve;
            }
        }
    }
    return counted == Counted::all ? charged + scratch_.bytes() + std::max(reserve, copies_.bytes())
                                   : charged + std::max(reserve, copies_.bytes(round_));
}

std::uint64_t Shelf::bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_locked();
}

Failure Shelf::too_large(std::uint64_t wanted, const std::string& what) const {
    const std::uint64_t used = bytes_locked(Counted::this_round);
    return {Errc::overloaded,
            what + " take " + health::bytes_text(wanted) + " of memory, and this node has " +
                health::bytes_text(limits_.bytes_max - std::min(limits_.bytes_max, used)) +
                " left of the " + health::bytes_text(limits_.bytes_max) +
                " for snapshots; raise --snapshot-memory, or save less"};
}

Result<std::shared_ptr<ImageMemory>> Shelf::scratch(std::uint64_t bytes) {
    Result<std::shared_ptr<ImageMemory>> image = ImageMemory::create(bytes);
    if (!image) {
        return image;
    }
    const std::lock_guard lock(mutex_);
    // The program cannot go on without it, so only the memory of the node is a limit.
    if (bytes_locked() + bytes > limits_.bytes_max && bytes > cgroup::node_memory_left() / 10 * 9) {
        return too_large(bytes, "the bytes of a snapshot that is read");
    }
    scratch_.add(*image);
    return image;
}

// ---- Rooms.

Shelf::RoomEntry Shelf::charge_for(std::uint64_t bytes, bool replicated) const {
    RoomEntry entry;
    entry.reserve = has_other_nodes_ && !replicated ? snapshot::kSlotsCount * bytes : 0;
    entry.charge = snapshot::kRoomPageBytes + snapshot::kSlotsCount * bytes + entry.reserve +
                   (limits_.has_folder ? bytes : 0);
    entry.replicated = replicated;
    return entry;
}

bool Shelf::fits_locked(std::uint64_t room_bytes) const {
    return bytes_locked() + room_bytes <= limits_.bytes_max ||
           (bytes_locked(Counted::this_round) + room_bytes <= limits_.bytes_max &&
            room_bytes <= cgroup::node_memory_left() / 10 * 9);
}

Result<std::shared_ptr<Room>> Shelf::room(const snapshot::RoomWanted& wanted) {
    const std::uint64_t bytes = wanted.bytes + wanted.spare;
    RoomEntry entry;
    {
        const std::lock_guard lock(mutex_);
        if (const auto found = rooms_.find(wanted.id);
            !wanted.fresh && found != rooms_.end() &&
            found->second.back().room->slot_bytes() >= wanted.bytes) {
            found->second.back().round = round_;
            return found->second.back().room;
        }
        entry = charge_for(bytes, wanted.replicated);
        if (!fits_locked(entry.charge)) {
            return too_large(
                entry.charge,
                "the snapshots of part " + std::to_string(wanted.id.part) + " (" +
                    health::bytes_text(bytes) + " each, twice" +
                    (limits_.has_folder ? ", once more for the writing of the folder" : "") +
                    (entry.reserve > 0 ? ", and twice for copies of another node" : "") + ")");
        }
        pending_ += entry.charge;
    }
    Result<std::shared_ptr<Room>> made = Room::create(bytes);
    const std::lock_guard lock(mutex_);
    pending_ -= entry.charge;
    if (!made) {
        return made.error();
    }
    entry.room = *made;
    entry.round = round_;
    rooms_[wanted.id].push_back(std::move(entry));
    return made;
}

// ---- What there is.

std::vector<HeldPart> Shelf::parts() const {
    const std::lock_guard lock(mutex_);
    std::vector<HeldPart> parts;
    for (const auto& [id, entries] : rooms_) {
        for (const RoomEntry& entry : entries) {
            for (const snapshot::SlotContent& content : entry.room->contents()) {
                parts.push_back(
                    {id, content.version, Holding::Place::room, content.bytes, entry.replicated});
            }
        }
    }
    for (const auto& [id, held] : copies_.all()) {
        for (const HeldCopies::Copy& copy : held) {
            parts.push_back({id, copy.version, Holding::Place::copy, copy.image->size(), false});
        }
    }
    return parts;
}

std::optional<ImageRef> Shelf::find(const PartId& id, const Version& version,
                                    Holding::Place place) const {
    const std::lock_guard lock(mutex_);
    if (const auto found = rooms_.find(id);
        place == Holding::Place::room && found != rooms_.end()) {
        for (auto entry = found->second.rbegin(); entry != found->second.rend(); ++entry) {
            const Room& room = *entry->room;
            if (const auto content = room.find(version)) {
                return ImageRef{entry->room, room.fd(),
                                snapshot::kRoomPageBytes + content->slot * room.slot_bytes(),
                                room.image(*content)};
            }
        }
    }
    if (const auto* copy = copies_.find(id, version);
        place == Holding::Place::copy && copy != nullptr) {
        return ImageRef{copy->image, copy->image->fd(), 0, copy->image->bytes()};
    }
    return std::nullopt;
}

std::optional<ImageRef> Shelf::lend(const PartId& id, const Version& version,
                                    Holding::Place place) {
    {
        const std::lock_guard lock(mutex_);
        if (place == Holding::Place::copy) {
            copies_.lend(id, version);
        }
    }
    return find(id, version, place);
}

// ---- Whole and kept versions.

bool Shelf::set_whole(const std::string& state, const Version& version, Teller teller) {
    const std::lock_guard lock(mutex_);
    KnownVersions& known = known_[state];
    if (teller == Teller::worker && known.told_in != round_) {
        known.told_in = round_;
        known.loadable.clear();
        known.whole.reset();
    }
    if (teller == Teller::worker) {
        known.loadable.insert(version);
    }
    if (known.whole >= version) {
        return false;
    }
    known.whole = version;
    return true;
}

void Shelf::set_kept(const PartId& id, const Version& version) {
    const std::lock_guard lock(mutex_);
    KnownVersions& known = known_[id.name];
    if (known.kept && *known.kept >= version) {
        return;
    }
    known.kept = version;
    known.whole = std::max(known.whole.value_or(version), version);
    drop_rooms(id.name, version);
    copies_.drop(id, version, round_);
}

KnownVersions Shelf::known_locked(const std::string& state) const {
    const auto found = known_.find(state);
    return found != known_.end() ? found->second : KnownVersions();
}

std::optional<Version> Shelf::whole(const std::string& state) const {
    const std::lock_guard lock(mutex_);
    return known_locked(state).whole;
}

std::optional<std::string> Shelf::latest_state() const {
    const std::lock_guard lock(mutex_);
    const auto latest = std::max_element(
        known_.begin(), known_.end(),
        [](const auto& a, const auto& b) { return a.second.whole < b.second.whole; });
    return latest != known_.end() && latest->second.whole ? std::optional(latest->first)
                                                          : std::nullopt;
}

std::optional<Version> Shelf::kept(const std::string& state) const {
    const std::lock_guard lock(mutex_);
    return known_locked(state).kept;
}

void Shelf::note_copied(const PartId& id, const Version& version, bool in_vain) {
    const std::lock_guard lock(mutex_);
    if (holds_ > 0) {
        held_back_.push_back({id, version, in_vain});
    } else {
        note_copied_locked({id, version, in_vain});
    }
}

Shelf::Hold::Hold(std::shared_ptr<Shelf> shelf) : shelf_(std::move(shelf)) {
    const std::lock_guard lock(shelf_->mutex_);
    ++shelf_->holds_;
}

Shelf::Hold::~Hold() {
    const std::lock_guard lock(shelf_->mutex_);
    if (--shelf_->holds_ == 0) {
        for (const Copied& copied : std::exchange(shelf_->held_back_, {})) {
            shelf_->note_copied_locked(copied);
        }
    }
}

void Shelf::note_copied_locked(const Copied& copied) {
    if (const auto found = rooms_.find(copied.id); found != rooms_.end()) {
        for (const RoomEntry& entry : found->second) {
            entry.room->note_copied(copied.version, copied.in_vain);
        }
    }
}

void Shelf::drop_rooms(const std::string& state, const Version& kept) {
    const auto latest = [](const RoomEntry& entry) {
        const auto contents = entry.room->contents();
        return contents.empty() ? Version{} : contents.front().version;
    };
    for (auto& [id, entries] : rooms_) {
        if (id.name != state) {
            continue;
        }
        const bool is_replaced = latest(entries.back()) >= kept;
        const RoomEntry* const present = &entries.back();
        std::erase_if(entries, [&](const RoomEntry& entry) {
            // No worker of this round uses it, or it has another room since.
            const bool is_unused = entry.round < round_ || (&entry != present && is_replaced);
            return is_unused && latest(entry) < kept;
        });
    }
    std::erase_if(rooms_, [](const auto& each) { return each.second.empty(); });
}

// ---- Copies.

Result<std::shared_ptr<ImageMemory>> Shelf::begin_copy(const PartId& id, const Version& version,
                                                       std::uint64_t bytes) {
    Result<std::shared_ptr<ImageMemory>> image = ImageMemory::create(bytes);
    if (!image) {
        return image;
    }
    {
        const std::lock_guard lock(mutex_);
        const Result<bool> has_place = copies_.make_place(id, version, known_locked(id.name));
        if (!has_place) {
            return has_place.error();
        }
        if (!*has_place) {
            return std::shared_ptr<ImageMemory>();
        }
        if (auto spare = copies_.take_spare(id, bytes)) {
            copies_.begin(spare);
            return spare;
        }
        // A room has reserved its bytes already. More must fit.
        const std::uint64_t before = bytes_locked();
        copies_.begin(*image);
        if (bytes_locked() > std::max(before, limits_.bytes_max)) {
            copies_.cancel(*image);
            return too_large(bytes, "copies of another node's part");
        }
    }
    if (Result<void> allocated = (*image)->allocate(); !allocated) {
        return allocated.error();
    }
    return image;
}

void Shelf::keep_copy(const PartId& id, const Version& version,
                      std::shared_ptr<ImageMemory> image) {
    const std::lock_guard lock(mutex_);
    copies_.keep(id, version, std::move(image), round_, known_locked(id.name));
}

void Shelf::adopt(const PartId& id, const Version& version, std::shared_ptr<ImageMemory> image) {
    const std::lock_guard lock(mutex_);
    scratch_.remove(image);
    // As what an earlier round has left.
    copies_.keep(id, version, std::move(image), 0, known_locked(id.name));
    copies_.lend(id, version);
}

}  // namespace regroup::agent
