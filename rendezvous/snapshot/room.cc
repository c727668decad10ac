// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/snapshot/room.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "rendezvous/base/ensure.h"

namespace regroup::snapshot {

namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kSlotBytesMax = std::uint64_t{1} << 48U;

std::byte* map_memory(int file, std::uint64_t bytes) {
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

}  // namespace

std::optional<std::size_t> slot_for_save(const std::vector<SlotContent>& contents,
                                         const std::vector<Version>& pending,
                                         const std::optional<Version>& kept) {
    std::optional<std::size_t> free;
    for (std::size_t slot = 0; slot < kSlotsCount; ++slot) {
        const auto content =
            std::find_if(contents.begin(), contents.end(),
                         [&](const SlotContent& each) { return each.slot == slot; });
        if (content == contents.end()) {
            return slot;
        }
        const bool is_pending =
            std::find(pending.begin(), pending.end(), content->version) != pending.end();
        const bool is_older =
            !free || std::any_of(contents.begin(), contents.end(), [&](const SlotContent& each) {
                return each.slot == *free && content->version < each.version;
            });
        if (!is_pending && content->version != kept && is_older) {
            free = slot;
        }
    }
    return free;
}

Result<std::shared_ptr<Room>> Room::create(std::uint64_t slot_bytes) {
    const std::uint64_t slot = (slot_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    if (slot == 0 || slot > kSlotBytesMax) {
        return invalid_argument("a snapshot of " + std::to_string(slot_bytes) +
                                " bytes is not possible");
    }
    const std::uint64_t bytes = kRoomPageBytes + kSlotsCount * slot;
    UniqueFd file(::memfd_create("regroup-snapshot", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file) {
        return system_failure("memfd_create", errno);
    }
    if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
        return system_failure("ftruncate of " + std::to_string(bytes) + " bytes of memory", errno);
    }
    // Now, and not when the worker first writes, where a shortage would kill it.
    if (::fallocate(file.get(), 0, 0, static_cast<off_t>(bytes)) != 0) {
        return system_failure("fallocate of " + std::to_string(bytes) + " bytes of memory", errno);
    }
    if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return system_failure("fcntl(F_ADD_SEALS)", errno);
    }
    std::byte* const memory = map_memory(file.get(), bytes);
    if (memory == nullptr) {
        return system_failure("mmap of a snapshot's memory", errno);
    }
    new (memory) RoomPage();
    return std::shared_ptr<Room>(new Room(std::move(file), memory, slot));
}

Result<std::shared_ptr<Room>> Room::map(UniqueFd file) {
    struct stat status{};
    if (::fstat(file.get(), &status) != 0) {
        return system_failure("fstat of a snapshot's memory", errno);
    }
    const auto bytes = static_cast<std::uint64_t>(std::max<off_t>(0, status.st_size));
    const int seals = ::fcntl(file.get(), F_GET_SEALS);
    const std::uint64_t slot = bytes < kRoomPageBytes ? 0 : (bytes - kRoomPageBytes) / kSlotsCount;
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || slot == 0 || slot % kPageBytes != 0 ||
        bytes != kRoomPageBytes + kSlotsCount * slot) {
        return invalid_argument("the descriptor is no memory for snapshots");
    }
    std::byte* const memory = map_memory(file.get(), bytes);
    if (memory == nullptr) {
        return system_failure("mmap of a snapshot's memory", errno);
    }
    return std::shared_ptr<Room>(new Room(std::move(file), memory, slot));
}

Room::~Room() {
    ::munmap(memory_, bytes());
}

RoomPage& Room::page() const noexcept {
    return *std::launder(reinterpret_cast<RoomPage*>(memory_));
}

std::vector<SlotContent> Room::contents() const {
    std::vector<std::pair<std::uint64_t, SlotContent>> found;
    for (std::size_t i = 0; i < kSlotsCount; ++i) {
        const SlotPage& slot = page().slots[i];
        const std::uint64_t number = slot.number.load(std::memory_order_acquire);
        const std::uint64_t copied = slot.copied.load();
        const SlotContent content{i,
                                  {slot.history.load(), slot.round.load(), slot.step.load()},
                                  slot.bytes.load(),
                                  (copied & ~SlotPage::kNoCopy) == number,
                                  (copied & SlotPage::kNoCopy) != 0};
        // With another number now, some of the fields may be those of another version.
        if (number != 0 && slot.number.load() == number && content.bytes <= slot_bytes_) {
            found.emplace_back(number, content);
        }
    }
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<SlotContent> contents;
    for (const auto& [number, content] : found) {
        contents.push_back(content);
    }
    return contents;
}

std::optional<SlotContent> Room::find(const Version& version) const {
    for (const SlotContent& content : contents()) {
        if (content.version == version) {
            return content;
        }
    }
    return std::nullopt;
}

std::span<std::byte> Room::slot(std::size_t index) const noexcept {
    ENSURE(index < kSlotsCount);
    return {memory_ + kRoomPageBytes + index * slot_bytes_, slot_bytes_};
}

void Room::withdraw(std::size_t slot) noexcept {
    page().slots.at(slot).number.store(0, std::memory_order_release);
    // No byte of the slot may change before this is visible.
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Room::publish(std::size_t slot, const Version& version, std::uint64_t bytes) noexcept {
    std::uint64_t latest = 0;
    for (const SlotPage& each : page().slots) {
        latest = std::max(latest, each.number.load());
    }
    SlotPage& content = page().slots.at(slot);
    content.bytes.store(bytes);
    content.history.store(version.history);
    content.round.store(version.round);
    content.step.store(version.step);
    content.number.store(latest + 1, std::memory_order_release);
}

bool Room::note_copied(const Version& version, bool in_vain) noexcept {
    for (SlotPage& slot : page().slots) {
        const std::uint64_t number = slot.number.load(std::memory_order_acquire);
        if (number != 0 &&
            version == Version{slot.history.load(), slot.round.load(), slot.step.load()}) {
            // If the worker has withdrawn the slot meanwhile, the number is no longer that of its
            // content.
            slot.copied.store(in_vain ? number | SlotPage::kNoCopy : number);
            return true;
        }
    }
    return false;
}

}  // namespace regroup::snapshot
