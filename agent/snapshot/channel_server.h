// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "agent/snapshot/open_sockets.h"
#include "agent/snapshot/session_threads.h"
#include "rendezvous/base/result.h"
#include "rendezvous/files/unique_fd.h"
#include "rendezvous/snapshot/channel.h"

namespace regroup::agent {

/// The agent's ends of its workers' channels for snapshots (rendezvous/snapshot/channel.h): a
/// thread for each, which ends with the worker.
class ChannelServer {
   public:
    struct Reply {
        snapshot::Answer answer{};
        UniqueFd file{};  ///< Goes with the answer; may be none.
    };
    /// Called from the threads of the channels, from several at a time. May block.
    using Handler = std::function<Reply(const snapshot::Ask& ask)>;

    explicit ChannelServer(Handler handler) : handler_(std::move(handler)) {}
    /// Ends the channels; waits for what the handler does.
    ~ChannelServer() { sockets_.stop(); }
    ChannelServer(const ChannelServer&) = delete;
    ChannelServer& operator=(const ChannelServer&) = delete;

    /// A new channel: the worker's end. Errors: overloaded, system.
    Result<UniqueFd> open();

   private:
    void serve(int socket);

    Handler handler_;
    OpenSockets sockets_;
    SessionThreads threads_{kChannelsMax};

    static constexpr std::size_t kChannelsMax = 1024;
};

}  // namespace regroup::agent
