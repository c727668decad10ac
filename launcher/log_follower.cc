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

const char* stream_name(LogStream stream) {
    return stream == LogStream::out ? "stdout" : "stderr";
}

}  // namespace

LogFollower::LogFollower(DaemonAccess access, Request request, Handlers handlers)
    : wish_(std::move(request.wish)),
      follow_(request.follow),
      handlers_(std::move(handlers)),
      talk_(access.limit, follow_ ? kLogSilenceLimit : Duration::zero()),
      client_(talk_.io(), std::move(access.endpoints), client_handlers(), std::chrono::seconds(30),
              std::move(access.identity)) {
    for (const LogStream stream : request.streams) {
        cursors_.push_back({.stream = stream});
    }
}

rendezvous::ControlClient::Handlers LogFollower::client_handlers() {
    rendezvous::ControlClient::Handlers handlers;
    handlers.on_up = [this] { ask(); };
    handlers.on_down = [this] {
        talk_.forget_pause();
        if (talk_.has_begun()) {
            note_once("lost the connection to the daemon; connecting again");
        }
    };
    handlers.on_message = [this](rendezvous::FromDaemon message) {
        if (const auto* operated = std::get_if<rendezvous::Operated>(&message)) {
            if (operated->done) {
                take(operated->text);
            } else {
                talk_.end(Failure(Errc::invalid_argument, operated->text));
            }
        } else if (const auto* refusal = std::get_if<rendezvous::Refused>(&message)) {
            const bool may_be_older = refusal->code == Errc::invalid_argument && !talk_.has_begun();
            talk_.end(
                Failure(refusal->code,
                        describe(refusal->reason) +
                            (may_be_older ? " (a daemon of an older regroup shows no logs)" : "")));
        }
    };
    handlers.on_trouble = [this](const std::string& reason, bool /*is_answer*/) {
        talk_.note_trouble(reason);
    };
    return handlers;
}

void LogFollower::ask() {
    const Cursor& cursor = cursors_[current_];
    rendezvous::Operate wish = wish_;
    wish.log.stream = cursor.stream;
    wish.log.node = cursor.node;
    wish.log.file = cursor.file;
    wish.log.offset = cursor.offset;
    client_.send(wish);
}

void LogFollower::take(const std::string& answer) {
    const nlohmann::json part = parse_json(answer);
    talk_.heard();
    if (flag_in(part, "ended")) {
        talk_.end(follow_ ? Result<void>()
                          : Failure(Errc::closed,
                                    "the job has ended; its nodes keep the output (--log-dir)"));
        return;
    }
    if (const std::string note = text_in(part, "note"); !note.empty()) {
        if (!follow_) {
            talk_.end(Failure(Errc::closed, note));
            return;
        }
        note_once(note);
        ask_after(kRankGrowthPause);
        return;
    }
    Cursor& cursor = cursors_[current_];
    take_part(cursor, text_in(part, "node"), text_in(part, "file"));
    cursor.offset = number_in(part, "offset");
    if (const std::string bytes = text_in(part, "text"); !bytes.empty()) {
        noted_.clear();
        handlers_.on_text(cursor.stream, bytes);
    }
    if (flag_in(part, "more")) {
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
    const std::string what =
        std::string(stream_name(cursor.stream)) + " of rank " + std::to_string(wish_.log.rank);
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
    if (follow_) {
        ask_after(kGrowthPause);
        return;
    }
    const bool has_none =
        std::ranges::all_of(cursors_, [](const Cursor& cursor) { return cursor.has_no_file; });
    talk_.end(has_none ? Result<void>(Failure(Errc::closed, "there is nothing to show"))
                       : Result<void>());
}

void LogFollower::ask_after(Duration pause) {
    talk_.go_on_after(pause, [this] { ask(); });
}

void LogFollower::note_once(const std::string& note) {
    if (std::exchange(noted_, note) != note) {
        handlers_.on_note(note);
    }
}

}  // namespace regroup::launcher
