// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

#include "agent/snapshot/snapshot_keeper.h"
#include "rendezvous/snapshot/channel.h"
#include "rendezvous/snapshot/image.h"
#include "rendezvous/snapshot/pieces.h"
#include "rendezvous/snapshot/room.h"
#include "rendezvous/worker_link/packet.h"
#include "tests/conformance/store_relay_support.h"
#include "tests/support/matchers.h"

namespace regroup::agent {

using snapshot::Answer;
using snapshot::Ask;
using snapshot::Holding;
using snapshot::PartId;
using snapshot::Room;
using snapshot::Version;
using Place = Holding::Place;

inline const PartId kPart{"state", 0, 2};

inline Version version(std::uint64_t step, std::uint64_t round = 1) {
    return {1, round, step};
}

/// An image with one tensor of `count` bytes that depend on the part and the step.
inline std::string image_of(const PartId& id, const Version& version, std::size_t count) {
    std::string data(count, '\0');
    for (std::size_t i = 0; i < count; ++i) {
        data[i] = static_cast<char>(i * 31 + version.step * 7 + id.part);
    }
    const auto layout = snapshot::ImageLayout::of(id, {{.name = "weights",
                                                        .dtype = "U8",
                                                        .shape = {count},
                                                        .offset = {0},
                                                        .global_shape = {count}}});
    EXPECT_TRUE(layout);
    const std::uint64_t hash = snapshot::hash_of_tensor(std::as_bytes(std::span(data)));
    return layout->header(version, std::span(&hash, 1)) + data;
}

template <class Condition>
bool wait_until(Condition condition) {
    const Instant deadline = after(now(), store::kPatience);
    while (!condition()) {
        if (now() > deadline) {
            return false;
        }
        std::this_thread::yield();
    }
    return true;
}

/// A file that came with an answer, read.
inline std::string bytes_in(int fd, std::uint64_t offset, std::uint64_t count) {
    std::string bytes(count, '\0');
    const ssize_t got = ::pread(fd, bytes.data(), count, static_cast<off_t>(offset));
    bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return bytes;
}

/// The worker's end of a channel.
class WorkerChannel {
   public:
    struct Reply {
        Answer answer;
        UniqueFd file;
    };
    explicit WorkerChannel(UniqueFd socket) : socket_(std::move(socket)) {}

