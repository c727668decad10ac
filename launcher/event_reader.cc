// SPDX-License-Identifier: Apache-2.0
#include "launcher/event_reader.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "launcher/json_fields.h"
#include "rendezvous/json/json_text.h"

namespace regroup::launcher {

namespace {

// The daemon says something every 15 seconds.
constexpr Duration kSilenceLimit = std::chrono::seconds(35);
// Until a daemon that has lost the job is asked again: its nodes may form it anew.
constexpr Duration kAbsencePause = std::chrono::seconds(1);

}  // namespace

std::string gap_note(std::uint64_t last, std::uint64_t number) {
    return number <= last + 1 ? ""
                              : count(number - last - 1, "event") +
                                    " are missing here: the daemon does not keep them any more";
}

EventFollower::EventFollower(DaemonAccess access, std::string job, std::uint64_t since,
                             Handlers handlers)
    : access_(std::move(access)),
      handlers_(std::move(handlers)),
      deadline_(io_),
      pause_(io_),
      job_(std::move(job)),
      last_(since),
      client_(io_, access_.endpoints, client_handlers(), access_.identity) {}

Result<void> EventFollower::run() {
    limit(access_.limit);
    client_.start();
    io_.run();
    return std::move(result_);
}

std::string EventFollower::job_text() const {
    return job_.empty() ? "the job" : "job " + job_;
}

rendezvous::HttpClient::Handlers EventFollower::client_handlers() {
    rendezvous::HttpClient::Handlers handlers;
    handlers.on_up = [this] {
        rest_.clear();
        ask();
    };
    handlers.on_down = [this] {
        pause_.cancel();
        if (has_begun_ && !is_absent_ && !std::exchange(is_lost_, true)) {
            handlers_.on_note("lost the connection to the daemon; connecting again");
        }
    };
    handlers.on_answer = [this](const rendezvous::HttpAnswer& answer) { take(answer); };
    handlers.on_text = [this](std::string_view text) { take_text(text); };
    handlers.on_trouble = [this](const std::string& reason, bool /*is_answer*/) {
        trouble_ = reason;
    };
    return handlers;
}

void EventFollower::ask() {
    const std::string target = target_of("events", job_);
    client_.get(target + (job_.empty() ? "?" : "&") + "follow=1&since=" + std::to_string(last_) +
                (began_.empty() ? "" : "&began=" + began_));
}

void EventFollower::refused(const std::string& reason) {
    if (!has_begun_) {
        end(Failure(Errc::invalid_argument, reason));
        return;
    }
    if (!std::exchange(is_absent_, true)) {
        handlers_.on_note("the daemon does not have " + job_text() + " any more; waiting for it");
    }
    limit(kSilenceLimit);
    pause_.expires_after(kAbsencePause);
    pause_.async_wait([this](boost::system::error_code error) {
        if (!error) {
            ask();
        }
    });
}

void EventFollower::take(const rendezvous::HttpAnswer& answer) {
    if (const std::optional<std::string> why = refusal_in(answer)) {
        refused(*why);
        return;
    }
    const bool was_lost = std::exchange(is_lost_, false);
    if (std::exchange(is_absent_, false) || was_lost) {
        handlers_.on_note("the daemon is back");
    }
    const auto began = answer.fields.find("regroup-job-began");
    const std::string said = began == answer.fields.end() ? "" : began->second;
    if (has_begun_ && began_ != said) {
        handlers_.on_note(job_text() + " was begun anew; its events are counted from 1 again");
        last_ = 0;
    }
    began_ = said;
    has_begun_ = true;
    limit(kSilenceLimit);
}

void EventFollower::take_text(std::string_view text) {
    limit(kSilenceLimit);
    rest_.append(text);
    std::size_t begin = 0;
    for (std::size_t at = rest_.find('\n'); at != rest_.npos; at = rest_.find('\n', begin)) {
        if (at > begin) {
            take_line(rest_.substr(begin, at - begin));
        }
        begin = at + 1;
    }
    rest_.erase(0, begin);
    handlers_.on_pause();
}

void EventFollower::take_line(const std::string& line) {
    const nlohmann::json event = parse_json(line);
    const std::uint64_t number = launcher::number(event, "number");
    if (const std::string note = gap_note(last_, number); !note.empty()) {
        handlers_.on_note(note);
    }
    last_ = number;
    if (job_.empty()) {
        const nlohmann::json& name = field(event, "job");
        job_ = name.is_string() ? name.get<std::string>() : "";
    }
    handlers_.on_line(line);
    if (launcher::text(event, "event") == "closed") {
        handlers_.on_pause();
        end({});
    }
}

/// Ends the wait for a first answer after `duration`, and a silent connection later.
void EventFollower::limit(Duration duration) {
    deadline_.expires_after(duration);
    deadline_.async_wait([this](boost::system::error_code error) {
        if (error) {
            return;
        }
        if (has_begun_) {
            limit(kSilenceLimit);
            client_.drop();
            return;
        }
        end(no_daemon(access_.limit, trouble_));
    });
}

void EventFollower::end(Result<void> result) {
    result_ = std::move(result);
    deadline_.cancel();
    pause_.cancel();
    client_.stop(rendezvous::kClientStopLimit, [this] { io_.stop(); });
}

}  // namespace regroup::launcher
