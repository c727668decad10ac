// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/commands.h"
#include "launcher/daemon_talk.h"
#include "launcher/flag_values.h"
#include "launcher/observer_flags.h"
#include "launcher/say.h"
#include "launcher/top/follower.h"
#include "launcher/top/plain_lines.h"
#include "launcher/top/terminal.h"
#include "launcher/top/view.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/base/wall_clock.h"
#include "rendezvous/view/event_line.h"

namespace regroup::launcher::top {

namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

constexpr Duration kIntervalMin = std::chrono::milliseconds(200);
constexpr Duration kIntervalMax = std::chrono::minutes(1);
// Ages on the screen count on while no answer comes.
constexpr Duration kRedraw = std::chrono::seconds(1);
// Names of columns are repeated after so many lines.
constexpr std::size_t kLinesPerHeading = 20;
constexpr const char* kName = "regroup top";

struct Options {
    ObserverOptions observer;
    Duration interval = std::chrono::seconds(1);
    std::uint32_t count = 0;
};

/// "21:30:05 UTC".
std::string time_of_day() {
    const std::string time = rendezvous::utc_time(wall_ms());
    return time.substr(time.find('T') + 1, 8) + " UTC";
}

/// Shows each status of the daemon, on a screen or as lines.
class Top {
   public:
    Top(DaemonAccess access, const Options& options)
        : options_(options),
          deadline_(io_),
          redraw_(io_),
          signals_(io_),
          input_(io_),
          view_(options.observer.endpoints, options.observer.job,
                std::max<Duration>(std::chrono::seconds(10), 3 * options.interval)),
          follower_(io_, access.endpoints, options.observer.job, options.interval,
                    std::move(access.identity), handlers()) {}

    CommandEnd run() {
        deadline_.expires_after(options_.observer.limit);
        deadline_.async_wait([this](ErrorCode error) {
            if (!error && !answered_) {
                end(kExitNoRendezvous, no_daemon(options_.observer.limit, trouble_).detail);
            }
        });
        follower_.start();
        io_.run();
        terminal_.reset();
        if (!complaint_.empty()) {
            complain(kName, complaint_);
        }
        return {code_, signal_};
    }

   private:
    Follower::Handlers handlers() {
        return {[this](const std::string& text) { take(text); },
                [this](const std::string& why) {
                    // The first answer tells whether the command makes sense at all.
                    if (answered_) {
                        lose(why);
                    } else {
                        end(kExitJobFailed, why);
                    }
                },
                [this](const std::string& why) { lose(why); }};
    }

    void take(const std::string& text) {
        std::optional<Status> status = parse_status(text);
        if (!status) {
            lose("the daemon sent no status");
            return;
        }
        if (!std::exchange(answered_, true)) {
            deadline_.cancel();
            begin();
        }
        if (!std::exchange(trouble_, "").empty() && !terminal_ && printed_ > 0) {
            complain(kName, "the daemon answers again");
        }
        if (terminal_) {
            view_.take(std::move(*status), now(), time_of_day());
            draw();
        } else {
            print_lines(*status);
        }
        if (options_.count != 0 && ++statuses_ >= options_.count) {
            end(0, "");
        }
    }

    void lose(const std::string& why) {
        const bool is_news = std::exchange(trouble_, why).empty();
        if (terminal_) {
            view_.lose(why);
            draw();
        } else if (answered_ && is_news) {
            complain(kName, "no status since " + time_of_day() + ": " + why);
        }
    }

