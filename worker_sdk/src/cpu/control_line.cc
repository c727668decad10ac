// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/control_line.h"

#include <regroup/error.h>

#include <algorithm>

namespace regroup::cpu {
namespace {

constexpr Duration kCheckInterval = std::chrono::milliseconds(50);

/// Waits until both neighbours are connected.
void connect_neighbours(Mesh& mesh, Instant deadline, const std::function<void()>& check) {
    const Peer& next = mesh.peer(mesh.seat().next());
    const Peer& previous = mesh.peer(mesh.seat().previous());
    Outbound& outbound = mesh.outbound(mesh.seat().next(), ChannelKind::control);
    while (true) {
        const bool dialled = outbound.ready();
        const bool called = mesh.inbound(mesh.seat().previous(), ChannelKind::control) != nullptr;
        if (dialled && called) {
            return;
        }
        if (outbound.ended()) {
            throw Error(Errc::disconnected, next.name + " " + outbound.ending());
        }
        if (check) {
            check();
        }
        const Instant now = SteadyClock().now();
        if (now >= deadline) {
            throw Error(Errc::deadline_exceeded, dialled ? previous.name + " has not called"
                                                         : next.name + " does not answer");
        }
        mesh.turn(check ? std::min(deadline, after(now, kCheckInterval)) : deadline);
    }
}

}  // namespace

ControlLine::ControlLine(Mesh& mesh, Instant deadline, const std::function<void()>& check)
    : mesh_(mesh) {
    connect_neighbours(mesh, deadline, check);
    const Seat& seat = mesh.seat();
    lines_[0] = {.peer = seat.next(),
                 .stream = &mesh.outbound(seat.next(), ChannelKind::control).stream()};
    lines_[1] = {.peer = seat.previous(),
                 .stream = mesh.inbound(seat.previous(), ChannelKind::control)};
}

void ControlLine::watch(PollSet& poll) {
    for (const Line& line : lines_) {
        if (!line.left) {
            poll.want_read(*line.stream);
        }
    }
}

void ControlLine::progress() {
    for (Line& line : lines_) {
        read(line);
    }
}

void ControlLine::read(Line& line) {
    while (!line.left && line.stream->readable && !line.stream->input_ended()) {
        if (!line.notice.complete()) {
            line.notice.filled(line.stream->read_some(line.notice.space()));
        }
        if (!line.notice.complete()) {
            continue;
        }
        const Notice notice = line.notice.value();
        const std::size_t wanted =
            std::min(notice.text_bytes, Notice::kTextBytesMax) - line.text.size();
        if (wanted > 0) {
            std::array<std::byte, Notice::kTextBytesMax> buffer{};
            const std::size_t count = line.stream->read_some(std::span(buffer).first(wanted));
            line.text.append(reinterpret_cast<const char*>(buffer.data()), count);
        }
        if (line.text.size() == std::min(notice.text_bytes, Notice::kTextBytesMax)) {
            handle(line, notice);
        }
    }
    if (!line.left && line.stream->input_ended()) {
        throw GroupFailure{.code = Errc::disconnected,
                           .cause = mesh_.peer(line.peer).name + " closed the connection"};
    }
}

void ControlLine::handle(Line& line, const Notice& notice) {
    if (notice.kind == NoticeKind::leave) {
        line.left = true;
        mesh_.note_left(line.peer);
        return;
    }
    heard_ = notice;
    heard_text_ = line.text;
    const std::string reporter = notice.reporter < mesh_.seat().world_size
                                     ? mesh_.peer(notice.reporter).name
                                     : mesh_.peer(line.peer).name;
    throw GroupFailure{.code = notice.code, .cause = reporter + " reports: " + line.text};
}

void ControlLine::announce_leave() noexcept {
    send({.kind = NoticeKind::leave}, {});
}

void ControlLine::announce_failure(Errc code, const std::string& text) noexcept {
    if (heard_) {
        return send(*heard_, heard_text_);
    }
    const auto bytes =
        static_cast<std::uint32_t>(std::min<std::size_t>(text.size(), Notice::kTextBytesMax));
    // To the others an abort here is one more rank that is gone.
    send({.kind = NoticeKind::failure,
          .code = code == Errc::fenced ? Errc::disconnected : code,
          .reporter = mesh_.seat().rank,
          .text_bytes = bytes},
         text);
}

void ControlLine::send(const Notice& notice, const std::string& text) noexcept {
    const auto head = bytes_of(notice);
    const std::array<iovec, 2> parts{iovec{const_cast<std::byte*>(head.data()), head.size()},
                                     iovec{const_cast<char*>(text.data()),
                                           std::min<std::size_t>(text.size(), notice.text_bytes)}};
    for (Line& line : lines_) {
        // The line has never carried anything, so there is room; one that is broken needs no news.
        static_cast<void>(line.stream->write_some(parts));
    }
}

}  // namespace regroup::cpu
