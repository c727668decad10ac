// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>

#include "agent/process/readable_watch.h"
#include "agent/process/unique_fd.h"
#include "launcher/ssh/messages.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/protocol/framing.h"

namespace regroup::launcher::ssh {

/// The launcher on another machine that has started this node over ssh. One thread.
class Supervisor {
   public:
    struct Handlers {
        std::function<void(int signal)> on_signal;
        /// The connection is closed: the launcher has ended, or nothing reaches it any more.
        std::function<void()> on_gone;
    };

    /// `orders`: the stdin of the connection.
    explicit Supervisor(agent::UniqueFd orders) : orders_(std::move(orders)) {}

    /// Waits for the next order. Nothing if the connection is closed. Errors: deadline_exceeded;
    /// invalid_argument for bytes that no launcher of this version has sent.
    Result<std::optional<Order>> read(Duration limit);

    /// Takes the word and the name from the launcher.
    void introduce(const Setup& setup);
    /// The name of this node in the launcher's list.
    [[nodiscard]] const std::string& host() const noexcept { return host_; }

    /// From now on the handlers are called from the event loop, on_gone once. This object outlives
    /// the loop. Errors: system.
    Result<void> listen(boost::asio::io_context& io, Handlers handlers);

    /// Writes a line to stdout. Gives up if nobody takes it within two seconds.
    void tell(const Report& report) const;

   private:
    void take_bytes();
    void obey_all();

    agent::UniqueFd orders_;
    protocol::FrameReader frames_;
    std::string word_;
    std::string host_;
    Handlers handlers_;
    std::optional<agent::ReadableWatch> watch_;
    bool is_gone_ = false;
};

}  // namespace regroup::launcher::ssh
