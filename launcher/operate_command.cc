// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/commands.h"
#include "launcher/daemon_talk.h"
#include "launcher/flag_values.h"
#include "launcher/observer_flags.h"
#include "launcher/say.h"
#include "launcher/top/status_table.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/text/describe.h"

namespace regroup::launcher {

namespace {

using rendezvous::Operate;
using rendezvous::Operated;

struct OperateOptions {
    ObserverOptions observer;
    std::string reason;
    bool wait = false;
    Duration wait_limit = std::chrono::minutes(5);
};

/// Sends a command to the daemon that leads, and waits for its answer. With `drain --wait` it waits
/// for the second answer, which comes when the node has left.
class Conversation {
   public:
    Conversation(DaemonAccess access, Operate wish, const OperateOptions& options)
        : wish_(std::move(wish)),
          options_(options),
          deadline_(io_, options.observer.limit),
          second_(io_),
          signals_(io_),
          client_(io_, std::move(access.endpoints), handlers(), std::chrono::seconds(30),
                  std::move(access.identity)) {}

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
            client_.send(wish_);
        };
        handlers.on_down = [this] {
            if (std::exchange(is_taken_up_, false)) {
                complain("lost the connection to the daemon; asking again");
            }
        };
        handlers.on_message = [this](rendezvous::FromDaemon message) {
            if (auto* operated = std::get_if<Operated>(&message)) {
                take_answer(std::move(*operated));
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
                take(code == Errc::disconnected ? silence() : Failure(code, patience_is_over()));
            }
        });
    }

    [[nodiscard]] Failure silence() const {
        return no_daemon(
            options_.observer.limit,
            silent_.empty()
                ? trouble_
                : silent_ + " has accepted the connection and says nothing; it may do it yet");
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
    const Operate wish_;
    const OperateOptions& options_;
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

constexpr const char* kOperateFooter =
    "Exit code: 0 for success; 1 if the daemon refuses; 2 for a mistake on the command line;\n"
    "3 if no daemon answers.";
const std::string kJobHelp = "Name of the job (--rdzv-id). Needed if the daemon has several jobs";

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
    } else {
        flags.usage = "regroup stop [FLAGS]";
        flags.introduction = "End a job on all its nodes.";
    }
    flags.footer =
        action == Operate::Action::drain
            ? "Exit code: 0 for success; 1 if the daemon refuses, --wait-timeout is over "
              "or the\nnode is lost; 2 for a mistake on the command line; 3 if no "
              "daemon answers."
            : kOperateFooter;
    flags.group("Flags");
    add_job_flag(flags, kJobHelp, out.observer.job);
    flags.value({"--reason", "TEXT", "", "Reason, shown in messages and in the report of the job",
                 "--reason='new memory modules'"},
                text_into(out.reason));
    if (action == Operate::Action::drain) {
        flags.toggle({"--wait", "", "",
                      "Return when the node has left, and print the last step that it saved"},
                     out.wait);
        flags.value({"--wait-timeout", "SECONDS", "300",
                     "With --wait: how long to wait after the daemon has accepted the command. The "
                     "node leaves even if the time is over",
                     "--wait-timeout=60"},
                    seconds_into(out.wait_limit));
    }
    add_observer_flags(flags, out.observer);
}

CommandEnd report(const std::string& command, const Result<Operated>& answer) {
    if (!answer || !answer->done) {
        return ending_of(command, answer ? Failure(Errc::closed, answer->text) : answer.error());
    }
    print(answer->text);
    return {};
}

Result<std::string> node_in(const Words& words, Operate::Action action) {
    if (!names_node(action)) {
        const Result<void> none = expect_no_words(words);
        return none ? std::string() : Result<std::string>(none.error());
    }
    if (words.size() == 1) {
        return words.front();
    }
    return invalid_argument(!words.empty() ? "takes one NODE, not '" + words[1] + "' as well"
                            : action == Operate::Action::drain
                                ? "needs the NODE that is to leave (regroup status lists them)"
                                : "needs the NODE that is quarantined (regroup status lists them)");
}

CommandEnd operate(Operate::Action action, std::span<const std::string> arguments) {
    OperateOptions options;
    FlagTable flags("regroup " + std::string(to_string(action)));
    describe(flags, action, options);
    return run_with(flags, arguments, [&](const Words& words) -> Result<CommandEnd> {
        const Result<std::string> node = node_in(words, action);
        if (!node) {
            return node.error();
        }
        Result<DaemonAccess> access =
            daemon_access(options.observer, security::Role::operator_role);
        if (!access) {
            return access.error();
        }
        Operate wish = wish_of(options.observer);
        wish.action = action;
        wish.node = *node;
        wish.reason = options.reason;
        wish.wait = options.wait;
        Conversation conversation(*std::move(access), std::move(wish), options);
        CommandEnd ending = report(flags.command(), conversation.run());
        ending.signal = conversation.signal();
        return ending;
    });
}

}  // namespace

CommandEnd drain_command(std::span<const std::string> arguments) {
    return operate(Operate::Action::drain, arguments);
}

CommandEnd release_command(std::span<const std::string> arguments) {
    return operate(Operate::Action::release, arguments);
}

CommandEnd stop_command(std::span<const std::string> arguments) {
    return operate(Operate::Action::stop, arguments);
}

CommandEnd status_command(std::span<const std::string> arguments) {
    const std::string command = "regroup status";
    ObserverOptions observer;
    bool json = false;
    FlagTable flags(command);
    flags.usage = "regroup status [FLAGS]";
    flags.introduction =
        "Show the jobs of a daemon: nodes, ranks and steps, standbys, quarantined nodes with\n"
        "the reason, used budgets, and the last recoveries. regroup top follows them.";
    flags.footer = kOperateFooter;
    flags.group("Flags");
    add_job_flag(flags, kJobHelp + "; without it all are shown", observer.job);
    flags.toggle({"--json", "", "", "Print a JSON object instead of tables"}, json);
    add_observer_flags(flags, observer);
    return run_with(flags, arguments, [&](const Words& words) -> Result<CommandEnd> {
        if (const Result<void> none = expect_no_words(words); !none) {
            return none.error();
        }
        const Result<DaemonAccess> access = daemon_access(observer, security::Role::observer);
        if (!access) {
            return access.error();
        }
        const Result<std::string> status =
            get_from_daemon(*access, target_of("jobs", observer.job));
        if (!status) {
            return ending_of(command, status.error());
        }
        if (json) {
            print(top::status_json(*status));
        } else {
            std::fputs(top::status_table(*status).c_str(), stdout);
        }
        return CommandEnd{};
    });
}

}  // namespace regroup::launcher
