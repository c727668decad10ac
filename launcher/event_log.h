// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "launcher/event_log_options.h"
#include "rendezvous/base/result.h"
#include "rendezvous/files/line_log.h"
#include "rendezvous/server/daemon.h"
#include "rendezvous/view/job_history.h"

namespace regroup::launcher {

/// The file of --event-log: the events of the daemon and of the agent of this process, as lines of
/// JSON. Never waits for the disk. docs/events.md describes it.
class EventLog {
   public:
    using Say = std::function<void(const std::string& line)>;

    /// Null if `options` names no file. `source` is "daemon" or "agent": the owner of the line that
    /// counts lost lines. `say` gets the troubles of the file, on the thread of `io`. Errors: the
    /// file cannot be opened; one sentence that names the flag.
    static Result<std::unique_ptr<EventLog>> open(boost::asio::io_context& io,
                                                  const EventLogOptions& options,
                                                  const std::string& source, Say say);

    /// Has the daemon write its events. The log outlives the daemon. With `restores`, the daemon
    /// keeps a journal: of a job that it takes up, it writes what the file does not have yet.
    void write_events_of(rendezvous::Daemon& daemon, bool restores);
    void write(const std::string& line) { log_->write(line); }

   private:
    /// Of the last line of a job.
    struct LastLine {
        std::string time;
        std::uint64_t number = 0;
    };

    EventLog() = default;
    void catch_up(std::int64_t began_ms, const rendezvous::JobHistory& history);

    std::unique_ptr<files::LineLog> log_;
    std::map<std::string, LastLine> last_lines_;  // By the job as it is in a line; as of the start.
    std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

/// {"time":...,"source":...,"event":"lines_lost","count":...}
[[nodiscard]] std::string lines_lost_line(const std::string& source, std::int64_t wall_ms,
                                          std::uint64_t count);

}  // namespace regroup::launcher
