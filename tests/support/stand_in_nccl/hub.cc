// SPDX-License-Identifier: Apache-2.0
// The hub of the stand-in's ranks: a thread in the process that made the unique id.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "tests/support/stand_in_nccl/wire.h"

namespace stand_in_nccl {
namespace {

sockaddr_un address_of(const std::string& name, socklen_t& bytes) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    // A leading zero byte: an abstract socket name.
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
}

/// The hub's state of one communicator.
struct Group {
    struct Waiting {
        int rank = 0;
        Message message;
    };

    int world_size = 0;
    std::map<std::pair<int, std::uint32_t>, Line*> lines;      // by rank and channel
    std::map<int, std::deque<Message>> collectives;            // by rank
    std::map<std::pair<int, int>, std::deque<Message>> sends;  // by sender, receiver
    std::map<std::pair<int, int>, std::deque<Message>> recvs;
    std::map<int, std::deque<Message>> splits;
    bool gone = false;
};

class Hub {
   public:
    explicit Hub(int listener) : listener_(listener) {}

    void run() {
        do {
            turn();
        } while (!ever_met_ || !clients_.empty());
        ::close(listener_);
    }

   private:
    struct Client {
        std::unique_ptr<Line> line;
        Group* group = nullptr;
        int rank = 0;
        std::uint32_t channel = 0;
        bool left = false;
    };

    void turn() {
        std::vector<pollfd> fds{{.fd = listener_, .events = POLLIN, .revents = 0}};
        for (const auto& client : clients_) {
            fds.push_back({.fd = client->line->fd(), .events = POLLIN, .revents = 0});
        }
        (void)::poll(fds.data(), fds.size(), -1);
        if (fds.front().revents != 0) {
            const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
            clients_.push_back(std::make_unique<Client>());
            clients_.back()->line = std::make_unique<Line>(fd);
            ever_met_ = true;
        }
        std::vector<Client*> ended;
        for (std::size_t i = 1; i < fds.size(); ++i) {
            if (fds[i].revents != 0 && !serve(*clients_[i - 1])) {
                ended.push_back(clients_[i - 1].get());
            }
        }
        for (Client* const client : ended) {
            forget(*client);
        }
    }

    bool serve(Client& client) {
        Message message;
        if (!client.line->read(message)) {
            return false;
        }
        const Frame& frame = message.frame;
        if (frame.kind == FrameKind::join) {
            join(client, frame);
            return true;
        }
        if (frame.kind == FrameKind::leave) {
            client.left = true;
            return true;
        }
        Group& group = *client.group;
        if (group.gone) {
            client.line->write({.kind = FrameKind::gone}, nullptr, 0);
        } else if (frame.kind == FrameKind::collective) {
            group.collectives[client.rank].push_back(std::move(message));
            carry_out_collectives(group);
        } else if (frame.kind == FrameKind::split) {
            group.splits[client.rank].push_back(std::move(message));
            carry_out_splits(group);
        } else if (frame.kind == FrameKind::send) {
            const std::pair route(client.rank, frame.root);
            group.sends[route].push_back(std::move(message));
            match(group, route);
        } else {
            const std::pair route(frame.root, client.rank);
            group.recvs[route].push_back(std::move(message));
            match(group, route);
        }
        return true;
    }

    void join(Client& client, const Frame& frame) {
        Group& group = groups_[frame.child];
        group.world_size = frame.world_size;
        client.group = &group;
        client.rank = frame.rank;
        client.channel = frame.channel;
        group.lines[{frame.rank, frame.channel}] = client.line.get();
        if (group.lines.size() == 2 * static_cast<std::size_t>(group.world_size)) {
            for (const auto& [place, line] : group.lines) {
                line->write({.kind = FrameKind::welcome}, nullptr, 0);
            }
        }
    }

    void forget(Client& client) {
        if (client.group != nullptr) {
            client.group->lines.erase({client.rank, client.channel});
            if (!client.left && !client.group->gone) {
                client.group->gone = true;
                for (const auto& [place, line] : client.group->lines) {
                    line->write({.kind = FrameKind::gone}, nullptr, 0);
                }
            }
        }
        std::erase_if(clients_, [&](const auto& other) { return other.get() == &client; });
    }

