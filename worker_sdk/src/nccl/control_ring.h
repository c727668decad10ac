// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/errc.h>
#include <regroup/store.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <poll.h>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup::nccl {

/// News about the group, which every rank gets to hear.
struct Notice {
    enum class Kind : std::uint32_t {
        left,   ///< `origin` has left in order.
        ended,  ///< The group of `scope` has ended at `origin`, for the reason in `text`.
    };

    Kind kind = Kind::left;
    Errc code = Errc::disconnected;
    std::uint32_t origin = 0;
    std::uint32_t scope = 0;
    std::string text{};
};

/// Who watches over the ranks' lives, since NCCL does not: inside a node it never learns that a
/// peer has died, and between nodes only after tens of seconds. Every rank keeps one TCP connection
/// to the next and one to the previous rank. A process that ends, however it ends, closes them, so
/// its neighbours know at once; they pass the news on around the ring, each rank to its other side.
///
/// Costs a rank two connections whatever the world. Sees processes end, not machines lose power:
/// there a group's deadline and the launcher's heartbeat come in. Used by one thread.
class ControlRing {
   public:
    /// This rank's end, before anybody is connected.
    struct Door {
        net::Descriptor listener;
        std::uint64_t token = 0;
        /// For the store: address and token.
        [[nodiscard]] std::string text() const;
    };
    /// Opens a door on the address from which `host` is reached. Throws Error `system`.
    [[nodiscard]] static Door open_door(const std::string& host, std::uint16_t port);

    /// Connects to the next rank, whose door's text is `next`, and waits for the previous one;
    /// meanwhile calls `look_around` every second, which may throw. Throws Error
    /// `deadline_exceeded` or `disconnected` naming the neighbour.
    ControlRing(Door door, std::uint32_t rank, std::uint32_t world_size, const std::string& next,
                Instant deadline, const std::function<void()>& look_around);

    /// What poll() should wait for; one for each neighbour that is still there.
    [[nodiscard]] std::vector<pollfd> wanted() const;
    /// Reads and passes on whatever has come. Returns what is new.
    [[nodiscard]] std::vector<Notice> progress();
    /// Tells all ranks.
    void announce(const Notice& notice);

   private:
    struct Link {
        std::uint32_t rank = 0;
        std::string name;  // "rank 3 (10.0.0.4:4711)"
        std::optional<net::Stream> stream;
        std::string in;
        std::string out;
        bool left = false;
    };

    using LookAround = std::function<void()>;

    void dial_next(const std::string& next, Instant deadline, const LookAround& look_around);
    void await_previous(const Door& door, Instant deadline, const LookAround& look_around);
    void read(Link& link, std::vector<Notice>& news);
    void flush(Link& link);
    void take(Link& link, Notice notice, std::vector<Notice>& news);
    void pass_on(const Notice& notice, const Link* except);

    const std::uint32_t rank_;
    const std::uint32_t world_size_;
    std::array<Link, 2> links_;                                // the next rank, the previous rank
    std::set<std::pair<std::uint32_t, std::uint64_t>> heard_;  // origin, scope and kind
};

}  // namespace regroup::nccl
