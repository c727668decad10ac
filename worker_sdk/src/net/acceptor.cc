// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/net/acceptor.h"

#include <regroup/error.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "rendezvous/base/result.h"

namespace regroup::net {
namespace {

/// For a connection without an Introduction.
constexpr Duration kIntroductionLimit = std::chrono::seconds(10);
/// Few enough that those which are accepted together are also heard before they must make room.
constexpr std::size_t kAcceptsPerTurn = Acceptor::kVisitorsMax / 4;

}  // namespace

void Acceptor::Accepted::welcome(Stream& moved) const {
    static_cast<void>(moved.write_some(bytes_of(answer)));  // It always fits.
    moved.expect(session.proof);
    if (session.keys) {
        moved.encrypt(*session.keys);
    }
}

Acceptor::Acceptor(UniqueFd listener, const Guests& guests)
    : listener_{.fd = std::move(listener)}, guard_(listener_.fd.get()), guests_(guests) {}

bool Acceptor::expects(const Hello& hello) const {
    Hello right = guests_.hello;
    right.source = hello.source;
    right.kind = hello.kind;
    return hello == right && hello.source < guests_.world_size && hello.source != hello.target &&
           hello.kind < guests_.kinds && !admitted_.contains({hello.source, hello.kind});
}

void Acceptor::watch(PollSet& poll) {
    poll.want_read(listener_);
    for (Visitor& visitor : visitors_) {
        poll.want_read(visitor.stream);
    }
}

Instant Acceptor::next_deadline() const {
    return visitors_.empty() ? Instant::max() : visitors_.front().until;
}

/// Makes room. A caller that has begun to speak is the last to go.
void Acceptor::send_away_one() {
    const auto silent = std::ranges::find_if(
        visitors_, [](const Visitor& visitor) { return !visitor.introduction.started(); });
    visitors_.erase(silent == visitors_.end() ? visitors_.begin() : silent);
}

void Acceptor::accept_some(Instant now) {
    for (std::size_t count = 0; listener_.readable && count < kAcceptsPerTurn; ++count) {
        UniqueFd socket(
            ::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (socket) {
            if (visitors_.size() == kVisitorsMax) {
                send_away_one();
            }
            visitors_.push_back(
                {.stream = Stream(std::move(socket)), .until = after(now, kIntroductionLimit)});
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            listener_.readable = false;
        } else if ((errno == EMFILE || errno == ENFILE) && !visitors_.empty()) {
            send_away_one();
        } else if (errno != EINTR && errno != ECONNABORTED) {
            throw Error(Errc::system, system_failure("accept", errno).detail);
        }
    }
}

std::vector<Acceptor::Accepted> Acceptor::progress(Instant now) {
    std::vector<Accepted> accepted;
    accept_some(now);
    for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
        Stream& stream = visitor->stream;
        if (stream.readable) {
            visitor->introduction.filled(stream.read_some(visitor->introduction.space()));
        }
        if (!visitor->introduction.complete()) {
            const bool hopeless = stream.ended() || now >= visitor->until;
            visitor = hopeless ? visitors_.erase(visitor) : std::next(visitor);
            continue;
        }
        const Introduction introduction = visitor->introduction.value();
        const Hello& hello = introduction.hello;
        const HandshakeAnswer decision =
            expects(hello) ? judge(introduction, guests_.protection) : HandshakeAnswer::stranger;
        const Welcome answer = make_welcome(decision, introduction, guests_.protection);
        if (decision == HandshakeAnswer::welcome) {
            admitted_.insert({hello.source, hello.kind});
            accepted.push_back(
                {.source = hello.source,
                 .kind = hello.kind,
                 .stream = std::move(stream),
                 .answer = answer,
                 .session = result_of(End::accepting, introduction, answer, guests_.protection)});
        } else {
            static_cast<void>(stream.write_some(bytes_of(answer)));
        }
        visitor = visitors_.erase(visitor);
    }
    return accepted;
}

}  // namespace regroup::net
