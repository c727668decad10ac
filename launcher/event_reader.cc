// SPDX-License-Identifier: Apache-2.0
#include "launcher/event_reader.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "launcher/json_fields.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/json/json_text.h"

namespace regroup::launcher {

namespace {

// The daemon says something every 15 seconds.
constexpr Duration kSilenceLimit = std::chrono::seconds(35);
// Until a daemon that has lost the job is asked again: its nodes may form it anew.
constexpr Duration kAbsencePause = std::chrono::seconds(1);

}  // namespace

EventFollower::EventFollower(DaemonAccess access, std::string job, std::uint64_t since,
                             bool follows, Handlers handlers)
    : handlers_(std::move(handlers)),
      follows_(follows),
      talk_(access.limit, follows ? kSilenceLimit : Duration::zero()),
      job_(std::move(job)),
      last_(since),
      client_(talk_.io(), std::move(access.endpoints), client_handlers(),
              std::move(access.identity)) {}

std::string EventFollower::job_text() const {
    return job_.empty() ? "the job" : "job " + job_;
}

rendezvous::HttpClient::Handlers EventFollower::client_handlers() {
    rendezvous::HttpClient::Handlers handlers;
    handlers.on_up = [this] {
        rest_.clear();
        talk_.note_silence(client_.peer());
        ask();
    };
    handlers.on_down = [this] {
        talk_.forget_pause();
        if (talk_.has_begun() && !is_absent_ && !std::exchange(is_lost_, true)) {
            handlers_.on_note("lost the connection to the daemon; connecting again");
        }
    };
    handlers.on_answer = [this](const rendezvous::HttpAnswer& answer) { take(answer); };
    handlers.on_text = [this](std::string_view text) { take_text(text); };
    handlers.on_trouble = [this](const std::string& reason, bool /*is_answer*/) {
        talk_.note_trouble(reason);
    };
    return handlers;
}

void EventFollower::ask() {
    const std::string target = target_of("events", job_);
    client_.get(target + (job_.empty() ? "?" : "&") + (follows_ ? "follow=1&since=" : "since=") +
                std::to_string(last_) + (began_.empty() ? "" : "&began=" + began_));
}

void EventFollower::refused(const std::string& reason) {
    if (!talk_.has_begun()) {
        talk_.end(Failure(Errc::invalid_argument, reason));
        return;
    }
    if (!std::exchange(is_absent_, true)) {
        handlers_.on_note("the daemon does not have " + job_text() + " any more; waiting for it");
    }
    talk_.heard();
    talk_.go_on_after(kAbsencePause, [this] { ask(); });
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
    if (talk_.has_begun() && began_ != said) {
        handlers_.on_note(job_text() + " was begun anew; its events are counted from 1 again");
        last_ = 0;
    }
    began_ = said;
    talk_.heard();
    if (!answer.is_stream) {
        take_text(answer.body);
        talk_.end({});
    }
}

void EventFollower::take_text(std::string_view text) {
    talk_.heard();
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
    const std::uint64_t number = number_in(event, "number");
    if (number > last_ + 1) {
        handlers_.on_note(counted(number - last_ - 1, "event") +
                          " are missing here: the daemon does not keep them any more");
    }
    last_ = number;
    if (job_.empty()) {
        job_ = text_in(event, "job");
    }
    handlers_.on_line(line);
    if (follows_ && text_in(event, "event") == "closed") {
        handlers_.on_pause();
        talk_.end({});
    }
}

}  // namespace regroup::launcher