    static void answer(Group& group, int rank, std::uint32_t channel, Frame frame,
                       const std::vector<std::byte>& payload) {
        frame.kind = FrameKind::result;
        const auto line = group.lines.find({rank, channel});
        if (line != group.lines.end()) {
            line->second->write(frame, payload.data(), payload.size());
        }
    }

    static bool all_have(const std::map<int, std::deque<Message>>& calls, int world_size) {
        return std::ranges::count_if(
                   calls, [](const auto& entry) { return !entry.second.empty(); }) == world_size;
    }

    /// As on GPUs, ranks that have called different things wait for each other, for ever.
    static bool agree(const std::map<int, std::deque<Message>>& calls) {
        const Frame& first = calls.begin()->second.front().frame;
        return std::ranges::all_of(calls, [&](const auto& entry) {
            const Frame& frame = entry.second.front().frame;
            // Of a scatter, only the root has values.
            const bool same_count = frame.op == Collective::scatter || frame.count == first.count;
            return frame.op == first.op && frame.dtype == first.dtype &&
                   frame.reduction == first.reduction && frame.root == first.root && same_count;
        });
    }

    void carry_out_collectives(Group& group) {
        while (all_have(group.collectives, group.world_size) && agree(group.collectives)) {
            std::vector<Message> calls;
            for (auto& [rank, queue] : group.collectives) {
                calls.push_back(std::move(queue.front()));
                queue.pop_front();
            }
            // Rank 0 last: its process, which runs the hub, may end after the answer.
            for (int rank = group.world_size; rank-- > 0;) {
                const Frame& asked = calls[static_cast<std::size_t>(rank)].frame;
                answer(group, rank, 0, {.sequence = asked.sequence}, result_for(calls, rank));
            }
        }
    }

    static std::vector<std::byte> reduced(const std::vector<Message>& calls) {
        const Frame& frame = calls.front().frame;
        std::vector<std::byte> total = calls.front().payload;
        const std::size_t count = total.size() / size_of(frame.dtype);
        for (std::size_t i = 1; i < calls.size(); ++i) {
            reduce_into(frame.dtype, frame.reduction, total.data(), calls[i].payload.data(), count);
        }
        if (frame.reduction == ncclAvg) {
            divide(frame.dtype, total.data(), count, static_cast<int>(calls.size()));
        }
        return total;
    }

    static std::vector<std::byte> slice(const std::vector<std::byte>& rows, int index,
                                        std::size_t parts) {
        const auto bytes = static_cast<std::ptrdiff_t>(rows.size() / parts);
        return {rows.begin() + index * bytes, rows.begin() + (index + 1) * bytes};
    }

    static std::vector<std::byte> result_for(const std::vector<Message>& calls, int rank) {
        const Frame& frame = calls.front().frame;
        const Message& root = calls[static_cast<std::size_t>(frame.root)];
        std::vector<std::byte> rows;
        switch (frame.op) {
            case Collective::all_reduce:
                return reduced(calls);
            case Collective::reduce:
                return rank == frame.root ? reduced(calls) : rows;
            case Collective::reduce_scatter:
                return slice(reduced(calls), rank, calls.size());
            case Collective::broadcast:
                return root.payload;
            case Collective::scatter:
                return slice(root.payload, rank, calls.size());
            case Collective::gather:
            case Collective::all_gather:
                for (const Message& call : calls) {
                    rows.insert(rows.end(), call.payload.begin(), call.payload.end());
                }
                return frame.op == Collective::gather && rank != frame.root
                           ? std::vector<std::byte>()
                           : rows;
            case Collective::all_to_all:
                for (const Message& call : calls) {
                    const std::vector<std::byte> part = slice(call.payload, rank, calls.size());
                    rows.insert(rows.end(), part.begin(), part.end());
                }
                return rows;
        }
        return rows;
    }

