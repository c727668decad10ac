// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/result.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/core/messages.h"

namespace regroup::launcher {

/// Reads the events of a job from the daemon that leads. When the connection is lost, it asks again
/// for those after the last one that it has. One use.
class EventReader {
   public:
    struct Options {
        std::vector<rendezvous::Endpoint> endpoints;
        rendezvous::Operate wish;  ///< With Action::events.
        /// For an answer; with `wish.follow`, for the first one only.
        Duration limit = std::chrono::seconds(10);
        security::Identity identity;
    };
    struct Handlers {
        /// A line of JSON, without its newline.
        std::function<void(const std::string& line)> on_line;
        /// After the lines of an answer. May be empty.
        std::function<void()> on_page{};
        /// A sentence for people: a lost connection, events that are missing before the next line.
        std::function<void(const std::string& note)> on_note;
    };

    EventReader(Options options, Handlers handlers);

    /// Returns after the last line; with `wish.follow`, after the end of the job. Errors:
    /// disconnected, when no daemon answers in time; otherwise the daemon refuses.
    Result<void> run();

    /// After run(): the job that was read, and its beginning (milliseconds since 1970).
    [[nodiscard]] const std::string& job() const noexcept { return job_; }
    [[nodiscard]] std::int64_t began_ms() const noexcept { return began_ms_; }

   private:
    rendezvous::ControlClient::Handlers client_handlers();
    void ask();
    void take(const rendezvous::EventPage& page);
    void take_line(const std::string& line);
    void refused(const std::string& reason);
    void end(Result<void> result);
    void limit(Duration duration);
    [[nodiscard]] std::string job_text() const;

    const Options options_;
    const Handlers handlers_;
    boost::asio::io_context io_{1};
    boost::asio::steady_timer deadline_;
    boost::asio::steady_timer pause_;
    Result<void> result_;
    std::string trouble_;
    std::string job_;
    std::int64_t began_ms_;
    std::uint64_t last_;      // The number of the last event.
    bool has_begun_ = false;  // A daemon has answered.
    bool is_lost_ = false;    // Then the connection was lost.
    bool is_absent_ = false;  // The daemon does not have the job any more.
    rendezvous::ControlClient client_;
};

}  // namespace regroup::launcher