    /// Chooses between a screen and lines.
    void begin() {
        const std::string objection = Terminal::objection();
        if (!objection.empty()) {
            return;
        }
        for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH}) {
            ErrorCode ignored;
            signals_.add(number, ignored);
        }
        auto terminal = Terminal::open();
        if (!terminal) {
            ErrorCode ignored;
            signals_.clear(ignored);
            complain(kName, terminal.error().detail + "; printing lines");
            return;
        }
        terminal_ = std::move(*terminal);
        ErrorCode ignored;
        input_.assign(::dup(terminal_->input()), ignored);
        await_keys();
        await_signal();
        await_redraw();
    }

    void await_keys() {
        input_.async_wait(asio::posix::stream_descriptor::wait_read, [this](ErrorCode error) {
            if (error || !terminal_) {
                return;
            }
            for (Press press = terminal_->read(); press.key != Key::none;
                 press = terminal_->read()) {
                if (!view_.press(press)) {
                    end(0, "");
                    return;
                }
            }
            if (terminal_->is_gone()) {
                end(0, "");
                return;
            }
            draw();
            await_keys();
        });
    }

    void await_signal() {
        signals_.async_wait([this](ErrorCode error, int number) {
            if (error || !terminal_) {
                return;
            }
            if (number == SIGWINCH) {
                terminal_->resize();
            } else if (number == SIGTSTP) {
                terminal_->suspend();
            } else if (number == SIGCONT) {
                terminal_->restore();
            } else {
                signal_ = number;
                end(0, "");
                return;
            }
            draw();
            await_signal();
        });
    }

    void await_redraw() {
        redraw_.expires_after(kRedraw);
        redraw_.async_wait([this](ErrorCode error) {
            if (!error && terminal_) {
                draw();
                await_redraw();
            }
        });
    }

    void draw() { terminal_->draw(view_.draw(terminal_->size(), now(), terminal_->shows_utf8())); }

    void print_lines(const Status& status) {
        if (printed_ == 0 || lines_ >= kLinesPerHeading) {
            print(plain_heading());
            lines_ = 0;
        }
        const std::vector<std::string> lines = plain_lines(status, time_of_day());
        print(lines);
        lines_ += lines.size();
        printed_ += lines.size();
        if (std::fflush(stdout) != 0) {
            end(0, "");  // The reader is gone.
        }
    }

    void end(int code, std::string complaint) {
        code_ = code;
        complaint_ = std::move(complaint);
        ErrorCode ignored;
        input_.close(ignored);
        signals_.cancel(ignored);
        redraw_.cancel();
        deadline_.cancel();
        follower_.stop([this] { io_.stop(); });
    }

    asio::io_context io_{1};
    const Options& options_;
    asio::steady_timer deadline_;  // Of the first answer.
    asio::steady_timer redraw_;
    asio::signal_set signals_;
    asio::posix::stream_descriptor input_;
    View view_;
    std::unique_ptr<Terminal> terminal_;  // Null: lines are printed.
    bool answered_ = false;
    std::string trouble_;
    std::string complaint_;
    std::uint64_t statuses_ = 0;
    std::size_t lines_ = 0;  // Since the last heading.
    std::size_t printed_ = 0;
    int code_ = 0;
    int signal_ = 0;
    Follower follower_;
};

FlagTable::Take interval_into(Duration& out) {
    return [&out](const std::string& text) -> std::string {
        Duration interval{};
        std::string error = seconds_into(interval, kIntervalMax)(text);
        if (error.empty() && interval < kIntervalMin) {
            return "must be 0.2 or more, not " + in_quotes(text);
        }
        out = error.empty() ? interval : out;
        return error;
    };
}

void describe(FlagTable& flags, Options& out) {
    flags.usage = "regroup top [FLAGS]";
    flags.introduction =
        "Follow the jobs of a daemon: nodes, ranks, steps per second, recoveries and failures.\n"
        "On a terminal the keys sort, filter and choose; ? lists them. Without a terminal it\n"
        "prints a line per job at each interval.";
    flags.footer =
        "Exit code: 0 for success; 1 if the daemon refuses; 2 for a mistake on the command line;\n"
        "3 if no daemon answers at first. Later it waits until one answers again.";
    flags.group("Flags");
    add_job_flag(flags, "Show this job only (--rdzv-id). Without it: all jobs", out.observer.job);
    flags.value({"--interval", "SECONDS", "1",
                 "Time between two answers of the daemon, from 0.2 to 60", "--interval=10"},
                interval_into(out.interval));
    flags.value({"--count", "N", "", "End after so many answers", "--count=1"},
                number_into<std::uint32_t>(out.count, 1, 1'000'000'000));
    add_observer_flags(flags, out.observer);
}

}  // namespace

CommandEnd top_command(std::span<const std::string> arguments) {
    Options options;
    FlagTable flags(kName);
    describe(flags, options);
    return run_with(flags, arguments, [&](const Words& words) -> Result<CommandEnd> {
        if (const Result<void> none = expect_no_words(words); !none) {
            return none.error();
        }
        Result<DaemonAccess> access = daemon_access(options.observer, security::Role::observer);
        if (!access) {
            return access.error();
        }
        try {
            return Top(*std::move(access), options).run();
        } catch (const std::exception& error) {
            // Caught, so that the terminal is given back first.
            complain(kName, std::string("failed: ") + error.what());
            return CommandEnd{kExitJobFailed};
        }
    });
}

}  // namespace regroup::launcher::top
