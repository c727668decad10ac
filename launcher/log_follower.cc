// SPDX-License-Identifier: Apache-2.0
#include "launcher/log_follower.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "launcher/json_fields.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/text/describe.h"

namespace regroup::launcher {

namespace {

using rendezvous::LogStream;

// Between two looks at a log that does not grow, and until a rank is looked for again.
constexpr Duration kGrowthPause = std::chrono::milliseconds(300);
constexpr Duration kRankGrowthPause = std::chrono::seconds(1);
// The daemon takes no more requests than one in each ten milliseconds.
constexpr Duration kPartPause = std::chrono::milliseconds(12);
// A node answers within five seconds, or the daemon says that it did not.
constexpr Duration kLogSilenceLimit = std::chrono::seconds(20);

/// The bytes themselves: those of a log as on the launcher's terminal, and names to send back.
std::string raw_text(const nlohmann::json& object, const char* key) {
    const nlohmann::json& value = field(object, key);
    return value.is_string() ? value.get<std::string>() : "";
}

const char* stream_name(LogStream stream) {
    return stream == LogStream::out ? "stdout" : "stderr";
}

}  // namespace

LogFollower::LogFollower(Options options, Handlers handlers)
    : options_(std::move(options)),
      handlers_(std::move(handlers)),
      deadline_(io_),
      pause_(io_),
      client_(io_, options_.endpoints, client_handlers(), std::chrono::seconds(30),
              options_.identity) {
    for (const LogStream stream : options_.streams) {
        cursors_.push_back({.stream = stream});
    }
}

Result<void> LogFollower::run() {
    limit(options_.limit);
    client_.start();
    io_.run();
    return std::move(result_);
}

rendezvous::ControlClient::Handlers LogFollower::client_handlers() {
    rendezvous::ControlClient::Handlers handlers;
    handlers.on_up = [this] { ask(); };
    handlers.on_down = [this] {
        pause_.cancel();
        if (has_begun_) {
            note_once("lost the connection to the daemon; connecting again");
        }
    };
    handlers.on_message = [this](rendezvous::FromDaemon message) {
        if (const auto* operated = std::get_if<rendezvous::Operated>(&message)) {
            if (operated->done) {
                take(operated->text);
            } else {
                end(Failure(Errc::invalid_argument, operated->text));
            }
        } else if (const auto* refusal = std::get_if<rendezvous::Refused>(&message)) {
            const bool may_be_older = refusal->code == Errc::invalid_argument && !has_begun_;
            end(Failure(refusal->code,
                        describe(refusal->reason) +
                            (may_be_older ? " (a daemon of an older regroup shows no logs)" : "")));
        }
    };
    handlers.on_trouble = [this](const std::string& reason, bool /*is_answer*/) {
        trouble_ = reason;
    };
    return handlers;
}

void LogFollower::ask() {
    const Cursor& cursor = cursors_[current_];
    rendezvous::Operate wish = options_.wish;
    wish.log.stream = cursor.stream;
    wish.log.node = cursor.node;
    wish.log.file = cursor.file;
    wish.log.offset = cursor.offset;
    client_.send(wish);
}

void LogFollower::take(const std::string& answer) {
    const nlohmann::json part = parse_json(answer);
    has_begun_ = true;
    limit(options_.follow ? kLogSilenceLimit : options_.limit);
    if (flag(part, "ended")) {
        end(options_.follow ? Result<void>()
                            : Failure(Errc::closed,
                                      "the job has ended; its nodes keep the output (--log-dir)"));
        return;
    }
    if (const std::string note = text(part, "note"); !note.empty()) {
        if (!options_.follow) {
            end(Failure(Errc::closed, note));
            return;
        }
        note_once(note);
        ask_after(kRankGrowthPause);
        return;
    }
    Cursor& cursor = cursors_[current_];
    take_part(cursor, raw_text(part, "node"), raw_text(part, "file"));
    cursor.offset = number(part, "offset");
    if (const std::string bytes = raw_text(part, "text"); !bytes.empty()) {
        noted_.clear();
        handlers_.on_text(cursor.stream, bytes);
    }
    if (flag(part, "more")) {
        ask_after(kPartPause);
    } else {
        go_on();
    }
}

void LogFollower::take_part(Cursor& cursor, const std::string& node, const std::string& file) {
    const bool had_no_file = std::exchange(cursor.has_no_file, file.empty());
    const bool is_same = cursor.node == node && cursor.file == file;
    if (is_same && (!cursor.has_no_file || had_no_file)) {
        return;
    }
    cursor.node = node;
    cursor.file = file;
    const std::string what = std::string(stream_name(cursor.stream)) + " of rank " +
                             std::to_string(options_.wish.log.rank);
    handlers_.on_note(file.empty() ? "node " + node + " keeps no file of the " + what +
                                         "; the launcher there decides that (--log-dir)"
                                   : what + " is on node " + node + " in " + file);
}

void LogFollower::go_on() {
    if (++current_ < cursors_.size()) {
        ask_after(kPartPause);
        return;
    }
    current_ = 0;
    if (options_.follow) {
        ask_after(kGrowthPause);
        return;
    }
    const bool has_none =
        std::ranges::all_of(cursors_, [](const Cursor& cursor) { return cursor.has_no_file; });
    end(has_none ? Result<void>(Failure(Errc::closed, "there is nothing to show"))
                 : Result<void>());
}

void LogFollower::ask_after(Duration pause) {
    pause_.expires_after(pause);
    pause_.async_wait([this](boost::system::error_code error) {
        if (!error) {
            ask();
        }
    });
}

void LogFollower::note_once(const std::string& note) {
    if (std::exchange(noted_, note) != note) {
        handlers_.on_note(note);
    }
}

/// Ends the wait for a first answer after `duration`, and a silent connection later.
void LogFollower::limit(Duration duration) {
    deadline_.expires_after(duration);
    deadline_.async_wait([this](boost::system::error_code error) {
        if (error) {
            return;
        }
        if (has_begun_ && options_.follow) {
            limit(kLogSilenceLimit);
            client_.drop();
            return;
        }
        end(Failure(Errc::disconnected, "no daemon has answered within " +
                                            format_duration(options_.limit) +
                                            (trouble_.empty() ? "" : ": " + trouble_)));
    });
}

void LogFollower::end(Result<void> result) {
    result_ = std::move(result);
    deadline_.cancel();
    pause_.cancel();
    client_.stop(rendezvous::kClientStopLimit, [this] { io_.stop(); });
}

}  // namespace regroup::launcher
