// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "worker_sdk/src/cpu/mesh.h"
#include "worker_sdk/src/net/notice_line.h"

namespace regroup::cpu {

/// The two connections to the neighbours in the ring that carry only notices, no data. A rank that
/// leaves in order sends a notice. A notice of a failure or of a rank's standing travels both ways
/// round the ring until all ranks have it. A neighbour that closes its connection without a notice
/// has died.
class ControlLine final : public net::Participant {
   public:
    /// Connects to both neighbours. Throws Error naming the neighbour that does not answer by
    /// `deadline` or is gone. Calls `check` several times a second and passes on its exceptions.
    /// Before it throws, it tells the neighbours that it can reach.
    ControlLine(Mesh& mesh, Instant deadline, const std::function<void()>& check);

    void watch(net::PollSet& poll) override;
    /// Throws GroupFailure when a notice of a failure arrives. Until the group is `formed` it
    /// throws a moment later: other ranks may have formed the group, used it and failed, while this
    /// rank's last bytes of the formation are on their way.
    void progress() override;
    [[nodiscard]] Instant next_deadline() const override;
    /// Any thread; wake the one that turns the mesh afterwards.
    void formed() noexcept { forming_ = false; }

    /// `listener` gets the standing of another rank, and returns true if it is news. Only news
    /// travels on.
    using StandingListener = std::function<bool(std::uint32_t rank, const Standing& standing)>;
    void on_standing(StandingListener listener) { standing_listener_ = std::move(listener); }
    /// Tells all other ranks this rank's standing.
    void tell(const Standing& standing);

    /// Tells the neighbours that this rank leaves in order.
    void announce_leave() noexcept;
    /// Tells the neighbours why the group has failed: the notice of another rank, else `code` and
    /// `text`, and the rank to which a connection has broken, if that is the reason.
    void announce_failure(Errc code, const std::string& text,
                          std::optional<std::uint32_t> broken_to = std::nullopt) noexcept;

   private:
    struct Line {
        std::uint32_t peer = 0;
        net::Stream* stream = nullptr;
        bool left = false;
        net::NoticeLine notices{};
    };

    void connect(Instant deadline, const std::function<void()>& check);
    [[nodiscard]] bool look_for_neighbours();
    [[nodiscard]] bool meet_neighbours_once_more(Instant deadline);
    void meet(GroupFailure failure);
    void read(Line& line);
    void handle(Line& line, const net::Notice& notice);
    void handle_standing(Line& line, const net::Notice& notice);
    void send(const net::Notice& notice) noexcept;
    static void send(Line& line, const net::Notice& notice) noexcept;

    Mesh& mesh_;
    std::array<Line, 2> lines_;
    StandingListener standing_listener_;
    std::atomic<bool> forming_ = false;  // Connected, but not `formed`.
    std::optional<GroupFailure> met_;    // Met while forming; `progress` throws it.
    Instant met_until_;                  // The latest time for that.
    std::optional<net::Notice> heard_;
};

}  // namespace regroup::cpu
