// SPDX-License-Identifier: Apache-2.0
#include "launcher/operate_command.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/flag_table.h"
#include "launcher/flag_values.h"
#include "launcher/host.h"
#include "launcher/run_plan.h"
#include "launcher/say.h"
#include "launcher/status_text.h"
#include "launcher/trust.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/client/answer_parts.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/text/describe.h"

namespace regroup::launcher {

namespace {

using rendezvous::Operate;
using rendezvous::Operated;

struct OperateOptions {
    std::string endpoints = "localhost";
    std::string job;
    std::string reason;
    Duration limit = std::chrono::seconds(10);
    bool wait = false;
    Duration wait_limit = std::chrono::minutes(5);
    security::CredentialSources trust;
    bool json = false;
};

std::string author() {
    return user_name(::getuid()) + "@" + short_host_name();
}

/// Sends a command to the daemon that leads, and waits for its answer. With `drain --wait` it waits
/// for the second answer, which comes when the node has left.
class Conversation {
   public:
    Conversation(const std::vector<rendezvous::Endpoint>& endpoints, const Operate& wish,
                 const OperateOptions& options, security::Identity identity)
        : wish_(wish),
          options_(options),
          deadline_(io_, options.limit),
          second_(io_),
          signals_(io_),
          client_(io_, endpoints, handlers(), std::chrono::seconds(30), std::move(identity)) {}

    /// Errors: disconnected, with the last cause, when no daemon answers in time; deadline_exceeded
    /// when --wait-timeout is over; closed when a signal ends the wait; the code of the daemon when
    /// the daemon refuses the command.
    Result<Operated> run() {
        limit_at_deadline(Errc::disconnected);
        client_.start();
        io_.run();
        return std::move(answer_);
    }
    /// The signal that ended the wait for a drain, or 0.
    [[nodiscard]] int signal() const noexcept { return signal_; }

   private:
    rendezvous::ControlClient::Handlers handlers() {
        rendezvous::ControlClient::Handlers handlers;
        handlers.on_up = [this] {
            const auto said = answered_.find(client_.peer());
            silent_ = said == answered_.end() ? client_.peer() : "";
            trouble_ = said == answered_.end() ? trouble_ : said->second;
            is_taken_up_ = false;
            parts_.forget();
            client_.send(wish_);
        };
        handlers.on_down = [this] {
            if (std::exchange(is_taken_up_, false)) {
                complain("lost the connection to the daemon; asking again");
            }
        };
        handlers.on_message = [this](rendezvous::FromDaemon message) {
            if (auto* part = std::get_if<Operated>(&message)) {
                if (std::optional<Operated> operated = parts_.take(std::move(*part))) {
                    take_answer(std::move(*operated));
                }
            } else if (const auto* refused = std::get_if<rendezvous::Refused>(&message)) {
                take(Failure(refused->code, describe(refused->reason)));
            }
        };
        handlers.on_trouble = [this](const std::string& reason, bool is_answer) {
            trouble_ = reason;
            silent_.clear();
            if (is_answer) {
                answered_[client_.peer()] = reason;
            }
        };
        return handlers;
    }

    void take_answer(Operated operated) {
        if (!wish_.wait || is_taken_up_ || !operated.done) {
            if (waits_ && !is_taken_up_) {
                operated.text += "; the connection was lost while the node was leaving";
            }
            take(std::move(operated));
            return;
        }
        is_taken_up_ = true;
        silent_.clear();
        if (std::exchange(waits_, true)) {
            complain("the daemon is back; waiting again");
            return;
        }
        print(operated.text);
        std::fflush(stdout);
        deadline_.expires_after(options_.wait_limit);
        limit_at_deadline(Errc::deadline_exceeded);
        tell_progress();
        for (const int signal : {SIGINT, SIGTERM}) {
            boost::system::error_code ignored;
            signals_.add(signal, ignored);
        }
        signals_.async_wait([this](boost::system::error_code error, int signal) {
            if (!error) {
                signal_ = signal;
                take(Failure(Errc::closed, "no longer waiting; the node leaves all the same"));
            }
        });
    }

