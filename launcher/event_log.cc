// SPDX-License-Identifier: Apache-2.0
#include "launcher/event_log.h"

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include <boost/asio/post.hpp>

#include "rendezvous/base/wall_clock.h"
#include "rendezvous/view/event_line.h"
#include "rendezvous/view/json_writer.h"

namespace regroup::launcher {

namespace {

/// The beginning of a line of the daemon, in which nothing is converted.
struct Head {
    std::string_view time;
    std::string_view job;  // With its quotes.
    std::uint64_t number = 0;
};

/// The text between `before` and `after` at the beginning of `text`, which then begins after both.
std::optional<std::string_view> cut(std::string_view& text, std::string_view before,
                                    std::string_view after) {
    if (!text.starts_with(before)) {
        return std::nullopt;
    }
    const std::size_t end = text.find(after, before.size());
    if (end == text.npos) {
        return std::nullopt;
    }
    const std::string_view part = text.substr(before.size(), end - before.size());
    text.remove_prefix(end + after.size());
    return part;
}

std::optional<Head> head_of(std::string_view line) {
    const auto time = cut(line, R"({"time":")", R"(","source":"daemon",)");
    const auto job = time ? cut(line, R"("job":)", R"(,"number":)") : std::nullopt;
    Head head;
    if (!job || std::from_chars(line.begin(), line.end(), head.number).ec != std::errc()) {
        return std::nullopt;
    }
    head.time = *time;
    head.job = *job;
    return head;
}

}  // namespace

Result<std::unique_ptr<EventLog>> EventLog::open(boost::asio::io_context& io,
                                                 const EventLogOptions& options,
                                                 const std::string& source, Say say) {
    if (options.file.empty()) {
        return std::unique_ptr<EventLog>();
    }
    std::unique_ptr<EventLog> log(new EventLog());
    files::LineLog::Options file;
    file.path = options.file;
    file.bytes_max = std::uint64_t{options.megabytes} << 20U;
    file.lost_line = [source](std::uint64_t count) {
        return lines_lost_line(source, wall_ms(), count);
    };
    file.on_trouble = [executor = io.get_executor(), say = std::move(say),
                       alive = std::weak_ptr(log->alive_)](const std::string& trouble) {
        boost::asio::post(executor, [say, alive, trouble] {
            if (!alive.expired()) {
                say("--event-log: " + trouble + "; events are missing there while that lasts");
            }
        });
    };
    Result<std::unique_ptr<files::LineLog>> opened = files::LineLog::open(std::move(file));
    if (!opened) {
        return Failure(opened.error().code, "--event-log: " + opened.error().detail);
    }
    log->log_ = std::move(*opened);
    return log;
}

void EventLog::write_events_of(rendezvous::Daemon& daemon, bool restores) {
    if (restores) {
        log_->read([this](std::string_view line) {
            if (const auto head = head_of(line)) {
                last_lines_.insert_or_assign(std::string(head->job),
                                             LastLine{std::string(head->time), head->number});
            }
        });
    }
    rendezvous::Daemon::EventSink sink;
    sink.on_event = [this](const std::string& /*job*/, const rendezvous::RecordedEvent& event) {
        log_->write(*event.line);
    };
    sink.on_restored = [this](const std::string& /*job*/, std::int64_t began_ms,
                              const rendezvous::JobHistory& history) {
        catch_up(began_ms, history);
    };
    daemon.add_event_sink(std::move(sink));
}

void EventLog::catch_up(std::int64_t began_ms, const rendezvous::JobHistory& history) {
    for (const rendezvous::RecordedEvent& event : history.events()) {
        const auto head = head_of(*event.line);
        const auto place = head ? last_lines_.find(std::string(head->job)) : last_lines_.end();
        // A line from before the job began is of another job of the same name.
        const bool is_there = place != last_lines_.end() && event.number <= place->second.number &&
                              place->second.time >= rendezvous::utc_time(began_ms);
        if (!is_there) {
            log_->write(*event.line);
        }
    }
}

std::string lines_lost_line(const std::string& source, std::int64_t wall_ms, std::uint64_t count) {
    std::string line;
    rendezvous::JsonWriter out(line);
    out.begin_object();
    out.field("time", rendezvous::utc_time(wall_ms));
    out.field("source", source);
    out.field("event", "lines_lost");
    out.field("count", count);
    out.end_object();
    return line;
}

}  // namespace regroup::launcher
