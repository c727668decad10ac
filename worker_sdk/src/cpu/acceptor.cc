// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/acceptor.h"

#include <regroup/error.h>

#include <cerrno>
#include <iterator>

#include "rendezvous/base/result.h"

namespace regroup::cpu {
namespace {

// Limits for connections without a Hello. Beyond the first limit, callers wait in the kernel's
// queue.
constexpr std::size_t kVisitorsMax = 64;
constexpr Duration kIntroductionLimit = std::chrono::seconds(10);

}  // namespace

Acceptor::Acceptor(net::Descriptor listener, const Hello& expected, std::uint32_t world_size)
    : listener_{.fd = std::move(listener)},
      guard_(listener_.fd.get()),
      expected_(expected),
      world_size_(world_size) {}

bool Acceptor::admits(const Hello& hello) const {
    Hello right = expected_;
    right.source = hello.source;
    right.kind = hello.kind;
    return hello == right && hello.source < world_size_ && hello.source != hello.target &&
           static_cast<std::uint32_t>(hello.kind) < kChannelKinds &&
           !admitted_.contains({hello.source, hello.kind});
}

void Acceptor::watch(net::PollSet& poll) {
    if (visitors_.size() < kVisitorsMax) {
        poll.want_read(listener_);
    }
    for (Visitor& visitor : visitors_) {
        poll.want_read(visitor.stream);
    }
}

Instant Acceptor::next_deadline() const {
    return visitors_.empty() ? Instant::max() : visitors_.front().until;
}

void Acceptor::accept_all(Instant now) {
    while (listener_.readable && visitors_.size() < kVisitorsMax) {
        net::Descriptor socket(
            ::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (socket.is_open()) {
            visitors_.push_back({.stream = net::Stream(std::move(socket)),
                                 .until = after(now, kIntroductionLimit),
                                 .hello = {}});
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            listener_.readable = false;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            throw Error(Errc::system, system_failure("accept", errno).detail);
        }
    }
}

std::vector<Acceptor::Accepted> Acceptor::progress(Instant now) {
    accept_all(now);
    std::vector<Accepted> accepted;
    for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
        net::Stream& stream = visitor->stream;
        if (stream.readable) {
            visitor->hello.filled(stream.read_some(visitor->hello.space()));
        }
        if (!visitor->hello.complete()) {
            const bool hopeless = stream.ended() || now >= visitor->until;
            visitor = hopeless ? visitors_.erase(visitor) : std::next(visitor);
            continue;
        }
        const Hello hello = visitor->hello.value();
        if (admits(hello)) {
            admitted_.insert({hello.source, hello.kind});
            accepted.push_back({hello.source, hello.kind, std::move(stream)});
        }
        visitor = visitors_.erase(visitor);
    }
    return accepted;
}

}  // namespace regroup::cpu