    void tell_progress() {
        progress_.show("waiting for node " + wish_.node + " to leave, for at most " +
                       format_duration(deadline_.expiry() - SteadyClock().now()));
        second_.expires_after(std::chrono::seconds(1));
        second_.async_wait([this](boost::system::error_code error) {
            if (!error) {
                tell_progress();
            }
        });
    }

    void limit_at_deadline(Errc code) {
        deadline_.async_wait([this, code](boost::system::error_code error) {
            if (!error) {
                take(Failure(code, code == Errc::disconnected ? silence() : patience_is_over()));
            }
        });
    }

    [[nodiscard]] std::string silence() const {
        std::string why = trouble_.empty() ? "" : ": " + trouble_;
        if (!silent_.empty()) {
            why = ": " + silent_ + " has accepted the connection and says nothing" +
                  (wish_.action == Operate::Action::status ? "; is it a regroup daemon?"
                                                           : "; it may do it yet");
        }
        return "no daemon has answered within " + format_duration(options_.limit) + why;
    }
    [[nodiscard]] std::string patience_is_over() const {
        return "node " + wish_.node + " has not left within " +
               format_duration(options_.wait_limit) + " (--wait-timeout); " +
               (is_taken_up_
                    ? "it is still to leave, and regroup status shows it"
                    : "the daemon cannot be reached" + (trouble_.empty() ? "" : ": " + trouble_));
    }

    void complain(const std::string& line) {
        progress_.clear();
        launcher::complain("regroup drain", line);
    }

    void take(Result<Operated> result) {
        answer_ = std::move(result);
        progress_.clear();
        deadline_.cancel();
        second_.cancel();
        signals_.cancel();
        client_.stop(rendezvous::kClientStopLimit, [this] { io_.stop(); });
    }

