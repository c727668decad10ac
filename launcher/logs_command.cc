// SPDX-License-Identifier: Apache-2.0
#include "launcher/logs_command.h"

#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "launcher/flag_table.h"
#include "launcher/flag_values.h"
#include "launcher/log_follower.h"
#include "launcher/observer_flags.h"
#include "launcher/say.h"
#include "rendezvous/base/text.h"

namespace regroup::launcher {

namespace {

using rendezvous::LogStream;

constexpr const char* kLogsCommand = "regroup logs";
constexpr std::int64_t kLogLinesMax = 10000;

std::optional<std::vector<LogStream>> streams_of(const std::string& word) {
    if (word == "both") {
        return std::vector{LogStream::out, LogStream::err};
    }
    for (const LogStream stream : {LogStream::out, LogStream::err}) {
        if (word == to_string(stream)) {
            return std::vector{stream};
        }
    }
    return std::nullopt;
}

struct LogsOptions {
    ObserverOptions observer;
    bool follow = false;
    std::int64_t lines = 20;
    std::string stream = "both";
};

void describe_logs(FlagTable& flags, LogsOptions& out) {
    flags.usage = "regroup logs [FLAGS] [JOB] RANK";
    flags.introduction =
        "Show the last lines of a rank's output, from the file on the node where it runs. What it\n"
        "wrote to stdout goes to stdout, and the rest to stderr. JOB is needed if the daemon has\n"
        "several jobs.";
    flags.footer =
        "Exit code: 0 for success; 1 if the daemon refuses, or the rank runs nowhere now; 2 for a\n"
        "mistake on the command line; 3 if no daemon answers.";
    flags.group("Flags");
    flags.toggle({"--follow", "", "",
                  "Go on with what the rank writes, until the job ends, also after it was "
                  "started again or on another node",
                  "", "-", true},
                 out.follow);
    flags.value({"--lines", "N", "20",
                 "How many of the last lines of each stream; of the last 64 KiB at most",
                 "--lines=100", "-", true},
                number_into<std::int64_t>(out.lines, 0, kLogLinesMax));
    flags.value(
        {"--stream", "NAME", "both", "Which output: out, err or both", "--stream=err", "-", true},
        text_into(out.stream));
    add_observer_flags(flags, out.observer);
}

}  // namespace

int logs_command(std::span<const std::string> arguments) {
    LogsOptions options;
    FlagTable flags(kLogsCommand);
    describe_logs(flags, options);
    const auto parsed = flags.parse_anywhere(arguments);
    if (!parsed) {
        return usage_error(kLogsCommand, parsed.error().detail);
    }
    if (const auto* show = std::get_if<ShowText>(&*parsed)) {
        std::fputs(show->text.c_str(), stdout);
        return 0;
    }
    const auto& rest = std::get<std::vector<std::string>>(*parsed);
    if (rest.empty() || rest.size() > 2) {
        return usage_error(kLogsCommand, rest.empty()
                                             ? "needs the RANK (regroup status lists them)"
                                             : "takes [JOB] RANK, not '" + rest[2] + "' as well");
    }
    const auto rank = parse_number<std::uint32_t>(rest.back());
    if (!rank) {
        return usage_error(kLogsCommand, "'" + rest.back() + "' is no rank");
    }
    const auto streams = streams_of(options.stream);
    if (!streams) {
        return usage_error(kLogsCommand,
                           "--stream must be out, err or both, not '" + options.stream + "'");
    }
    options.observer.job = rest.size() == 2 ? rest.front() : "";
    Result<EventReader::Options> reader = reader_options(options.observer);
    if (!reader) {
        return usage_error(kLogsCommand, reader.error().detail);
    }
    LogFollower::Options follower{.endpoints = std::move(reader->endpoints),
                                  .wish = reader->wish,
                                  .streams = *streams,
                                  .limit = reader->limit,
                                  .identity = std::move(reader->identity)};
    follower.identity.scope.role = security::Role::operator_role;
    follower.wish.action = rendezvous::Operate::Action::logs;
    follower.wish.follow = options.follow;
    follower.wish.log.rank = *rank;
    follower.wish.log.lines = static_cast<std::uint32_t>(options.lines);
    LogFollower::Handlers handlers;
    handlers.on_text = [](LogStream stream, const std::string& text) {
        std::FILE* const to = stream == LogStream::out ? stdout : stderr;
        std::fwrite(text.data(), 1, text.size(), to);
        std::fflush(to);
    };
    handlers.on_note = [](const std::string& note) { complain(kLogsCommand, note); };
    return exit_code_of(kLogsCommand, LogFollower(std::move(follower), std::move(handlers)).run());
}

}  // namespace regroup::launcher
