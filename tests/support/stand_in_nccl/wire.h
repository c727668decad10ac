// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <nccl.h>
#include <string>
#include <vector>

namespace stand_in_nccl {

enum class FrameKind : std::uint32_t {
    join,        ///< rank, world_size, child, channel: a rank joins.
    welcome,     ///< All ranks of the communicator have joined.
    collective,  ///< op, dtype, reduction, root, count, payload.
    send,        ///< root = the peer, payload.
    recv,        ///< root = the peer.
    split,       ///< color, key.
    leave,       ///< The rank leaves in order.
    result,      ///< Answers collective, send, recv, split; `child`, rank, world_size for a split.
    gone,        ///< Some rank of the communicator is gone.
};

enum class Collective : std::uint32_t {
    all_reduce,
    reduce,
    reduce_scatter,
    broadcast,
    all_gather,
    gather,
    scatter,
    all_to_all,
};

struct Frame {
    FrameKind kind = FrameKind::join;
    Collective op = Collective::all_reduce;
    std::uint32_t dtype = 0;
    std::uint32_t reduction = 0;
    std::int32_t root = 0;
    std::int32_t rank = 0;
    std::int32_t world_size = 0;
    std::uint32_t channel = 0;  ///< 0 for operations, 1 for splits.
    std::uint64_t child = 0;    ///< Which communicator; 0: the one made from the id.
    std::uint64_t count = 0;
    std::uint64_t sequence = 0;  ///< Number of the request that a result answers.
    std::uint64_t bytes = 0;     ///< Size of the payload, which follows.
};

struct Message {
    Frame frame{};
    std::vector<std::byte> payload{};
};

/// A connected socket. Blocking; `stop` ends a read within some milliseconds.
class Line {
   public:
    explicit Line(int fd) : fd_(fd) {}
    ~Line();
    Line(const Line&) = delete;
    Line& operator=(const Line&) = delete;

    /// Connects to the hub of that name; null if there is none.
    [[nodiscard]] static Line* connect(const std::string& name);

    /// False if the other side is gone.
    bool write(Frame frame, const void* payload, std::size_t bytes);
    bool read(Message& message, const std::atomic<bool>* stop = nullptr);
    [[nodiscard]] int fd() const { return fd_; }

   private:
    bool read_all(void* into, std::size_t bytes, const std::atomic<bool>* stop);

    int fd_;
};

/// Starts a hub in this process and returns its name, which fits into a unique id.
[[nodiscard]] std::string start_hub();

[[nodiscard]] std::size_t size_of(std::uint32_t dtype);
/// `into` = reduction of `into` and `more`, with NCCL's numbers. avg adds; the caller divides.
void reduce_into(std::uint32_t dtype, std::uint32_t reduction, std::byte* into,
                 const std::byte* more, std::size_t count);
void divide(std::uint32_t dtype, std::byte* values, std::size_t count, int by);
/// Multiplies by the scalar at `factor`, of the same type.
void scale(std::uint32_t dtype, std::byte* values, std::size_t count, const std::byte* factor);

}  // namespace stand_in_nccl