    boost::asio::io_context io_{1};
    const Operate& wish_;
    const OperateOptions& options_;
    rendezvous::AnswerParts parts_;
    Result<Operated> answer_ = Operated{};
    std::string trouble_;
    std::string silent_;  // The endpoint that was asked and has not answered.
    // Endpoints that refused, each with its reason.
    std::map<std::string, std::string> answered_;
    bool waits_ = false;        // A daemon has accepted the drain.
    bool is_taken_up_ = false;  // The daemon has accepted it on this connection.
    int signal_ = 0;
    Progress progress_{"regroup drain"};
    boost::asio::steady_timer deadline_;
    boost::asio::steady_timer second_;
    boost::asio::signal_set signals_;
    rendezvous::ControlClient client_;
};

void describe(FlagTable& flags, Operate::Action action, OperateOptions& out) {
    if (action == Operate::Action::drain) {
        flags.usage = "regroup drain [FLAGS] NODE";
        flags.introduction =
            "Let one node leave its job. Its workers save their state at the next step boundary\n"
            "and end. The other nodes go on. NODE is the name that regroup status shows. All\n"
            "nodes of that name leave: launchers on one host share a name unless each has its own\n"
            "--local-addr. Without --wait the command returns at once.";
    } else if (action == Operate::Action::release) {
        flags.usage = "regroup release [FLAGS] NODE";
        flags.introduction =
            "Let a quarantined node take part in rounds again, before its time is over: its cause\n"
            "is repaired. NODE is the name that regroup status shows.";
    } else if (action == Operate::Action::stop) {
        flags.usage = "regroup stop [FLAGS]";
        flags.introduction = "End a job on all its nodes.";
    } else {
        flags.usage = "regroup status [FLAGS]";
        flags.introduction =
            "Show the jobs of a daemon: nodes, ranks and steps, standbys, quarantined nodes with\n"
            "the reason, used budgets, and the last recoveries. regroup top follows them.";
    }
    flags.footer = std::string("Exit code: 0 for success; 1 if the daemon refuses") +
                   (action == Operate::Action::drain
                        ? ", --wait-timeout is over or the\nnode is lost; 2 for a mistake on the "
                          "command line; 3 if no daemon answers."
                        : "; 2 for a mistake on the command line;\n3 if no daemon answers.");
    flags.group("Flags");
    flags.value({"--endpoint", "HOST:PORT[,HOST:PORT...]", "localhost:29400",
                 "Address of the daemon: the same as --rdzv-endpoint of the nodes",
                 "--endpoint=node0:29400", "-", true},
                text_into(out.endpoints));
    flags.value({"--job", "ID", "",
                 "Name of the job (--rdzv-id). Needed if the daemon has several jobs; status "
                 "without it shows all",
                 "--job=nightly", "-", true},
                name_into(out.job));
    if (action == Operate::Action::status) {
        flags.toggle({"--json", "", "", "Print a JSON object instead of tables", "", "-", true},
                     out.json);
    } else {
        flags.value(
            {"--reason", "TEXT", "", "Reason, shown in messages and in the report of the job",
             "--reason='new memory modules'", "-", true},
            text_into(out.reason));
    }
    if (action == Operate::Action::drain) {
        flags.toggle(
            {"--wait", "", "",
             "Return when the node has left, and print the last step that it saved", "", "-", true},
            out.wait);
        flags.value({"--wait-timeout", "SECONDS", "300",
                     "With --wait: how long to wait after the daemon has accepted the command. The "
                     "node leaves even if the time is over",
                     "--wait-timeout=60", "-", true},
                    seconds_into(out.wait_limit));
    }
    flags.value({"--timeout", "SECONDS", "10", "How long to wait for an answer of the daemon",
                 "--timeout=3", "-", true},
                seconds_into(out.limit));
    add_trust_flags(flags, out.trust);
}

int report(Operate::Action action, const std::string& command, const OperateOptions& options,
           const Result<Operated>& answer) {
    if (!answer) {
        complain("regroup " + command, answer.error().detail);
        return answer.error().code == Errc::disconnected ? kExitNoRendezvous : kExitJobFailed;
    }
    if (!answer->done) {
        complain("regroup " + command, answer->text);
        return kExitJobFailed;
    }
    if (action != Operate::Action::status) {
        print(answer->text);
    } else if (options.json) {
        print(status_json(answer->text));
    } else {
        std::fputs(status_table(answer->text).c_str(), stdout);
    }
    return 0;
}

}  // namespace

int operate_command(Operate::Action action, std::span<const std::string> arguments) {
    const std::string command(to_string(action));
    OperateOptions options;
    FlagTable flags("regroup " + command);
    describe(flags, action, options);
    const auto complain = [&](const std::string& line) {
        launcher::complain("regroup " + command, line);
        return kExitUsage;
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
    const bool takes_node = names_node(action);
    if (takes_node && rest.size() != 1) {
        return complain(!rest.empty() ? "takes one NODE, not '" + rest[1] + "' as well"
                        : action == Operate::Action::drain
                            ? "needs the NODE that is to leave (regroup status lists them)"
                            : "needs the NODE that is quarantined (regroup status lists them)");
    }
    if (!takes_node && !rest.empty()) {
        return complain("takes no '" + rest.front() + "'");
    }
    const auto endpoints =
        rendezvous::parse_endpoints(options.endpoints, kRendezvousPort, "--endpoint");
    if (!endpoints) {
        return complain(endpoints.error().detail);
    }
    Operate wish{options.job, action,         takes_node ? rest.front() : "",
                 author(),    options.reason, options.wait};
    wish.parts = action == Operate::Action::status;
    Result<security::Credentials> credentials = read_credentials(options.trust);
    if (!credentials) {
        return complain(credentials.error().detail);
    }
    const bool only_reads = action == Operate::Action::status;
    Conversation conversation(
        *endpoints, wish, options,
        {std::move(*credentials),
         {only_reads ? security::Role::observer : security::Role::operator_role, options.job}});
    const int code = report(action, command, options, conversation.run());
    if (conversation.signal() != 0) {
        std::signal(conversation.signal(), SIG_DFL);
        std::raise(conversation.signal());
    }
    return code;
}

}  // namespace regroup::launcher
