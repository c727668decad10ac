// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "worker_sdk/src/cpu/peer.h"
#include "worker_sdk/src/cpu/wire.h"
#include "worker_sdk/src/net/acceptor.h"
#include "worker_sdk/src/net/poll_set.h"
#include "worker_sdk/src/net/socket.h"
#include "worker_sdk/src/net/wakeup.h"

namespace regroup::cpu {

/// The connections that carry collectives. They belong to the thread that executes collectives. It
/// dials the peers; the helper thread admits the peers that dial, and hands their connections over.
class CollectiveLinks {
   public:
    /// `dialled` and `accepted` are the connections that the mesh has made while the group formed.
    CollectiveLinks(const GroupPosition& position, std::shared_ptr<const std::vector<Peer>> peers,
                    std::map<std::uint32_t, Outbound> dialled,
                    std::map<std::uint32_t, net::Stream> accepted);

    // The executing thread, one at a time.
    [[nodiscard]] const GroupPosition& position() const noexcept { return position_; }
    [[nodiscard]] const std::string& name(std::uint32_t rank) const {
        return peers_->at(rank).name;
    }
    /// The connection on which this rank sends to `peer`; dialled by the first call.
    [[nodiscard]] Outbound& outbound(std::uint32_t peer);
    /// The connection on which `peer` sends, or nullptr until the peer has dialled.
    [[nodiscard]] net::Stream* inbound(std::uint32_t peer);
    [[nodiscard]] std::map<std::uint32_t, net::Stream>& inbounds() noexcept { return inbounds_; }
    [[nodiscard]] bool has_left(std::uint32_t peer) const { return left_.contains(peer); }
    /// Further descriptors that the next `wait` waits for.
    [[nodiscard]] net::PollSet& poll() noexcept { return poll_; }
    /// Waits for an event, `until` at most, and continues the handshakes. Throws GroupFailure
    /// `fenced` if `stop` was called.
    void wait(Instant until);
    /// Takes over what the helper thread has handed over, without waiting. Throws likewise.
    void look();

    // Any thread.
    /// Hands over a connection, whose peer waits for its welcome.
    void admit(net::Acceptor::Accepted accepted);
    void note_left(std::uint32_t peer);
    /// Makes `wait` and `look` throw, now and in future.
    void stop() noexcept;

   private:
    const GroupPosition position_;
    const std::shared_ptr<const std::vector<Peer>> peers_;
    std::map<std::uint32_t, Outbound> outbounds_;
    std::map<std::uint32_t, net::Stream> inbounds_;
    std::set<std::uint32_t> left_;
    net::PollSet poll_;

    net::Wakeup wakeup_;
    std::atomic<bool> has_news_ = false;
    std::atomic<bool> stopped_ = false;
    std::mutex mutex_;
    std::map<std::uint32_t, net::Stream> admitted_;  // guarded by mutex_
    std::set<std::uint32_t> leaving_;                // guarded by mutex_
};

}  // namespace regroup::cpu
