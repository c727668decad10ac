// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/process/output_relay.h"
#include "agent/process/readable_watch.h"
#include "launcher/ssh/messages.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/files/unique_fd.h"
#include "rendezvous/protocol/framing.h"

namespace regroup::launcher::ssh {

/// The launcher on another machine that has started this node over ssh. One thread.
class Supervisor {
   public:
    /// `orders`: the stdin of the connection.
    explicit Supervisor(UniqueFd orders) : orders_(std::move(orders)) {}

    /// Waits for the next order. Nothing if the connection is closed. Errors: deadline_exceeded;
    /// invalid_argument for bytes that no launcher of this version has sent.
    Result<std::optional<Order>> read(Duration limit);

    /// Takes the word and the name from the launcher.
    void introduce(const Setup& setup);
    /// The name of this node in the launcher's list.
    [[nodiscard]] const std::string& host() const noexcept { return host_; }

    /// Writes a line to stdout. Gives up if nobody takes it within a minute: a launcher that is
    /// stopped for a moment loses no report.
    void tell(const Report& report) const;
    /// The same line, for a caller that must not wait.
    [[nodiscard]] std::string line(const Report& report) const { return line_of(word_, report); }

   private:
    friend class Listener;
    /// Appends to the frames what is there. At the end of the stream the launcher is gone.
    void take_bytes();

    UniqueFd orders_;
    protocol::FrameReader frames_;
    std::string word_;
    std::string host_;
    bool is_gone_ = false;
};

/// Obeys the launcher in an event loop, and shows it that the node lives.
class Listener {
   public:
    struct Handlers {
        std::function<void(int signal)> on_signal;
        /// The connection is closed: the launcher has ended, or nothing reaches it any more.
        std::function<void()> on_gone;
    };

    /// From now on the handlers are called from the event loop, on_gone once. `supervisor` and
    /// `output` outlive the listener, and so does `io`. Errors: system.
    static Result<std::unique_ptr<Listener>> open(boost::asio::io_context& io,
                                                  Supervisor& supervisor,
                                                  agent::OutputRelay& output, Handlers handlers);

   private:
    Listener(boost::asio::io_context& io, Supervisor& supervisor, agent::OutputRelay& output,
             Handlers handlers);
    void obey_all();
    void show_life();

    Supervisor& supervisor_;
    agent::OutputRelay& output_;
    const Handlers handlers_;
    std::optional<agent::ReadableWatch> watch_;
    boost::asio::steady_timer life_;
};

}  // namespace regroup::launcher::ssh