    /// `answer.error` says so if the agent is gone.
    Reply ask(const Ask& ask) { return ask_raw(snapshot::encode(ask)); }
    Reply ask_raw(const std::string& packet) {
        Reply reply;
        if (!worker_link::send_packet(socket_.get(), packet, worker_link::WhenFull::wait)) {
            reply.answer.error = "no agent";
            return reply;
        }
        std::array<char, snapshot::kPacketBytesMax> text{};
        alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
        iovec part{text.data(), text.size()};
        msghdr header{};
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        header.msg_control = control.data();
        header.msg_controllen = control.size();
        const ssize_t count = ::recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
        if (count <= 0) {
            reply.answer.error = "no agent";
            return reply;
        }
        const auto answer = snapshot::decode_answer({text.data(), static_cast<std::size_t>(count)});
        EXPECT_TRUE(answer);
        reply.answer = *answer;
        if (const cmsghdr* rider = CMSG_FIRSTHDR(&header)) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(rider), sizeof fd);
            reply.file = UniqueFd(fd);
        }
        return reply;
    }

    std::shared_ptr<Room> room(const PartId& id, std::uint64_t bytes, bool replicated = false) {
        Reply reply =
            ask({.kind = Ask::Kind::room, .id = id, .bytes = bytes, .replicated = replicated});
        EXPECT_EQ(reply.answer.error, "");
        auto room = Room::map(std::move(reply.file));
        EXPECT_TRUE(room);
        return room ? *room : nullptr;
    }
    /// As Snapshot::save does: into the slot that does not have the latest version.
    void save(Room& room, const PartId& id, const Version& version, std::size_t count) {
        const auto contents = room.contents();
        const std::size_t slot = contents.empty() ? 0 : 1 - contents.front().slot;
        room.withdraw(slot);
        const std::string image = image_of(id, version, count);
        std::memcpy(room.slot(slot).data(), image.data(), image.size());
        room.publish(slot, version, image.size());
        const Reply reply = ask({.kind = Ask::Kind::saved, .id = id, .version = version});
        EXPECT_EQ(reply.answer.error, "");
        wants_write_ = reply.answer.write;
    }
    [[nodiscard]] bool wants_write() const { return wants_write_; }
    void whole(const PartId& id, const Version& version, bool write = false) {
        const Reply reply =
            ask({.kind = Ask::Kind::whole, .id = id, .version = version, .write = write});
        EXPECT_EQ(reply.answer.error, "");
    }
    void kept(const PartId& id, const Version& version) {
        EXPECT_EQ(ask({.kind = Ask::Kind::kept, .id = id, .version = version}).answer.error, "");
    }
    snapshot::Announcement holdings(const std::string& state = "state") {
        const Reply reply = ask({.kind = Ask::Kind::holdings, .id = {state, 0, 1}});
        EXPECT_EQ(reply.answer.error, "");
        const auto said = snapshot::decode_announcement(
            bytes_in(reply.file.get(), reply.answer.offset, reply.answer.bytes));
        EXPECT_TRUE(said);
        return said ? *said : snapshot::Announcement{};
    }
    /// The image as bytes; else the error.
    std::string image(const PartId& id, const Version& version, Holding::Place place,
                      const std::string& endpoint = "", bool patient = false) {
        const Reply reply = ask({.kind = Ask::Kind::image,
                                 .id = id,
                                 .version = version,
                                 .place = place,
                                 .endpoint = endpoint,
                                 .patient = patient});
        return reply.answer.error.empty()
                   ? bytes_in(reply.file.get(), reply.answer.offset, reply.answer.bytes)
                   : reply.answer.error;
    }

   private:
    UniqueFd socket_;
    bool wants_write_ = false;
};

/// The keeper of one node, on a thread of its own.
class SnapshotNode {
   public:
    explicit SnapshotNode(std::string name, SnapshotOptions options = {},
                          StoreMode mode = StoreMode::local) {
        loop_.on_loop([&] {
            keeper_ = std::make_unique<SnapshotKeeper>(loop_.io(), std::move(options), mode,
                                                       std::move(name), loop_.collector());
        });
    }
    ~SnapshotNode() { end(); }
    SnapshotNode(const SnapshotNode&) = delete;
    SnapshotNode& operator=(const SnapshotNode&) = delete;

    void end() {
        loop_.on_loop([&] { keeper_.reset(); });
    }
    void begin(std::uint64_t round, std::uint32_t group_rank, std::uint32_t nodes,
               const std::string& store_key = "a secret of twenty-two characters") {
        rendezvous::Assignment assignment;
        assignment.round = rendezvous::RoundId{round};
        assignment.group_rank = group_rank;
        assignment.group_world_size = nodes;
        assignment.store_key = store_key;
        loop_.on_loop([&] { keeper_->begin_round(assignment, "127.0.0.1"); });
    }
    WorkerChannel open() {
        return loop_.on_loop([&] {
            Result<UniqueFd> channel = keeper_->open();
            EXPECT_TRUE(channel);
            return WorkerChannel(channel ? *std::move(channel) : UniqueFd());
        });
    }
    template <class Function>
    auto on_loop(Function function) {
        return loop_.on_loop([&] { return function(*keeper_); });
    }
    [[nodiscard]] store::LoopThread& loop() { return loop_; }

   private:
    store::LoopThread loop_;
    std::unique_ptr<SnapshotKeeper> keeper_;
};

}  // namespace regroup::agent
