// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <utility>

#include "launcher/commands.h"
#include "launcher/event_reader.h"
#include "launcher/event_text.h"
#include "launcher/flag_table.h"
#include "launcher/flag_values.h"
#include "launcher/observer_flags.h"
#include "launcher/say.h"

namespace regroup::launcher {

namespace {

constexpr const char* kEventsCommand = "regroup events";

/// Errors: those of EventFollower::run().
Result<void> print_events(DaemonAccess access, const std::string& job, std::uint64_t since,
                          bool follows, bool as_json) {
    EventFollower::Handlers handlers;
    handlers.on_line = [as_json, has_heading = as_json](const std::string& line) mutable {
        if (!std::exchange(has_heading, true)) {
            print(event_heading());
        }
        print(as_json ? event_json(line) : event_text(line));
    };
    handlers.on_pause = [] { std::fflush(stdout); };
    handlers.on_note = [](const std::string& note) {
        std::fflush(stdout);
        complain(kEventsCommand, note);
    };
    EventFollower follower(std::move(access), job, since, follows, std::move(handlers));
    return follower.run();
}

}  // namespace

CommandEnd events_command(std::span<const std::string> arguments) {
    ObserverOptions options;
    bool follow = false;
    bool as_json = false;
    std::int64_t since = 0;
    FlagTable flags(kEventsCommand);
    flags.usage = "regroup events [FLAGS]";
    flags.introduction =
        "Show what has happened to a job: nodes that joined or were lost, rounds, failures and\n"
        "recoveries. The daemon keeps the last 2048 events of a job, fewer of a job with many\n"
        "nodes. The numbers of a job's events are consecutive; a line on stderr says where some\n"
        "are missing.";
    flags.footer =
        "Exit code: 0 for success; 1 if the daemon refuses; 2 for a mistake on the command line;\n"
        "3 if no daemon answers.";
    flags.group("Flags");
    add_job_flag(flags, "Name of the job (--rdzv-id). Needed if the daemon has several jobs",
                 options.job);
    flags.toggle({"--follow", "", "",
                  "Go on with the events to come, until the job ends. After a lost connection it "
                  "goes on after the last event that it has"},
                 follow);
    flags.value(
        {"--since", "N", "0", "Only the events after the one with this number", "--since=120"},
        number_into<std::int64_t>(since, 0, std::int64_t{1} << 53U));
    flags.toggle({"--json", "", "", "Print each event as a line of JSON instead of columns"},
                 as_json);
    add_observer_flags(flags, options);
    return run_with(flags, arguments, [&](const Words& words) -> Result<CommandEnd> {
        if (const Result<void> none = expect_no_words(words, "; name the job with --job"); !none) {
            return none.error();
        }
        Result<DaemonAccess> access = daemon_access(options, security::Role::observer);
        if (!access) {
            return access.error();
        }
        return ending_of(kEventsCommand,
                         print_events(*std::move(access), options.job,
                                      static_cast<std::uint64_t>(since), follow, as_json));
    });
}

}  // namespace regroup::launcher