    static void match(Group& group, std::pair<int, int> route) {
        auto& sends = group.sends[route];
        auto& recvs = group.recvs[route];
        while (!sends.empty() && !recvs.empty()) {
            answer(group, route.second, 0, {.sequence = recvs.front().frame.sequence},
                   sends.front().payload);
            answer(group, route.first, 0, {.sequence = sends.front().frame.sequence}, {});
            sends.pop_front();
            recvs.pop_front();
        }
    }

    void carry_out_splits(Group& group) {
        while (all_have(group.splits, group.world_size)) {
            std::map<int, std::vector<std::pair<int, int>>> members;  // by color: key, rank
            for (const auto& [rank, queue] : group.splits) {
                const Frame& frame = queue.front().frame;
                if (frame.root != NCCL_SPLIT_NOCOLOR) {
                    members[frame.root].emplace_back(frame.rank, rank);
                }
            }
            std::map<int, Frame> answers;
            for (auto& [color, ranks] : members) {
                std::ranges::sort(ranks);
                const std::uint64_t child = ++children_;
                for (std::size_t i = 0; i < ranks.size(); ++i) {
                    answers[ranks[i].second] = {.rank = static_cast<int>(i),
                                                .world_size = static_cast<int>(ranks.size()),
                                                .child = child};
                }
            }
            for (auto& [rank, queue] : group.splits) {
                queue.pop_front();
                answer(group, rank, 1, answers[rank], {});
            }
        }
    }

    const int listener_;
    bool ever_met_ = false;
    std::vector<std::unique_ptr<Client>> clients_;
    std::map<std::uint64_t, Group> groups_;  // by child
    std::uint64_t children_ = 0;
};

}  // namespace

Line::~Line() {
    ::close(fd_);
}

Line* Line::connect(const std::string& name) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t bytes = 0;
    const sockaddr_un address = address_of(name, bytes);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
        ::close(fd);
        return nullptr;
    }
    return new Line(fd);
}

bool Line::write(Frame frame, const void* payload, std::size_t bytes) {
    frame.bytes = bytes;
    const auto* const head = reinterpret_cast<const std::byte*>(&frame);
    std::vector<std::byte> all(head, head + sizeof frame);
    const auto* const tail = static_cast<const std::byte*>(payload);
    all.insert(all.end(), tail, tail + bytes);
    for (std::size_t sent = 0; sent < all.size();) {
        const ssize_t piece = ::send(fd_, all.data() + sent, all.size() - sent, MSG_NOSIGNAL);
        if (piece < 0 && errno != EINTR) {
            return false;
        }
        sent += piece > 0 ? static_cast<std::size_t>(piece) : 0;
    }
    return true;
}

bool Line::read_all(void* into, std::size_t bytes, const std::atomic<bool>* stop) {
    for (std::size_t have = 0; have < bytes;) {
        if (stop != nullptr) {
            constexpr int kTurnMs = 5;
            pollfd wanted{.fd = fd_, .events = POLLIN, .revents = 0};
            if (*stop) {
                return false;
            }
            if (::poll(&wanted, 1, kTurnMs) <= 0) {
                continue;
            }
        }
        const ssize_t piece = ::recv(fd_, static_cast<std::byte*>(into) + have, bytes - have, 0);
        if (piece == 0 || (piece < 0 && errno != EINTR)) {
            return false;
        }
        have += piece > 0 ? static_cast<std::size_t>(piece) : 0;
    }
    return true;
}

bool Line::read(Message& message, const std::atomic<bool>* stop) {
    if (!read_all(&message.frame, sizeof message.frame, stop)) {
        return false;
    }
    message.payload.resize(message.frame.bytes);
    return read_all(message.payload.data(), message.payload.size(), stop);
}

std::string start_hub() {
    static std::atomic<int> hubs = 0;
    std::string name = "stand-in-nccl-" + std::to_string(::getpid()) + "-" + std::to_string(++hubs);
    // Without SOCK_CLOEXEC, as in NCCL: the caller must keep it from children.
    const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
    socklen_t bytes = 0;
    const sockaddr_un address = address_of(name, bytes);
    if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), bytes) != 0 ||
        ::listen(listener, 1024) != 0) {
        ::close(listener);
        return {};
    }
    std::thread([listener] { Hub(listener).run(); }).detach();
    return name;
}

}  // namespace stand_in_nccl
