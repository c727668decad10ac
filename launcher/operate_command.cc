// SPDX-License-Identifier: Apache-2.0
#include "launcher/operate_command.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/agent_core.h"
#include "launcher/flag_table.h"
#include "launcher/flag_values.h"
#include "launcher/host.h"
#include "launcher/run_plan.h"
#include "launcher/status_text.h"
#include "rendezvous/client/control_client.h"

namespace regroup::launcher {

namespace {

using rendezvous::Operate;
using rendezvous::Operated;

constexpr std::uint16_t kDefaultPort = 29400;
constexpr Duration kStopLimit = std::chrono::milliseconds(100);

struct OperateOptions {
    std::string endpoints = "localhost";
    std::string job;
    std::string reason;
    Duration limit = std::chrono::seconds(10);
    bool json = false;
};

/// "ann@login1"
std::string author() {
    for (const char* variable : {"LOGNAME", "USER"}) {
        const char* user = std::getenv(variable);
        if (user != nullptr && *user != '\0') {
            return std::string(user) + "@" + short_host_name();
        }
    }
    return "user " + std::to_string(::getuid()) + "@" + short_host_name();
}

/// Says `wish` to whichever daemon leads. Errors: disconnected, with the last trouble, when none
/// has answered within `limit`; what a daemon refused it with.
Result<Operated> ask(const std::vector<rendezvous::Endpoint>& endpoints, const Operate& wish,
                     Duration limit) {
    boost::asio::io_context io(1);
    Result<Operated> answer =
        Failure(Errc::disconnected, "no daemon has answered within " + format_duration(limit));
    std::string trouble;
    std::optional<rendezvous::ControlClient> client;
    const auto take = [&](Result<Operated> result) {
        answer = std::move(result);
        client->stop(kStopLimit, [&io] { io.stop(); });
    };
    rendezvous::ControlClient::Handlers handlers;
    std::string silent;  // Who has been asked, and has not said anything.
    // Who has said why it does not do it, which is told only once.
    std::map<std::string, std::string> answered;
    handlers.on_up = [&] {
        const auto said = answered.find(client->peer());
        silent = said == answered.end() ? client->peer() : "";
        trouble = said == answered.end() ? trouble : said->second;
        client->send(wish);
    };
    handlers.on_down = [] {};
    handlers.on_message = [&](rendezvous::FromDaemon message) {
        if (auto* operated = std::get_if<Operated>(&message)) {
            take(std::move(*operated));
        } else if (const auto* refused = std::get_if<rendezvous::Refused>(&message)) {
            take(Failure(refused->code, refused->reason));
        }
    };
    handlers.on_trouble = [&](const std::string& reason, bool is_answer) {
        trouble = reason;
        silent.clear();
        if (is_answer) {
            answered[client->peer()] = reason;
        }
    };
    client.emplace(io, endpoints, std::move(handlers));
    boost::asio::steady_timer deadline(io, limit);
    deadline.async_wait([&](boost::system::error_code error) {
        if (!error) {
            std::string why = trouble.empty() ? "" : ": " + trouble;
            if (!silent.empty()) {
                why = ": " + silent + " has accepted the connection and says nothing" +
                      (wish.action == Operate::Action::status ? "; is it a regroup daemon?"
                                                              : "; it may do it yet");
            }
            take(Failure(Errc::disconnected,
                         "no daemon has answered within " + format_duration(limit) + why));
        }
    });
    client->start();
    io.run();
    client.reset();
    return answer;
}

void describe(FlagTable& flags, Operate::Action action, OperateOptions& out) {
    if (action == Operate::Action::drain) {
        flags.usage = "regroup drain [FLAGS] NODE";
        flags.introduction =
            "Have one node of a job leave: its workers save their state at the next step boundary "
            "and\n"
            "end, and the others go on. NODE is its name, as regroup status shows it; several\n"
            "launchers of one name, as on one host without --local-addr, leave together.";
    } else if (action == Operate::Action::stop) {
        flags.usage = "regroup stop [FLAGS]";
        flags.introduction = "End a job on all its nodes.";
    } else {
        flags.usage = "regroup status [FLAGS]";
        flags.introduction =
            "Show a daemon's jobs: their nodes, ranks and steps, spares, nodes that are set aside "
            "and\n"
            "why, what is left of their budgets, and the last recoveries. regroup top is the same.";
    }
    flags.footer =
        "Exit code: 0 if it was done, 1 if the daemon says why it was not, 2 for a mistake on the\n"
        "command line, 3 if no daemon answers.";
    flags.group("Flags");
    flags.value({"--endpoint", "HOST:PORT[,HOST:PORT...]", "localhost:29400",
                 "Where the job's daemon listens: the same as --rdzv-endpoint of its nodes",
                 "--endpoint=node0:29400", "-", true},
                text_into(out.endpoints));
    flags.value({"--job", "ID", "", "Which job; without it the only one there is, or all",
                 "--job=nightly", "-", true},
                name_into(out.job));
    if (action == Operate::Action::status) {
        flags.toggle({"--json", "", "", "Print a JSON object", "", "-", true}, out.json);
    } else {
        flags.value({"--reason", "TEXT", "", "Why, for the log and the verdict",
                     "--reason='new memory modules'", "-", true},
                    text_into(out.reason));
    }
    flags.value({"--timeout", "SECONDS", "10", "How long to try", "--timeout=3", "-", true},
                seconds_into(out.limit));
}

int report(Operate::Action action, const std::string& command, const OperateOptions& options,
           const Result<Operated>& answer) {
    if (!answer) {
        std::fprintf(stderr, "regroup %s: %s\n", command.c_str(), answer.error().detail.c_str());
        return answer.error().code == Errc::disconnected ? agent::kExitNoRendezvous
                                                         : agent::kExitJobFailed;
    }
    if (!answer->done) {
        std::fprintf(stderr, "regroup %s: %s\n", command.c_str(), answer->text.c_str());
        return agent::kExitJobFailed;
    }
    const bool table = action == Operate::Action::status && !options.json;
    std::fputs((table ? status_table(answer->text) : answer->text + "\n").c_str(), stdout);
    return 0;
}

}  // namespace

int operate_command(Operate::Action action, std::span<const std::string> arguments) {
    const std::string command(to_string(action));
    OperateOptions options;
    FlagTable flags("regroup " + command);
    describe(flags, action, options);
    const auto complain = [&](const std::string& line) {
        std::fprintf(stderr, "regroup %s: %s\n", command.c_str(), line.c_str());
        return agent::kExitUsage;
    };
    const auto parsed = flags.parse_anywhere(arguments);
    if (!parsed) {
        return complain(parsed.error().detail);
    }
    if (const auto* show = std::get_if<ShowText>(&*parsed)) {
        std::fputs(show->text.c_str(), stdout);
        return 0;
    }
    const auto& rest = std::get<std::vector<std::string>>(*parsed);
    const bool drains = action == Operate::Action::drain;
    if (drains && rest.size() != 1) {
        return complain(rest.empty() ? "needs the NODE that is to leave (regroup status lists them)"
                                     : "takes one NODE, not '" + rest[1] + "' as well");
    }
    if (!drains && !rest.empty()) {
        return complain("takes no '" + rest.front() + "'");
    }
    const auto endpoints = parse_endpoints(options.endpoints, kDefaultPort, "--endpoint");
    if (!endpoints) {
        return complain(endpoints.error().detail);
    }
    const Operate wish{options.job, action, drains ? rest.front() : "", author(), options.reason};
    return report(action, command, options, ask(*endpoints, wish, options.limit));
}

}  // namespace regroup::launcher
