// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/control_ring.h"

#include <regroup/error.h>

#include <algorithm>

#include "rendezvous/base/text.h"
#include "worker_sdk/src/net/protection.h"

namespace regroup::nccl {
namespace {

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

ControlRing::ControlRing(Door door, const Member& place, const std::string& next, Instant deadline,
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
            if (link.notices.has_unsent()) {
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
        if (link.stream) {
            link.notices.flush(*link.stream);
        }
    }
    return news;
}

void ControlRing::read(Link& link, std::vector<Notice>& news) {
    while (auto notice = link.notices.read(*link.stream)) {
        take(link, *std::move(notice), news);
    }
    if (link.stream->ended() || link.notices.is_spoilt()) {
        link.stream.reset();
        if (!link.left) {
            take(link,
                 {.kind = Notice::Kind::failed,
                  .code = Errc::disconnected,
                  .origin = link.rank,
                  .about = 0,
                  .text = link.name + " is gone: its process closed the connection without a word"},
                 news);
        }
    }
}

void ControlRing::take(Link& link, Notice notice, std::vector<Notice>& news) {
    if (notice.origin == rank_ || notice.origin >= world_size_ || !is_news(notice)) {
        return;
    }
    const bool is_leaving = notice.kind == Notice::Kind::left ||
                            (notice.kind == Notice::Kind::failed && notice.about == 0);
    for (Link& other : links_) {
        // In a world of two both links lead to the same rank.
        other.left = other.left || (is_leaving && other.rank == notice.origin);
    }
    pass_on(notice, &link);
    news.push_back(std::move(notice));
}

bool ControlRing::is_news(const Notice& notice) {
    if (notice.kind == Notice::Kind::standing) {
        const std::uint64_t version = standing_of(notice.text).value_or(Standing()).version;
        std::uint64_t& newest = versions_[{notice.origin, notice.about}];
        return std::exchange(newest, std::max(newest, version)) < version;
    }
    const std::uint64_t what =
        std::uint64_t{notice.about} * 2 + (notice.kind == Notice::Kind::failed ? 1 : 0);
    return heard_.emplace(notice.origin, what).second;
}

void ControlRing::announce(const Notice& notice) {
    pass_on(notice, nullptr);
}

void ControlRing::pass_on(const Notice& notice, const Link* except) {
    for (Link& link : links_) {
        if (&link != except && link.stream) {
            link.notices.send(*link.stream, notice);
        }
    }
}

}  // namespace regroup::nccl
