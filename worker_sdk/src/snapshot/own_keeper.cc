// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "rendezvous/base/printable.h"
#include "rendezvous/snapshot/folder.h"
#include "rendezvous/snapshot/image.h"
#include "worker_sdk/src/base/control_group.h"
#include "worker_sdk/src/base/helper_thread.h"
#include "worker_sdk/src/snapshot/keeper.h"

namespace regroup::snapshot {
namespace {

/// How long a program waits for its disk before it looks for what is there, or ends.
constexpr Duration kDiskLimit = std::chrono::minutes(5);

std::string host_name() {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    return name.data();
}

/// A process without an agent: the room is memory of this process, and a thread writes whole
/// versions to the folder. Others find what is in the folder.
class OwnKeeper final : public Keeper {
   public:
    explicit OwnKeeper(const std::string& folder) {
        if (!folder.empty()) {
            folder_.emplace(folder);
        }
    }
    ~OwnKeeper() override;

    std::shared_ptr<Room> room(const RoomWanted& wanted) override;
    void settle() override {
        std::unique_lock lock(mutex_);
        static_cast<void>(await_idle(lock, after(now(), kDiskLimit)));
    }
    Announcement holdings(const std::string& name) override;
    Result<HeldImage> image(const Wanted& wanted) override;
    bool adopt(const Wanted& /*wanted*/) override { return false; }
    bool saved(const PartId& /*id*/, const Version& /*version*/) override { return false; }
    void whole(const PartId& id, const Version& version, bool write) override;
    void kept(const PartId& /*id*/, const Version& /*version*/) override {}
    Copied is_copied(const Version& /*version*/) override { return Copied::yes; }
    bool outlives_process() const noexcept override { return false; }
    void copies_to(const std::string& /*name*/, const std::string& /*endpoint*/) override {}
    bool await_unread(std::size_t slot, Instant deadline) override;

   private:
    struct Work {
        PartId id{};
        Version version{};
        std::shared_ptr<Room> room{};
        std::size_t slot = 0;
    };
    void write_until_stopped();
    void write(const Work& work);
    [[nodiscard]] bool await_idle(std::unique_lock<std::mutex>& lock, Instant deadline) {
        return changed_.wait_until(lock, deadline, [this] { return !next_ && !current_; });
    }

    std::optional<Folder> folder_;
    std::mutex mutex_;
    std::condition_variable changed_;
    // Guarded by mutex_.
    std::vector<std::shared_ptr<Room>> rooms_;  ///< The one in use is the last.
    std::optional<Work> next_;     ///< A later version takes the place of one that waits.
    std::optional<Work> current_;  ///< Is being written.
    bool is_over_ = false;
    std::thread writer_;
};

OwnKeeper::~OwnKeeper() {
    std::unique_lock lock(mutex_);
    static_cast<void>(await_idle(lock, after(now(), kDiskLimit)));
    is_over_ = true;
    lock.unlock();
    changed_.notify_all();
    if (writer_.joinable()) {
        writer_.join();
    }
}

std::shared_ptr<Room> OwnKeeper::room(const RoomWanted& wanted) {
    const std::uint64_t bytes = wanted.bytes + wanted.spare;
    const std::uint64_t needed = kSlotsCount * bytes;
    const std::uint64_t left = available_memory_bytes();
    if (needed > left) {
        throw Error(Errc::system, "part " + std::to_string(wanted.id.part) +
                                      " of the snapshots needs " + std::to_string(needed) +
                                      " bytes for two versions, and " + std::to_string(left) +
                                      " bytes of memory are left");
    }
    Result<std::shared_ptr<Room>> made = Room::create(bytes);
    if (!made) {
        throw Error(made.error().code, made.error().detail);
    }
    const std::lock_guard lock(mutex_);
    rooms_.push_back(*made);
    return *made;
}

Announcement OwnKeeper::holdings(const std::string& name) {
    Announcement announcement;
    announcement.name = host_name();
    if (folder_) {
        announcement.holdings = folder_->list(name);
    }
    return announcement;
}

Result<HeldImage> OwnKeeper::image(const Wanted& wanted) {
    if (!folder_ || wanted.place != Holding::Place::folder) {
        return Failure(Errc::overloaded, "no folder of this process has it");
    }
    Result<MappedFile> file = MappedFile::open(folder_->file_of(wanted.id, wanted.version));
    if (!file) {
        return file.error();
    }
    const auto held = std::make_shared<MappedFile>(std::move(*file));
    const std::span<const std::byte> all = held->bytes();
    const std::uint64_t begin = std::min<std::uint64_t>(wanted.begin, all.size());
    const std::uint64_t left = all.size() - begin;
    return HeldImage{held,
                     all.subspan(begin, wanted.bytes == 0 ? left : std::min(wanted.bytes, left))};
}

void OwnKeeper::whole(const PartId& id, const Version& version, bool /*write*/) {
    const std::lock_guard lock(mutex_);
    if (!folder_) {
        return;
    }
    const auto has_it = [&](const auto& room) { return room->find(version).has_value(); };
    const auto room = std::find_if(rooms_.begin(), rooms_.end(), has_it);
    if (room == rooms_.end()) {
        return;
    }
    next_ = Work{id, version, *room, (*room)->find(version)->slot};
    rooms_.erase(rooms_.begin(), room);  // Smaller ones, with earlier versions.
    if (!writer_.joinable()) {
        writer_ = start_helper_thread("regroup-disk", [this] { write_until_stopped(); });
    }
    changed_.notify_all();
}

bool OwnKeeper::await_unread(std::size_t slot, Instant deadline) {
    std::unique_lock lock(mutex_);
    const auto is_read = [&](const std::optional<Work>& work) {
        return work && work->room == rooms_.back() && work->slot == slot;
    };
    return changed_.wait_until(lock, deadline,
                               [&] { return !is_read(next_) && !is_read(current_); });
}

void OwnKeeper::write_until_stopped() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return is_over_ || next_; });
        if (is_over_) {
            return;
        }
        current_ = std::exchange(next_, std::nullopt);
        lock.unlock();
        write(*current_);
        lock.lock();
        current_.reset();
        changed_.notify_all();
    }
}

void OwnKeeper::write(const Work& work) {
    const auto content = work.room->find(work.version);
    if (!content) {
        return;
    }
    const auto image = work.room->image(*content);
    const Result<ImageHeader> verified = verify_image(image);
    const Result<void> written =
        verified ? folder_->write(work.id, work.version, image)
                 : Result<void>(Failure(verified.error().code,
                                        "the memory of the snapshot " + verified.error().detail));
    if (!written) {
        std::fprintf(stderr, "regroup: snapshot \"%s\", %s, is not written: %s\n",
                     work.id.name.c_str(), to_string(work.version).c_str(),
                     printable(written.error().detail).c_str());
    } else if (work.id.part == 0) {
        folder_->prune(work.id.name);
    }
}

}  // namespace

std::unique_ptr<Keeper> make_own_keeper(const std::string& folder) {
    return std::make_unique<OwnKeeper>(folder);
}

}  // namespace regroup::snapshot
