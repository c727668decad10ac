// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <optional>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "rendezvous/base/printable.h"
#include "rendezvous/snapshot/channel.h"
#include "rendezvous/worker_link/packet.h"
#include "worker_sdk/src/link/agent_socket.h"
#include "worker_sdk/src/link/process_link.h"
#include "worker_sdk/src/net/fork_guard.h"
#include "worker_sdk/src/net/poll_set.h"
#include "worker_sdk/src/snapshot/keeper.h"

namespace regroup::snapshot {
namespace {

constexpr Duration kOpenLimit = std::chrono::seconds(30);
/// For answers that the agent has at once.
constexpr Duration kAnswerLimit = std::chrono::minutes(1);
/// For memory that the kernel has to clear, and images that another node has to send; the agent has
/// deadlines of its own.
constexpr Duration kTransferLimit = std::chrono::minutes(15);

/// A part of a file that the agent has sent, in memory.
class MappedAnswer {
   public:
    static Result<HeldImage> map(const UniqueFd& file, std::uint64_t offset, std::uint64_t bytes) {
        struct stat status{};
        if (!file || ::fstat(file.get(), &status) != 0) {
            return Failure(Errc::system, "the agent has sent no file");
        }
        const auto size = static_cast<std::uint64_t>(std::max<off_t>(0, status.st_size));
        if (bytes == 0 || offset > size || bytes > size - offset) {
            return Failure(Errc::system, "the agent has sent a file that is too short");
        }
        const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
        const std::uint64_t begin = offset / page * page;
        const std::uint64_t length = offset + bytes - begin;
        void* const memory =
            ::mmap(nullptr, length, PROT_READ, MAP_SHARED, file.get(), static_cast<off_t>(begin));
        if (memory == MAP_FAILED) {
            return system_failure("mmap of a snapshot", errno);
        }
        const std::shared_ptr<const MappedAnswer> owner(new MappedAnswer(memory, length));
        return HeldImage{owner, {static_cast<const std::byte*>(memory) + (offset - begin), bytes}};
    }
    ~MappedAnswer() { ::munmap(memory_, bytes_); }
    MappedAnswer(const MappedAnswer&) = delete;
    MappedAnswer& operator=(const MappedAnswer&) = delete;

   private:
    MappedAnswer(void* memory, std::uint64_t bytes) : memory_(memory), bytes_(bytes) {}

    void* const memory_;
    const std::uint64_t bytes_;
};

Ask question(Ask::Kind kind, const Keeper::Wanted& wanted) {
    return {.kind = kind,
            .id = wanted.id,
            .version = wanted.version,
            .place = wanted.place,
            .endpoint = wanted.endpoint,
            .begin = wanted.begin,
            .bytes = wanted.bytes,
            .patient = wanted.patient};
}

/// The agent keeps what this worker saves.
class AgentKeeper final : public Keeper {
   public:
    AgentKeeper(UniqueFd socket, std::shared_ptr<RoundScope> scope)
        : scope_(scope),
          socket_{.fd = std::move(socket), .readable = false},
          guard_(socket_.fd.get()),
          // Ends the wait for an answer.
          registration_(std::move(scope), [fd = socket_.fd.get()](const std::string&) {
              ::shutdown(fd, SHUT_RDWR);
          }) {}

    std::shared_ptr<Room> room(const RoomWanted& wanted) override;
    void settle() override {}
    Announcement holdings(const std::string& name) override;
    Result<HeldImage> image(const Wanted& wanted) override;
    bool adopt(const Wanted& wanted) override;
    bool saved(const PartId& id, const Version& version) override {
        return tell({.kind = Ask::Kind::saved, .id = id, .version = version});
    }
    void whole(const PartId& id, const Version& version, bool write) override {
        static_cast<void>(
            tell({.kind = Ask::Kind::whole, .id = id, .version = version, .write = write}));
    }
    void kept(const PartId& id, const Version& version) override {
        static_cast<void>(tell({.kind = Ask::Kind::kept, .id = id, .version = version}));
    }
    Copied is_copied(const Version& version) override;
    bool outlives_process() const noexcept override { return true; }
    void copies_to(const std::string& name, const std::string& endpoint) override {
        static_cast<void>(
            tell({.kind = Ask::Kind::copies_to, .id = {name, 0, 1}, .endpoint = endpoint}));
    }
    bool await_unread(std::size_t /*slot*/, Instant /*deadline*/) override { return true; }

   private:
    struct Reply {
        Answer answer{};
        UniqueFd file{};
    };
    /// Throws Error if the agent, or the round, is gone.
    Reply ask(const Ask& ask, Duration limit);
    /// If the agent cannot do it, prints that. Does not end the training.
    bool tell(const Ask& ask);
    [[noreturn]] void raise(Errc code, const std::string& what);

