// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

#include "rendezvous/base/clock.h"

namespace regroup::agent {

/// One of this process's own output streams, written without ever blocking.
///
/// O_NONBLOCK would change the terminal for everyone who shares it, so a pipe or terminal is opened
/// anew for our own use; a regular file never blocks. What is not taken at once is queued up to a
/// bound; beyond it whole lines are dropped, and the number is said when the stream moves again.
class TerminalStream {
   public:
    /// `fd` is 1 or 2 and stays open.
    TerminalStream(boost::asio::io_context& io, int fd);
    ~TerminalStream();
    TerminalStream(const TerminalStream&) = delete;
    TerminalStream& operator=(const TerminalStream&) = delete;

    /// `lines` ends with a newline.
    void write(std::string_view lines);
    /// Waits until the queue is empty, for at most `limit`.
    void flush(Duration limit);

   private:
    struct Impl;
    std::shared_ptr<Impl> impl_;
};

}  // namespace regroup::agent
