// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshot/snapshot_keeper.h"

#include <cerrno>
#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/post.hpp>

#include "agent/snapshot/channel_server.h"
#include "agent/snapshot/shelf.h"
#include "rendezvous/snapshot/folder.h"

namespace regroup::agent {

namespace {

using snapshot::Answer;
using snapshot::Ask;
using snapshot::Holding;
using Reply = ChannelServer::Reply;

Reply refusal(std::string why) {
    return {Answer{.error = std::move(why)}, {}};
}

UniqueFd copy_of(int fd) {
    return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

Reply with_file(int fd, std::uint64_t offset, std::uint64_t bytes) {
    Reply reply{Answer{.offset = offset, .bytes = bytes}, copy_of(fd)};
    if (!reply.file) {
        return refusal(system_failure("a descriptor for a snapshot", errno).detail);
    }
    return reply;
}

Reply with_text(const std::string& text) {
    UniqueFd file(::memfd_create("regroup-snapshots-held", MFD_CLOEXEC));
    const ssize_t written = file ? ::write(file.get(), text.data(), text.size()) : -1;
    if (written != static_cast<ssize_t>(text.size())) {
        return refusal(system_failure("memory for a list of snapshots", errno).detail);
    }
    return {Answer{.bytes = text.size()}, std::move(file)};
}

Reply with_file_at(const std::filesystem::path& path) {
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status{};
    if (!file || ::fstat(file.get(), &status) != 0) {
        return refusal(system_failure("open " + path.string(), errno).detail);
    }
    return {Answer{.bytes = static_cast<std::uint64_t>(status.st_size)}, std::move(file)};
}

std::uint64_t memory_max(const SnapshotOptions& options) {
    return options.memory_max.value_or(node_memory_left() / 2);
}

/// What the threads need to know of the round.
struct RoundFacts {
    std::uint32_t group_rank = 0;
    std::string endpoint{};  ///< Of this agent, for the others; empty: none.
};

}  // namespace

/// What there is from the first channel on.
struct Active {
    Active(const SnapshotOptions& options_in, std::string name_in)
        : options(options_in),
          name(std::move(name_in)),
          shelf({memory_max(options_in), !options_in.folder.empty()}),
          channels([this](const Ask& ask) { return answer(ask); }) {}

    // ---- On the threads of channels.

    Reply answer(const Ask& ask) {
        switch (ask.kind) {
            case Ask::Kind::room:
                return give_room(ask);
            case Ask::Kind::holdings:
                return with_text(snapshot::encode(holdings(ask.id.name)));
            case Ask::Kind::image:
                return give_image(ask);
            case Ask::Kind::saved:
                return saved(ask);
            case Ask::Kind::whole:
                shelf.set_whole(ask.id, ask.version);
                return {};
            case Ask::Kind::copies_to:
                return {};
        }
        return refusal("the agent does not know this message");
    }

    Reply give_room(const Ask& ask) {
        const auto room = shelf.room(ask.id, ask.bytes, ask.replicated);
        return room ? with_file((*room)->fd(), 0, (*room)->bytes()) : refusal(room.error().detail);
    }

    snapshot::Announcement holdings(const std::string& state) {
        snapshot::Announcement announcement;
        announcement.name = name;
        {
            const std::lock_guard lock(mutex);
            announcement.node = round.group_rank;
            announcement.endpoint = round.endpoint;
        }
        for (const HeldPart& held : shelf.parts()) {
            if (held.id.name == state) {
                announcement.holdings.push_back(
                    {held.place, held.id.part, held.id.parts, held.version, held.bytes});
            }
        }
        if (!options.folder.empty()) {
            for (const Holding& holding : snapshot::Folder(options.folder).list(state)) {
                announcement.holdings.push_back(holding);
            }
        }
        return announcement;
    }

    Reply give_image(const Ask& ask) {
        if (ask.place == Holding::Place::folder) {
            return options.folder.empty()
                       ? refusal("this node has no --snapshot-dir")
                       : with_file_at(
                             snapshot::Folder(options.folder).file_of(ask.id, ask.version));
        }
        const auto image = shelf.find(ask.id, ask.version, ask.place);
        return image ? with_file(image->fd, image->offset, image->bytes.size())
                     : refusal("this node does not have " + to_string(ask.version) + " any more");
    }

    Reply saved(const Ask& ask) {
        if (!shelf.has(ask.id, ask.version, Holding::Place::room)) {
            return refusal(to_string(ask.version) + " is not in its room");
        }
        return {};
    }

    const SnapshotOptions options;
    const std::string name;
    Shelf shelf;
    std::mutex mutex;
    RoundFacts round;  ///< Guarded by the mutex.
    ChannelServer channels;
};

struct SnapshotKeeper::Impl {
    boost::asio::io_context& io;
    const SnapshotOptions options;
    const StoreMode mode;
    const std::string name;
    Say say;
    rendezvous::Assignment assignment{};
    std::string own_address{};
    std::unique_ptr<Active> active{};

    void tell_round() const {
        if (!active) {
            return;
        }
        active->shelf.begin_round(number(assignment.round), assignment.group_world_size > 1);
        const std::lock_guard lock(active->mutex);
        active->round = {assignment.group_rank, ""};
    }
};

SnapshotKeeper::SnapshotKeeper(boost::asio::io_context& io, SnapshotOptions options, StoreMode mode,
                               std::string name, Say say)
    : impl_(new Impl{io, std::move(options), mode, std::move(name), std::move(say)}) {}

SnapshotKeeper::~SnapshotKeeper() = default;

void SnapshotKeeper::begin_round(const rendezvous::Assignment& assignment,
                                 const std::string& own_address) {
    impl_->assignment = assignment;
    impl_->own_address = own_address;
    impl_->tell_round();
}

Result<UniqueFd> SnapshotKeeper::open() {
    if (!impl_->active) {
        impl_->active = std::make_unique<Active>(impl_->options, impl_->name);
        impl_->tell_round();
    }
    return impl_->active->channels.open();
}

}  // namespace regroup::agent