    const std::shared_ptr<RoundScope> scope_;
    std::mutex rooms_mutex_;
    std::vector<std::shared_ptr<Room>> rooms_;  // Guarded by rooms_mutex_. The present one last.
    std::mutex mutex_;
    net::Pollable socket_;  // Guarded by mutex_: one question at a time.
    const net::ForkGuard guard_;
    const RoundScope::Registration registration_;
};

void AgentKeeper::raise(Errc code, const std::string& what) {
    const auto reason = scope_->reason();
    throw Error(reason ? Errc::fenced : code, "snapshot: " + (reason ? *reason : what));
}

AgentKeeper::Reply AgentKeeper::ask(const Ask& ask, Duration limit) {
    const std::lock_guard lock(mutex_);
    if (!worker_link::send_packet(socket_.fd.get(), encode(ask), worker_link::WhenFull::wait)) {
        raise(Errc::disconnected, "the agent is gone");
    }
    const Instant deadline = after(now(), limit);
    socket_.readable = false;
    for (net::PollSet poll; !socket_.readable; poll.wait(deadline)) {
        if (now() >= deadline) {
            // A late answer must not be taken for that to the next question.
            ::shutdown(socket_.fd.get(), SHUT_RDWR);
            raise(Errc::deadline_exceeded, "the agent has not answered within " +
                                               format_duration(limit) + " (" +
                                               std::string(to_string(ask.kind)) + ")");
        }
        poll.want_read(socket_);
    }
    link::Packet packet = link::receive_packet(socket_.fd);
    const Result<Answer> answer = decode_answer(packet.text);
    if (packet.text.empty() || !answer) {
        raise(Errc::disconnected, "the agent is gone");
    }
    return {*answer, std::move(packet.descriptor)};
}

bool AgentKeeper::tell(const Ask& ask) {
    const Reply reply = this->ask(ask, kAnswerLimit);
    if (!reply.answer.error.empty()) {
        std::fprintf(stderr, "regroup: snapshot: %s\n", printable(reply.answer.error).c_str());
    }
    return reply.answer.write;
}

std::shared_ptr<Room> AgentKeeper::room(const RoomWanted& wanted) {
    Reply reply = ask({.kind = Ask::Kind::room,
                       .id = wanted.id,
                       .bytes = wanted.bytes,
                       .spare = wanted.spare,
                       .replicated = wanted.replicated,
                       .fresh = wanted.fresh},
                      kTransferLimit);
    if (!reply.answer.error.empty()) {
        raise(Errc::system, reply.answer.error);
    }
    Result<std::shared_ptr<Room>> mapped = Room::map(std::move(reply.file));
    if (!mapped || (*mapped)->slot_bytes() < wanted.bytes) {
        raise(Errc::system,
              mapped ? "the agent has given too little memory" : mapped.error().detail);
    }
    const std::lock_guard lock(rooms_mutex_);
    rooms_.push_back(*mapped);
    return *mapped;
}

Keeper::Copied AgentKeeper::is_copied(const Version& version) {
    const std::lock_guard lock(rooms_mutex_);
    for (auto room = rooms_.begin(); room != rooms_.end(); ++room) {
        if (const auto content = (*room)->find(version)) {
            if (content->is_copied) {
                rooms_.erase(rooms_.begin(), room);  // Smaller ones, with earlier versions.
            }
            return !content->is_copied    ? Copied::no
                   : content->has_no_copy ? Copied::in_vain
                                          : Copied::yes;
        }
    }
    return Copied::yes;  // Overwritten, since a later version is kept.
}

Announcement AgentKeeper::holdings(const std::string& name) {
    const Reply reply = ask({.kind = Ask::Kind::holdings, .id = {name, 0, 1}}, kTransferLimit);
    if (!reply.answer.error.empty()) {
        raise(Errc::system, reply.answer.error);
    }
    const Result<HeldImage> text =
        MappedAnswer::map(reply.file, reply.answer.offset, reply.answer.bytes);
    if (!text) {
        raise(text.error().code, text.error().detail);
    }
    Result<Announcement> announcement = decode_announcement(
        {reinterpret_cast<const char*>(text->bytes.data()), text->bytes.size()});
    if (!announcement) {
        raise(announcement.error().code, announcement.error().detail);
    }
    return *std::move(announcement);
}

Result<HeldImage> AgentKeeper::image(const Wanted& wanted) {
    const Reply reply = ask(question(Ask::Kind::image, wanted), kTransferLimit);
    if (!reply.answer.error.empty()) {
        return Failure(reply.answer.unreachable ? Errc::disconnected : Errc::overloaded,
                       reply.answer.error);
    }
    return MappedAnswer::map(reply.file, reply.answer.offset, reply.answer.bytes);
}

bool AgentKeeper::adopt(const Wanted& wanted) {
    return ask(question(Ask::Kind::adopt, wanted), kAnswerLimit).answer.error.empty();
}

}  // namespace

std::unique_ptr<Keeper> make_keeper(const std::string& folder, std::shared_ptr<RoundScope> scope) {
    const auto link = link::process_link();
    if (!link) {
        return make_own_keeper(folder);
    }
    Result<UniqueFd> channel = link->open_snapshots(after(now(), kOpenLimit));
    if (!channel) {
        throw Error(channel.error().code, "snapshot: " + channel.error().detail);
    }
    return std::make_unique<AgentKeeper>(std::move(*channel), std::move(scope));
}

}  // namespace regroup::snapshot
