// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "launcher/daemon_get.h"
#include "launcher/daemon_talk.h"
#include "rendezvous/base/result.h"
#include "rendezvous/client/http_client.h"

namespace regroup::launcher {

/// Reads the events of a job at the daemon that leads: those that it keeps, or also those to come
/// until the job ends. When the connection is lost, it asks again for those after the last one that
/// it has. One use.
class EventFollower {
   public:
    struct Handlers {
        /// A line of JSON, without its newline.
        std::function<void(const std::string& line)> on_line;
        /// After some lines.
        std::function<void()> on_pause;
        /// A sentence for people: a lost connection, events that are missing before the next line.
        std::function<void(const std::string& note)> on_note;
    };

    /// Begins after the event with the number `since`.
    EventFollower(DaemonAccess access, std::string job, std::uint64_t since, bool follows,
                  Handlers handlers);

    /// Errors: those of get_from_daemon() for the first answer.
    Result<void> run() { return talk_.run(client_); }

   private:
    rendezvous::HttpClient::Handlers client_handlers();
    void ask();
    void take(const rendezvous::HttpAnswer& answer);
    void take_text(std::string_view text);
    void take_line(const std::string& line);
    void refused(const std::string& reason);
    [[nodiscard]] std::string job_text() const;

    const Handlers handlers_;
    const bool follows_;
    DaemonTalk talk_;
    std::string job_;
    std::string began_;       // When the job began, as the daemon says it.
    std::uint64_t last_;      // The number of the last event.
    std::string rest_;        // The beginning of a line.
    bool is_lost_ = false;    // The connection was lost after an answer.
    bool is_absent_ = false;  // The daemon does not have the job any more.
    rendezvous::HttpClient client_;
};

}  // namespace regroup::launcher
