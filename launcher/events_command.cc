// SPDX-License-Identifier: Apache-2.0
#include "launcher/events_command.h"

#include <cstdint>
#include <cstdio>
#include <utility>

#include "launcher/event_reader.h"
#include "launcher/event_text.h"
#include "launcher/flag_table.h"
#include "launcher/flag_values.h"
#include "launcher/observer_flags.h"
#include "launcher/say.h"

namespace regroup::launcher {

namespace {

constexpr const char* kEventsCommand = "regroup events";

}  // namespace

int events_command(std::span<const std::string> arguments) {
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
    flags.value(
        {"--job", "ID", "", "Name of the job (--rdzv-id). Needed if the daemon has several jobs",
         "--job=nightly", "-", true},
        name_into(options.job));
    flags.toggle({"--follow", "", "",
                  "Go on with the events to come, until the job ends. After a lost connection it "
                  "goes on after the last event that it has",
                  "", "-", true},
                 follow);
    flags.value({"--since", "N", "0", "Only the events after the one with this number",
                 "--since=120", "-", true},
                number_into<std::int64_t>(since, 0, std::int64_t{1} << 53U));
    flags.toggle(
        {"--json", "", "", "Print each event as a line of JSON instead of columns", "", "-", true},
        as_json);
    add_observer_flags(flags, options);
    const auto parsed = flags.parse_anywhere(arguments);
    if (!parsed) {
        return usage_error(kEventsCommand, parsed.error().detail);
    }
    if (const auto* show = std::get_if<ShowText>(&*parsed)) {
        std::fputs(show->text.c_str(), stdout);
        return 0;
    }
    if (const auto& rest = std::get<std::vector<std::string>>(*parsed); !rest.empty()) {
        return usage_error(kEventsCommand,
                           "takes no '" + rest.front() + "'; name the job with --job");
    }
    Result<EventReader::Options> reader = reader_options(options);
    if (!reader) {
        return usage_error(kEventsCommand, reader.error().detail);
    }
    reader->wish.follow = follow;
    reader->wish.since = static_cast<std::uint64_t>(since);
    bool has_heading = as_json;
    EventReader::Handlers handlers;
    handlers.on_line = [&](const std::string& line) {
        if (!std::exchange(has_heading, true)) {
            print(event_heading());
        }
        print(as_json ? event_json(line) : event_text(line));
    };
    handlers.on_page = [] { std::fflush(stdout); };
    handlers.on_note = [](const std::string& note) {
        std::fflush(stdout);
        complain(kEventsCommand, note);
    };
    return exit_code_of(kEventsCommand, EventReader(std::move(*reader), std::move(handlers)).run());
}

}  // namespace regroup::launcher
