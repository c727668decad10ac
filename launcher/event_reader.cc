// SPDX-License-Identifier: Apache-2.0
#include "launcher/event_reader.h"

#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "launcher/json_fields.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/text/describe.h"

namespace regroup::launcher {

namespace {

// The daemon says something every ten seconds.
constexpr Duration kSilenceLimit = std::chrono::seconds(35);
// Until a daemon that has lost the job is asked again: its nodes may form it anew.
constexpr Duration kAbsencePause = std::chrono::seconds(1);

}  // namespace

EventReader::EventReader(Options options, Handlers handlers)
    : options_(std::move(options)),
      handlers_(std::move(handlers)),
      deadline_(io_),
      pause_(io_),
      job_(options_.wish.job),
      began_ms_(options_.wish.began_ms),
      last_(options_.wish.since),
      client_(io_, options_.endpoints, client_handlers(), std::chrono::seconds(30),
              options_.identity) {}

Result<void> EventReader::run() {
    limit(options_.limit);
    client_.start();
    io_.run();
    return std::move(result_);
}

std::string EventReader::job_text() const {
    return job_.empty() ? "the job" : "job " + job_;
}

rendezvous::ControlClient::Handlers EventReader::client_handlers() {
    rendezvous::ControlClient::Handlers handlers;
    handlers.on_up = [this] {
        if (!is_absent_) {
            ask();
            return;
        }
        pause_.expires_after(kAbsencePause);
        pause_.async_wait([this](boost::system::error_code error) {
            if (!error) {
                ask();
            }
        });
    };
    handlers.on_down = [this] {
        pause_.cancel();
        if (has_begun_ && !is_absent_ && !std::exchange(is_lost_, true)) {
            handlers_.on_note("lost the connection to the daemon; connecting again");
        }
    };
    handlers.on_message = [this](rendezvous::FromDaemon message) {
        if (const auto* page = std::get_if<rendezvous::EventPage>(&message)) {
            take(*page);
        } else if (const auto* operated = std::get_if<rendezvous::Operated>(&message)) {
            refused(operated->text);
        } else if (const auto* refusal = std::get_if<rendezvous::Refused>(&message)) {
            const bool may_be_older = refusal->code == Errc::invalid_argument && !has_begun_;
            end(Failure(refusal->code,
                        describe(refusal->reason) +
                            (may_be_older ? " (a daemon of an older regroup has no events)" : "")));
        }
    };
    handlers.on_trouble = [this](const std::string& reason, bool /*is_answer*/) {
        trouble_ = reason;
    };
    return handlers;
}

void EventReader::ask() {
    rendezvous::Operate wish = options_.wish;
    wish.job = job_;
    wish.since = last_;
    wish.began_ms = began_ms_;
    client_.send(wish);
}

void EventReader::refused(const std::string& reason) {
    if (!options_.wish.follow || !has_begun_) {
        end(Failure(Errc::invalid_argument, reason));
        return;
    }
    limit(kSilenceLimit);
    if (!std::exchange(is_absent_, true)) {
        handlers_.on_note("the daemon does not have " + job_text() + " any more; waiting for it");
    }
}

void EventReader::take(const rendezvous::EventPage& page) {
    if (std::exchange(is_lost_, false) || std::exchange(is_absent_, false)) {
        handlers_.on_note("the daemon is back");
    }
    is_absent_ = false;
    job_ = page.job;
    if (has_begun_ && began_ms_ != page.began_ms) {
        handlers_.on_note(job_text() + " was begun anew; its events are counted from 1 again");
        last_ = 0;
    }
    began_ms_ = page.began_ms;
    has_begun_ = true;
    limit(options_.wish.follow ? kSilenceLimit : options_.limit);
    std::istringstream lines(page.lines);
    for (std::string line; std::getline(lines, line);) {
        take_line(line);
    }
    if (handlers_.on_page) {
        handlers_.on_page();
    }
    if (page.is_last) {
        end({});
    }
}

void EventReader::take_line(const std::string& line) {
    const std::uint64_t number = launcher::number(parse_json(line), "number");
    if (number > last_ + 1) {
        handlers_.on_note(count(number - last_ - 1, "event") +
                          " are missing here: the daemon does not keep them any more");
    }
    last_ = number;
    handlers_.on_line(line);
}

/// Ends the wait for a first answer after `duration`, and a silent connection later.
void EventReader::limit(Duration duration) {
    deadline_.expires_after(duration);
    deadline_.async_wait([this](boost::system::error_code error) {
        if (error) {
            return;
        }
        if (has_begun_ && options_.wish.follow) {
            limit(kSilenceLimit);
            client_.drop();
            return;
        }
        end(Failure(Errc::disconnected, "no daemon has answered within " +
                                            format_duration(options_.limit) +
                                            (trouble_.empty() ? "" : ": " + trouble_)));
    });
}

void EventReader::end(Result<void> result) {
    result_ = std::move(result);
    deadline_.cancel();
    pause_.cancel();
    client_.stop(rendezvous::kClientStopLimit, [this] { io_.stop(); });
}

}  // namespace regroup::launcher
