// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/collective_links.h"

#include <utility>

#include "rendezvous/base/ensure.h"
#include "worker_sdk/src/group/group_failure.h"

namespace regroup::cpu {

CollectiveLinks::CollectiveLinks(const GroupPosition& position,
                                 std::shared_ptr<const std::vector<Peer>> peers,
                                 std::map<std::uint32_t, Outbound> dialled,
                                 std::map<std::uint32_t, net::Stream> accepted)
    : position_(position),
      peers_(std::move(peers)),
      outbounds_(std::move(dialled)),
      inbounds_(std::move(accepted)) {}

Outbound& CollectiveLinks::outbound(std::uint32_t peer) {
    ENSURE(peer < position_.world_size && peer != position_.rank);
    const auto found = outbounds_.find(peer);
    if (found != outbounds_.end()) {
        return found->second;
    }
    return outbounds_
        .try_emplace(peer, (*peers_)[peer].address,
                     hello_to(position_, (*peers_)[peer], peer, ChannelKind::collective),
                     position_.protection)
        .first->second;
}

net::Stream* CollectiveLinks::inbound(std::uint32_t peer) {
    const auto found = inbounds_.find(peer);
    return found == inbounds_.end() ? nullptr : &found->second;
}

void CollectiveLinks::wait(Instant until) {
    for (auto& [peer, outbound] : outbounds_) {
        outbound.watch(poll_);
    }
    wakeup_.watch(poll_);
    poll_.wait(until);
    static_cast<void>(wakeup_.drain());
    for (auto& [peer, outbound] : outbounds_) {
        outbound.progress();
    }
    look();  // Last: whoever finds a peer gone then has the connection on which its data came.
}

void CollectiveLinks::look() {
    if (stopped_) {
        throw GroupFailure{.code = Errc::fenced, .cause = "the group has ended"};
    }
    if (!has_news_.exchange(false)) {
        return;
    }
    const std::lock_guard lock(mutex_);
    inbounds_.merge(admitted_);
    left_.merge(leaving_);
}

void CollectiveLinks::admit(net::Acceptor::Accepted accepted) {
    {
        const std::lock_guard lock(mutex_);
        net::Stream& admitted =
            admitted_.try_emplace(accepted.source, std::move(accepted.stream)).first->second;
        has_news_ = true;
        // Last: once welcome, the peer may send its part and leave.
        accepted.welcome(admitted);
    }
    wakeup_.ring();
}

void CollectiveLinks::note_left(std::uint32_t peer) {
    {
        const std::lock_guard lock(mutex_);
        leaving_.insert(peer);
    }
    has_news_ = true;
    wakeup_.ring();
}

void CollectiveLinks::stop() noexcept {
    stopped_ = true;
    wakeup_.ring();
}

}  // namespace regroup::cpu
