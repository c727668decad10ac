// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/control_ring.h"

#include <regroup/error.h>

#include <algorithm>
#include <cstring>

#include "rendezvous/base/text.h"
#include "worker_sdk/src/net/protection.h"

namespace regroup::nccl {
namespace {

constexpr std::size_t kTextMax = 1024;
/// The standings that wait for a neighbour which does not read.
constexpr std::size_t kUnsentBytesMax = std::size_t{256} << 10U;

/// Precedes `text_bytes` of text.
struct NoticeHeader {
    std::uint32_t kind = 0;
    std::uint32_t code = 0;
    std::uint32_t origin = 0;
    std::uint32_t scope = 0;
    std::uint32_t text_bytes = 0;
};

std::string encode(const Notice& notice) {
    const bool is_standing = notice.kind == Notice::Kind::standing;
    const std::string text =
        is_standing ? std::string(reinterpret_cast<const char*>(&notice.standing), sizeof(Standing))
                    : notice.text.substr(0, kTextMax);
    const NoticeHeader header{.kind = static_cast<std::uint32_t>(notice.kind),
                              .code = static_cast<std::uint32_t>(notice.code),
                              .origin = notice.origin,
                              .scope = notice.scope,
                              .text_bytes = static_cast<std::uint32_t>(text.size())};
    std::string bytes(sizeof header, '\0');
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes + text;
}

bool is_sane(const NoticeHeader& header, std::uint32_t world_size) {
    constexpr auto kStanding = static_cast<std::uint32_t>(Notice::Kind::standing);
    return header.kind <= kStanding &&
           (header.kind != kStanding || header.text_bytes == sizeof(Standing)) &&
           header.code <= static_cast<std::uint32_t>(Errc::system) && header.origin < world_size &&
           header.text_bytes <= kTextMax;
}

[[noreturn]] void refuse_neighbour(Errc code, const std::string& name, const std::string& why) {
    throw Error(code,
                "the connection with " + name + ", by which ranks watch over each other, " + why);
}

}  // namespace

std::string ControlRing::Door::text() const {
    return net::bound_address(listener).text() + " " + std::to_string(token);
}

ControlRing::Door ControlRing::open_door(const net::SocketAddress& address) {
    return {.listener = net::listen_on(address), .token = security::random_number()};
}

ControlRing::ControlRing(Door door, const Place& place, const std::string& next, Instant deadline,
                         const std::function<void()>& look_around)
    : rank_(place.rank), world_size_(place.world_size) {
    links_[0].rank = (rank_ + 1) % world_size_;
    links_[1].rank = (rank_ + world_size_ - 1) % world_size_;
    for (Link& link : links_) {
        link.name = "rank " + std::to_string(link.rank);
    }
    net::Hello hello{
        .source = rank_, .target = links_[0].rank, .round = place.round, .group = place.group};
    const std::size_t space = next.find(' ');
    const auto token = parse_number<std::uint64_t>(std::string_view(next).substr(space + 1));
    if (space == std::string::npos || !token) {
        throw Error(Errc::invalid_argument,
                    "the store's entry for " + links_[0].name + " is malformed: \"" + next + "\"");
    }
    hello.token = *token;
    links_[0].name += " (" + next.substr(0, space) + ")";
    net::Outbound dialled(net::SocketAddress::parse(std::string_view(next).substr(0, space)), hello,
                          place.protection);
    net::Acceptor acceptor(std::move(door.listener), {.hello = {.target = rank_,
                                                                .round = place.round,
                                                                .group = place.group,
                                                                .token = door.token},
                                                      .world_size = world_size_,
                                                      .protection = place.protection});
    meet_neighbours(dialled, acceptor, deadline, look_around);
    links_[0].stream.emplace(std::move(dialled.stream()));
}

/// Returns once this rank is connected with both.
void ControlRing::meet_neighbours(net::Outbound& next, net::Acceptor& door, Instant deadline,
                                  const std::function<void()>& look_around) {
    constexpr Duration kTurn = std::chrono::seconds(1);
    Link& previous = links_[1];
    Instant look_at = after(SteadyClock().now(), kTurn);
    net::PollSet poll;
    while (!next.ready() || !previous.stream) {
        if (next.ended()) {
            refuse_neighbour(Errc::disconnected, links_[0].name, "failed: it " + next.ending());
        }
        Instant now = SteadyClock().now();
        if (now >= deadline) {
            refuse_neighbour(Errc::deadline_exceeded, next.ready() ? previous.name : links_[0].name,
                             "was not made in time");
        }
        if (now >= look_at) {
            look_around();
            look_at = after(now, kTurn);
        }
        door.watch(poll);
        next.watch(poll);
        poll.wait(std::min({deadline, look_at, door.next_deadline()}));
        now = SteadyClock().now();
        for (net::Acceptor::Accepted& accepted : door.progress(now)) {
            if (accepted.source == previous.rank) {
                accepted.welcome();
                previous.name += " (" + net::peer_address(accepted.stream.fd).text() + ")";
                previous.stream.emplace(std::move(accepted.stream));
            }
        }
        next.progress();
    }
}

void ControlRing::watch(net::PollSet& poll) {
    for (Link& link : links_) {
        if (link.stream) {
            poll.want_read(*link.stream);
            if (!link.out.empty()) {
                poll.want_write(*link.stream);
            }
        }
    }
}

std::vector<Notice> ControlRing::progress() {
    std::vector<Notice> news;
    for (Link& link : links_) {
        if (link.stream && (link.stream->readable || link.stream->ended())) {
            read(link, news);
        }
        flush(link);
    }
    return news;
}

void ControlRing::read(Link& link, std::vector<Notice>& news) {
    std::array<std::byte, 4096> piece{};
    while (const std::size_t got = link.stream->read_some(piece)) {
        link.in.append(reinterpret_cast<const char*>(piece.data()), got);
    }
    bool broken = link.stream->ended();
    NoticeHeader header;
    while (link.in.size() >= sizeof header) {
        std::memcpy(&header, link.in.data(), sizeof header);
        if (!is_sane(header, world_size_)) {
            broken = true;
            break;
        }
        if (link.in.size() < sizeof header + header.text_bytes) {
            break;
        }
        Notice notice{.kind = static_cast<Notice::Kind>(header.kind),
                      .code = static_cast<Errc>(header.code),
                      .origin = header.origin,
                      .scope = header.scope};
        if (notice.kind == Notice::Kind::standing) {
            std::memcpy(&notice.standing, link.in.data() + sizeof header, sizeof(Standing));
        } else {
            notice.text = link.in.substr(sizeof header, header.text_bytes);
        }
        take(link, std::move(notice), news);
        link.in.erase(0, sizeof header + header.text_bytes);
    }
    if (broken) {
        link.stream.reset();
        if (!link.left) {
            take(link,
                 {.kind = Notice::Kind::ended,
                  .code = Errc::disconnected,
                  .origin = link.rank,
                  .scope = 0,
                  .text = link.name + " is gone: its process closed the connection without a word"},
                 news);
        }
    }
}

void ControlRing::flush(Link& link) {
    while (link.stream && !link.out.empty()) {
        const std::size_t sent = link.stream->write_some(std::as_bytes(std::span(link.out)));
        if (sent == 0) {
            return;  // The socket is full, or the next read reports the end.
        }
        link.out.erase(0, sent);
    }
}

void ControlRing::take(Link& link, Notice notice, std::vector<Notice>& news) {
    if (notice.origin == rank_ || !is_news(notice)) {
        return;
    }
    const bool is_leaving = notice.kind == Notice::Kind::left ||
                            (notice.kind == Notice::Kind::ended && notice.scope == 0);
    for (Link& other : links_) {
        // In a world of two both links lead to the same rank.
        other.left = other.left || (is_leaving && other.rank == notice.origin);
    }
    pass_on(notice, &link);
    news.push_back(std::move(notice));
}

bool ControlRing::is_news(const Notice& notice) {
    if (notice.kind == Notice::Kind::standing) {
        std::uint64_t& newest = versions_[{notice.origin, notice.scope}];
        return std::exchange(newest, std::max(newest, notice.standing.version)) <
               notice.standing.version;
    }
    const std::uint64_t what =
        std::uint64_t{notice.scope} * 2 + (notice.kind == Notice::Kind::ended ? 1 : 0);
    return heard_.emplace(notice.origin, what).second;
}

void ControlRing::announce(const Notice& notice) {
    pass_on(notice, nullptr);
}

void ControlRing::pass_on(const Notice& notice, const Link* except) {
    for (Link& link : links_) {
        const bool is_full =
            notice.kind == Notice::Kind::standing && link.out.size() > kUnsentBytesMax;
        if (&link != except && link.stream && !is_full) {
            link.out += encode(notice);
            flush(link);
        }
    }
}

}  // namespace regroup::nccl
