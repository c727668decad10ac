// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>

#include "worker_sdk/src/cpu/mesh.h"

namespace regroup::cpu {

/// The two connections to the neighbours in the ring that carry no data, only news: a rank that
/// leaves in order says so, and the failure of one rank travels both ways round the ring until all
/// have heard of it. A neighbour that hangs up without a word has died.
class ControlLine final : public net::Participant {
   public:
    /// Connects to both neighbours. Throws Error naming the neighbour that does not answer by
    /// `deadline`, or who is gone; or what `check` throws, which is called several times a second.
    /// The neighbours are told first, as far as they can be.
    ControlLine(Mesh& mesh, Instant deadline, const std::function<void()>& check);

    void watch(net::PollSet& poll) override;
    /// Throws GroupFailure when news of one arrive; until the group is `formed`, a moment later:
    /// others may have formed it, used it and failed, while what this rank needs is on its way.
    void progress() override;
    [[nodiscard]] Instant next_deadline() const override;
    void formed() noexcept { forming_ = false; }

    /// Tells the neighbours that this rank leaves in order.
    void announce_leave() noexcept;
    /// Tells the neighbours why the group has failed: what was heard from others, else `code` and
    /// `text`; and to whom a connection has broken, if that is why.
    void announce_failure(Errc code, const std::string& text,
                          std::optional<std::uint32_t> broken_to = std::nullopt) noexcept;

   private:
    struct Line {
        std::uint32_t peer = 0;
        net::Stream* stream = nullptr;
        bool left = false;
        Partial<Notice> notice{};
        std::string text{};  // What has come of the notice's text.
    };

    void connect(Instant deadline, const std::function<void()>& check);
    [[nodiscard]] bool look_for_neighbours();
    [[nodiscard]] bool meet_neighbours_once_more(Instant deadline);
    void meet(GroupFailure failure);
    void read(Line& line);
    void handle(Line& line, const Notice& notice);
    void send(const Notice& notice, const std::string& text) noexcept;

    Mesh& mesh_;
    std::array<Line, 2> lines_;
    bool forming_ = false;             // Connected, but not `formed`.
    std::optional<GroupFailure> met_;  // Before that; `progress` throws it.
    Instant met_until_;                // When, at the latest.
    std::optional<Notice> heard_;
    std::string heard_text_;
};

}  // namespace regroup::cpu
