// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "launcher/commands.h"
#include "launcher/flag_table.h"
#include "launcher/flag_values.h"
#include "launcher/log_follower.h"
#include "launcher/observer_flags.h"
#include "launcher/say.h"
#include "rendezvous/base/names.h"
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
    const std::optional<LogStream> stream = value_named<LogStream>(word);
    return stream ? std::optional(std::vector{*stream}) : std::nullopt;
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
        "Show the last lines of a rank's output, from the file on the node where it runs. Its\n"
        "stdout goes to stdout, and its stderr to stderr. JOB is needed if the daemon has several\n"
        "jobs.";
    flags.footer =
        "Exit code: 0 for success; 1 if the daemon refuses, or the rank runs nowhere now; 2 for a\n"
        "mistake on the command line; 3 if no daemon answers.";
    flags.group("Flags");
    flags.toggle({"--follow", "", "",
                  "Go on with what the rank writes, until the job ends, also after it was "
                  "started again or on another node"},
                 out.follow);
    flags.value(
        {"--lines", "N", "20",
         "How many of the last lines of each stream; of the last 64 KiB at most", "--lines=100"},
        number_into<std::int64_t>(out.lines, 0, kLogLinesMax));
    flags.value({"--stream", "NAME", "both", "Which output: out, err or both", "--stream=err"},
                text_into(out.stream));
    add_observer_flags(flags, out.observer);
}

Result<CommandEnd> show(LogsOptions& options, const Words& words) {
    if (words.empty() || words.size() > 2) {
        return invalid_argument(words.empty() ? "needs the RANK (regroup status lists them)"
                                              : "takes [JOB] RANK, not '" + words[2] + "' as well");
    }
    const auto rank = parse_number<std::uint32_t>(words.back());
    if (!rank) {
        return invalid_argument("'" + words.back() + "' is no rank");
    }
    const auto streams = streams_of(options.stream);
    if (!streams) {
        return invalid_argument("--stream must be out, err or both, not '" + options.stream + "'");
    }
    options.observer.job = words.size() == 2 ? words.front() : "";
    Result<DaemonAccess> access = daemon_access(options.observer, security::Role::operator_role);
    if (!access) {
        return access.error();
    }
    LogFollower::Request request{
        .wish = wish_of(options.observer), .streams = *streams, .follow = options.follow};
    request.wish.action = rendezvous::Operate::Action::logs;
    request.wish.log.rank = *rank;
    request.wish.log.lines = static_cast<std::uint32_t>(options.lines);
    LogFollower::Handlers handlers;
    handlers.on_text = [](LogStream stream, const std::string& text) {
        std::FILE* const to = stream == LogStream::out ? stdout : stderr;
        std::fwrite(text.data(), 1, text.size(), to);
        std::fflush(to);
    };
    handlers.on_note = [](const std::string& note) { complain(kLogsCommand, note); };
    LogFollower follower(*std::move(access), std::move(request), std::move(handlers));
    return ending_of(kLogsCommand, follower.run());
}

}  // namespace

CommandEnd logs_command(std::span<const std::string> arguments) {
    LogsOptions options;
    FlagTable flags(kLogsCommand);
    describe_logs(flags, options);
    return run_with(flags, arguments, [&](const Words& words) { return show(options, words); });
}

}  // namespace regroup::launcher
