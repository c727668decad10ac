// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/errc.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "worker_sdk/src/net/socket.h"

namespace regroup::net {

/// A rank tells its neighbours this about a group.
struct Notice {
    enum class Kind : std::uint32_t {
        left,      ///< `origin` has left in order; nothing is wrong.
        failed,    ///< The group has ended at `origin`, for the reason in `text`.
        standing,  ///< How far `origin` has come in its collectives; `text` is a Standing.
    };
    static constexpr std::uint32_t kNobody = 0xffffffffU;
    static constexpr std::size_t kTextBytesMax = 2048;

    Kind kind = Kind::left;
    Errc code = Errc::disconnected;
    std::uint32_t origin = 0;
    /// On `cpu` the rank to which the connection of `origin` has broken, or nobody. On `nccl` the
    /// scope of the group.
    std::uint32_t about = kNobody;
    std::string text{};
};

/// The notices to and from one neighbour. All calls get the same connection.
class NoticeLine {
   public:
    /// The next notice that has arrived.
    [[nodiscard]] std::optional<Notice> read(Stream& stream);
    /// The neighbour has sent what is no notice.
    [[nodiscard]] bool is_spoilt() const noexcept { return is_spoilt_; }

    /// Sends `notice` as soon as there is room. A neighbour that has stopped reading gets no more
    /// standings.
    void send(Stream& stream, const Notice& notice) noexcept;
    void flush(Stream& stream) noexcept;
    [[nodiscard]] bool has_unsent() const noexcept { return !unsent_.empty(); }

   private:
    std::string arrived_;
    std::string unsent_;
    bool is_spoilt_ = false;
};

}  // namespace regroup::net
