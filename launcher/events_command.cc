// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <utility>

#include "launcher/commands.h"
#include "launcher/event_reader.h"
#include "launcher/event_text.h"
#include "launcher/flag_table.h"
#include "launcher/flag_values.h"
#include "launcher/json_fields.h"
#include "launcher/observer_flags.h"
#include "launcher/say.h"
#include "rendezvous/json/json_text.h"

namespace regroup::launcher {

namespace {

constexpr const char* kEventsCommand = "regroup events";

class EventPrinter {
   public:
    explicit EventPrinter(bool as_json) : as_json_(as_json), has_heading_(as_json) {}

    /// Errors: those of get_from_daemon().
    Result<void> print_kept(const DaemonAccess& access, const std::string& job,
                            std::uint64_t last) {
        const std::string target = target_of("events", job);
        const Result<std::string> text = get_from_daemon(
            access, target + (job.empty() ? "?" : "&") + "since=" + std::to_string(last));
        if (!text) {
            return text.error();
        }
        std::istringstream lines(*text);
        for (std::string line; std::getline(lines, line);) {
            const std::uint64_t number = number_in(parse_json(line), "number");
            note(gap_note(last, number));
            last = number;
            put(line);
        }
        std::fflush(stdout);
        return {};
    }
    /// Errors: those of EventFollower::run().
    Result<void> follow(const DaemonAccess& access, const std::string& job, std::uint64_t last) {
        EventFollower follower(
            access, job, last,
            {[this](const std::string& line) { put(line); }, [] { std::fflush(stdout); },
             [](const std::string& text) { note(text); }});
        return follower.run();
    }

   private:
    void put(const std::string& line) {
        if (!std::exchange(has_heading_, true)) {
            print(event_heading());
        }
        print(as_json_ ? event_json(line) : event_text(line));
    }
    static void note(const std::string& text) {
        if (!text.empty()) {
            std::fflush(stdout);
            complain(kEventsCommand, text);
        }
    }

    const bool as_json_;
    bool has_heading_;
};

}  // namespace

Ending events_command(std::span<const std::string> arguments) {
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
    return run_with(flags, arguments, [&](const Words& words) -> Result<Ending> {
        if (const Result<void> none = expect_no_words(words, "; name the job with --job"); !none) {
            return none.error();
        }
        const Result<DaemonAccess> access = daemon_access(options, security::Role::observer);
        if (!access) {
            return access.error();
        }
        const auto last = static_cast<std::uint64_t>(since);
        EventPrinter printer(as_json);
        return ending_of(kEventsCommand, follow ? printer.follow(*access, options.job, last)
                                                : printer.print_kept(*access, options.job, last));
    });
}

}  // namespace regroup::launcher
