// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/control_line.h"

#include <regroup/error.h>

#include <algorithm>
#include <utility>

namespace regroup::cpu {

using net::Notice;

namespace {

constexpr Duration kControlCheckInterval = std::chrono::milliseconds(50);

/// How long a rank that has met a failure waits for its neighbours to connect, in order to tell
/// them. Otherwise they would find this rank gone and name it as the cause.
constexpr Duration kFarewellLimit = std::chrono::seconds(1);
/// Shorter than Mesh::kExplanationLimit: it is the explanation.
constexpr Duration kFormingGrace = std::chrono::milliseconds(100);

}  // namespace

ControlLine::ControlLine(Mesh& mesh, Instant deadline, const std::function<void()>& check)
    : mesh_(mesh),
      lines_{Line{.peer = mesh.position().next()}, Line{.peer = mesh.position().previous()}} {
    try {
        connect(deadline, check);
    } catch (GroupFailure& failure) {
        if (meet_neighbours_once_more(deadline)) {
            forming_ = true;
            meet(std::move(failure));
            return;
        }
        announce_failure(failure.code, failure.cause, failure.broken_to);
        throw Error(failure.code, failure.cause);
    } catch (const Error& error) {
        announce_failure(error.code(), error.what());  // `check` threw: do not wait.
        throw;
    }
    forming_ = true;
}

void ControlLine::meet(GroupFailure failure) {
    met_ = std::move(failure);
    met_until_ = after(SteadyClock().now(), kFormingGrace);
}

/// Waits until both neighbours are connected.
void ControlLine::connect(Instant deadline, const std::function<void()>& check) {
    const Peer& next = mesh_.peer(mesh_.position().next());
    const Peer& previous = mesh_.peer(mesh_.position().previous());
    const Outbound& outbound = mesh_.outbound(mesh_.position().next(), ChannelKind::control);
    while (!look_for_neighbours()) {
        if (outbound.ended()) {
            mesh_.tell_break(mesh_.position().next(), outbound.ending());
            throw GroupFailure{.code = Errc::disconnected,
                               .cause = next.name + " " + outbound.ending(),
                               .broken_to = mesh_.position().next()};
        }
        if (check) {
            check();
        }
        const Instant now = SteadyClock().now();
        if (now >= deadline) {
            throw GroupFailure{.code = Errc::deadline_exceeded,
                               .cause = outbound.ready() ? previous.name + " has not called"
                                                         : next.name + " does not answer"};
        }
        watch(mesh_.poll());
        mesh_.turn(check ? std::min(deadline, after(now, kControlCheckInterval)) : deadline);
        progress();
    }
}

/// True if both are connected.
bool ControlLine::look_for_neighbours() {
    Outbound& outbound = mesh_.outbound(lines_[0].peer, ChannelKind::control);
    if (lines_[0].stream == nullptr && outbound.ready()) {
        lines_[0].stream = &outbound.stream();
    }
    if (lines_[1].stream == nullptr) {
        lines_[1].stream = mesh_.inbound(lines_[1].peer, ChannelKind::control);
    }
    return lines_[0].stream != nullptr && lines_[1].stream != nullptr;
}

/// Gives the neighbours another moment to connect; true if they are.
bool ControlLine::meet_neighbours_once_more(Instant deadline) {
    try {
        const Instant until = std::min(deadline, after(SteadyClock().now(), kFarewellLimit));
        const Outbound& outbound = mesh_.outbound(lines_[0].peer, ChannelKind::control);
        while (!look_for_neighbours() && SteadyClock().now() < until &&
               !(outbound.ended() && lines_[1].stream != nullptr)) {
            mesh_.turn(until);
        }
        return look_for_neighbours();
    } catch (const GroupFailure&) {
        return false;  // No other rank can be told.
    } catch (const Error&) {
        return false;
    }
}

void ControlLine::watch(net::PollSet& poll) {
    for (const Line& line : lines_) {
        if (line.stream != nullptr && !line.left && !met_) {
            poll.want_read(*line.stream);
        }
        if (line.stream != nullptr && line.notices.has_unsent() && !line.stream->ended()) {
            poll.want_write(*line.stream);
        }
    }
}

void ControlLine::progress() {
    try {
        for (Line& line : lines_) {
            if (line.stream != nullptr && !met_) {
                read(line);
                line.notices.flush(*line.stream);
            }
        }
    } catch (GroupFailure& failure) {
        if (!forming_) {
            throw;
        }
        meet(std::move(failure));
    }
    if (met_ && (!forming_ || SteadyClock().now() >= met_until_)) {
        throw GroupFailure(*met_);
    }
}

Instant ControlLine::next_deadline() const {
    if (!met_) {
        return Instant::max();
    }
    return forming_ ? met_until_ : Instant();
}

void ControlLine::read(Line& line) {
    while (!line.left) {
        const std::optional<Notice> notice = line.notices.read(*line.stream);
        if (!notice) {
            break;
        }
        handle(line, *notice);
    }
    if (!line.left && (line.stream->input_ended() || line.notices.is_spoilt())) {
        const std::string how = "closed the connection";
        mesh_.tell_break(line.peer, how);
        throw GroupFailure{.code = Errc::disconnected,
                           .cause = mesh_.peer(line.peer).name + " " + how,
                           .broken_to = line.peer};
    }
}

void ControlLine::handle(Line& line, const Notice& notice) {
    if (notice.kind == Notice::Kind::left) {
        line.left = true;
        mesh_.note_left(line.peer);
        return;
    }
    if (notice.kind == Notice::Kind::standing) {
        return handle_standing(line, notice);
    }
    heard_ = notice;
    const std::string reporter = notice.origin < mesh_.position().world_size
                                     ? mesh_.peer(notice.origin).name
                                     : mesh_.peer(line.peer).name;
    if (notice.about == mesh_.position().rank && notice.origin < mesh_.position().world_size) {
        // This rank lives, and may be the only one that knows of the broken connection.
        mesh_.tell_break(notice.origin, "says that the connection broke");
    }
    throw GroupFailure{
        .code = notice.code, .cause = reporter + " reports: " + notice.text, .reported = true};
}

void ControlLine::handle_standing(Line& line, const Notice& notice) {
    const std::optional<Standing> standing = standing_of(notice.text);
    if (!standing || notice.origin >= mesh_.position().world_size ||
        notice.origin == mesh_.position().rank || !standing_listener_) {
        return;
    }
    if (standing_listener_(notice.origin, *standing)) {
        send(&line == &lines_[0] ? lines_[1] : lines_[0], notice);
    }
}

void ControlLine::tell(const Standing& standing) {
    send({.kind = Notice::Kind::standing,
          .origin = mesh_.position().rank,
          .text = text_of(standing)});
}

void ControlLine::announce_leave() noexcept {
    send({.kind = Notice::Kind::left});
}

void ControlLine::announce_failure(Errc code, const std::string& text,
                                   std::optional<std::uint32_t> broken_to) noexcept {
    if (heard_) {
        return send(*heard_);
    }
    // The other ranks see an abort on this rank as a rank that is gone.
    send({.kind = Notice::Kind::failed,
          .code = code == Errc::fenced ? Errc::disconnected : code,
          .origin = mesh_.position().rank,
          .about = broken_to.value_or(Notice::kNobody),
          .text = text});
}

void ControlLine::send(const Notice& notice) noexcept {
    for (Line& line : lines_) {
        send(line, notice);
    }
}

/// A broken connection needs no notice.
void ControlLine::send(Line& line, const Notice& notice) noexcept {
    if (line.stream != nullptr && !line.stream->ended()) {
        line.notices.send(*line.stream, notice);
    }
}

}  // namespace regroup::cpu
