// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "agent/process/child_process.h"
#include "agent/process/line_splitter.h"
#include "agent/process/linux_launcher.h"
#include "agent/process/readable_watch.h"
#include "launcher/ssh/messages.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/files/unique_fd.h"

namespace regroup::launcher::ssh {

/// One client of ssh and the node at its other end. One thread. Handlers must not destroy it.
class HostSession {
   public:
    struct Handlers {
        std::function<void(const Report& report)> on_report;
        /// Whole lines that are no reports, as they came.
        std::function<void(bool from_stderr, std::string_view lines, std::size_t count)> on_lines;
        /// The client has ended, and everything it has written was delivered. The last call.
        std::function<void(agent::ExitStatus status)> on_end;
    };

    /// `word` begins the node's reports. All references outlive it.
    HostSession(boost::asio::io_context& io, const Clock& clock, std::string word,
                Handlers handlers);
    /// Kills the client if it still runs.
    ~HostSession();
    HostSession(const HostSession&) = delete;
    HostSession& operator=(const HostSession&) = delete;

    /// Starts `command`, whose first word is an absolute path, with the environment of this
    /// process. Errors: system.
    Result<void> start(agent::LinuxLauncher& launcher, const std::vector<std::string>& command);
    /// Sends a frame to the node. No error if nobody takes it. Frames that wait are bounded by
    /// what the caller sends.
    void send(std::string frame);
    /// Kills the client, and so closes the connection. on_end follows.
    void kill();

   private:
    struct Stream {
        std::optional<agent::ReadableWatch> pipe;  ///< Until the client has ended.
        agent::LineSplitter splitter;
    };

    void write_next();
    Result<void> open(Stream& stream, UniqueFd read_end);
    /// Delivers some bytes of the pipe, if it has any. False at its end.
    bool read_some(Stream& stream);
    /// Delivers what the ended client has left in the pipe. A process that it has left in the
    /// background may hold the pipe open.
    void drain(Stream& stream);
    void deliver(const Stream& stream,
                 const std::function<void(const agent::LineSplitter::Sink&)>& split);

    boost::asio::io_context& io_;
    const Clock& clock_;
    const std::string word_;
    const Handlers handlers_;
    boost::asio::posix::stream_descriptor orders_;
    std::deque<std::string> unsent_;
    Stream out_;
    Stream err_;
    std::optional<agent::ChildProcess> client_;
};

}  // namespace regroup::launcher::ssh
