// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/run.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <map>
#include <signal.h>
#include <thread>

#include "tests/chaos/breaker.h"
#include "tests/chaos/floats.h"
#include "tests/chaos/records.h"
#include "tests/chaos/snapshot_history.h"

namespace regroup::chaos {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook(10);
constexpr std::chrono::seconds kProgressInterval(10);
/// Delay after which a node that ends by itself is restarted, as by a scheduler.
constexpr std::chrono::seconds kSupervise(1);
/// How late a fault may end: a drain waits for a step boundary, then for the grace period.
constexpr std::chrono::seconds kEndPatience(20);
constexpr std::chrono::seconds kFinishLimit(60);
constexpr std::size_t kWeights = 256;
/// Exit code of a node whose workers have saved their state and left.
constexpr int kDrained = 75;
/// Exit code of a node that has waited in vain for a place, without `--standbys`.
constexpr int kNotNeeded = 3;

std::int64_t now_ns() {
    return std::chrono::nanoseconds(steady_clock::now().time_since_epoch()).count();
}

std::string last_lines(const std::string& text) {
    constexpr std::size_t kLines = 6;
    const std::vector<std::string> lines = testing::lines_of(text);
    std::string result;
    for (std::size_t i = lines.size() - std::min(lines.size(), kLines); i < lines.size(); ++i) {
        result += "\n        " + lines[i];
    }
    return result;
}

class Run {
   public:
    Run(Cluster& cluster, const ClusterPlan& cluster_plan, const SchedulePlan& plan)
        : cluster_(cluster), cluster_plan_(cluster_plan), plan_(plan), breaker_(cluster) {}

    RunResult go(const std::vector<Fault>& schedule) {
        cluster_.start_daemon();
        for (std::uint32_t node = 0; node < cluster_plan_.nodes; ++node) {
            cluster_.start_node(node);
        }
        begin_ = steady_clock::now();
        for (const Fault& fault : schedule) {
            result_.deeds.emplace_back().fault = fault;
        }
        while (steady_clock::now() - begin_ < plan_.lasts || !open_.empty()) {
            step();
            std::this_thread::sleep_for(kLook);
        }
        finish();
        judge_all();
        return std::move(result_);
    }

   private:
    void say(const std::string& text) {
        const std::chrono::duration<double> at = steady_clock::now() - begin_;
        std::printf("  %8.3f  %s\n", at.count(), text.c_str());
        std::fflush(stdout);
        said_at_ = steady_clock::now();
    }
    /// After a while without another line.
    void say_progress() {
        if (steady_clock::now() < said_at_ + kProgressInterval) {
            return;
        }
        const auto seconds = [](auto time) {
            return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count());
        };
        say(seconds(steady_clock::now() - begin_) + " of " + seconds(plan_.lasts) + " s, " +
            std::to_string(next_) + " of " + std::to_string(result_.deeds.size()) + " faults");
    }
    void add(const std::string& what, std::vector<std::string> wrongs) {
        result_.verdicts.lines.push_back({what, std::move(wrongs)});
    }

    void step() {
        const auto at = steady_clock::now() - begin_;
        while (next_ < result_.deeds.size() && result_.deeds[next_].fault.at <= at) {
            begin_deed(next_++);
        }
        std::erase_if(open_, [&](std::size_t number) {
            return result_.deeds[number].fault.at + result_.deeds[number].fault.lasts <= at &&
                   end_deed(number);
        });
        supervise();
        say_progress();
    }
    void begin_deed(std::size_t number) {
        Deed& deed = result_.deeds[number];
        deed.began_at = now_ns();
        deed.done = breaker_.begin(number, deed.fault);
        say((deed.done ? "" : "(not there) ") + describe(deed.fault).substr(11));
        if (deed.done && deed.fault.lasts > milliseconds(0)) {
            open_.push_back(number);
        }
    }
    bool end_deed(std::size_t number) {
        Deed& deed = result_.deeds[number];
        deed.exit_code = cluster_.node(deed.fault.node).await_end(std::chrono::milliseconds(0));
        if (!breaker_.end(number, deed.fault)) {
            const auto late = std::chrono::nanoseconds(now_ns() - deed.began_at) - deed.fault.lasts;
            if (late < kEndPatience) {
                return false;
            }
            surprises_.push_back("node " + node_name(deed.fault.node) +
                                 " did not end, and was killed: " + describe(deed.fault) +
                                 last_lines(cluster_.node(deed.fault.node).output()));
            for (const pid_t pid : cluster_.node(deed.fault.node).family()) {
                ::kill(pid, SIGKILL);
            }
            (void)cluster_.node(deed.fault.node).await_end(kFinishLimit);
            (void)breaker_.end(number, deed.fault);
        }
        deed.healed_at = now_ns();
        check_exit(deed);
        result_.returns += ends_node(deed.fault.kind) ? 1 : 0;
        say("  over: " + describe(deed.fault).substr(11));
        return true;
    }
    /// A drained node exits with the code for a requeue, or, if it had no workers, with the code of
    /// its signal.
    void check_exit(const Deed& deed) {
        constexpr int kBySignal = 128 + SIGTERM;
        const bool is_drain =
            deed.fault.kind == FaultKind::drain_node || deed.fault.kind == FaultKind::drain_by_word;
        if (is_drain && deed.exit_code != kDrained && deed.exit_code != kBySignal) {
            surprises_.push_back("node " + node_name(deed.fault.node) +
                                 " was drained, and ended with exit code " +
                                 std::to_string(deed.exit_code.value_or(-1)));
        }
    }
    void supervise() {
        for (const Departure& departure : cluster_.departures()) {
            say("node " + node_name(departure.node) + " has ended by itself with exit code " +
                std::to_string(departure.exit_code));
            surprises_.push_back("node " + node_name(departure.node) + " ended with exit code " +
                                 std::to_string(departure.exit_code) + ":" +
                                 last_lines(departure.output));
            again_[departure.node] = steady_clock::now() + kSupervise;
        }
        std::erase_if(again_, [&](const auto& entry) {
            if (entry.second > steady_clock::now()) {
                return false;
            }
            cluster_.start_node(entry.first);
            ++result_.returns;
            return true;
        });
    }

    void finish() {
        say("training is told to end");
        std::vector<std::string> wrongs;
        for (std::uint32_t node = 0; node < cluster_plan_.nodes; ++node) {
            cluster_.node(node).end_is_expected = true;
        }
        cluster_.end().set(1);
        const auto deadline = steady_clock::now() + kFinishLimit;
        for (std::uint32_t node = 0; node < cluster_plan_.nodes; ++node) {
            const auto left = std::max(deadline - steady_clock::now(), steady_clock::duration(1));
            const auto code =
                cluster_.node(node).await_end(std::chrono::ceil<std::chrono::milliseconds>(left));
            const bool was_not_needed = code == kNotNeeded && cluster_plan_.traits.standbys == 0;
            if (code != 0 && !was_not_needed) {
                wrongs.push_back("node " + node_name(node) +
                                 (code ? " ended with exit code " + std::to_string(*code)
                                       : std::string(" still runs")) +
                                 ":" + last_lines(cluster_.node(node).output()));
            }
        }
        say("the job has ended");
        const pid_t daemon = cluster_.daemon();
        if (daemon == 0 || ::kill(daemon, SIGTERM) != 0 ||
            cluster_.await_daemon_end(kFinishLimit) != 0) {
            wrongs.push_back("the daemon did not end in order:" +
                             last_lines(cluster_.daemon_output()));
        }
        add("launchers ended when they were told to, and only then", std::move(surprises_));
        add("the job ended with success, everywhere", std::move(wrongs));
        add("no process is left", cluster_.find_orphans());
    }

    void judge_all() {
        const std::vector<ProcessLog> logs = read_step_logs(cluster_.step_logs());
        const bool has_snapshots = cluster_plan_.traits.form == JobForm::snapshots;
        result_.history = judge(logs, undisturbed(steps_of(logs), kWeights), has_snapshots);
        if (has_snapshots) {
            add("no step doubled within a round, parameters those of the undisturbed run",
                result_.history.wrongs);
            judge_loads();
        } else {
            add("no step lost or doubled, parameters those of the undisturbed run",
                result_.history.wrongs);
            add("the floats' bits are those of an undisturbed run of the same rounds",
                result_.history.wrongs.empty()
                    ? check_floats(logs, result_.history, cluster_plan_.floats,
                                   cluster_plan_.workers)
                    : std::vector<std::string>{"not looked at: see "
                                               "above"});
        }
        add("no pause while the daemon was away", find_pauses(logs));
        const std::vector<LedgerEntry> ledger = read_ledger(cluster_plan_.folder);
        add("every change of rounds is in the ledger",
            check_ledger(result_.history, ledger, full_disks(), daemon_deaths()));
        if (cluster_plan_.traits.form == JobForm::in_place) {
            add("who was drained by word left at a step boundary", check_drains(ledger));
            add("a reset between live workers is in the ledger, with both ends",
                check_resets(ledger));
        }
        add("everything was broken that was to be", check_kinds());
        add("the daemon's journal replays to the same assignments",
            replay(cluster_plan_.regroup, cluster_.state_disk(), Cluster::kJob));
    }

    void judge_loads() {
        const auto logs = read_snapshot_logs(cluster_.step_logs());
        const SnapshotHistory history = judge_snapshots(logs, cluster_plan_.traits.save_interval);
        say(std::to_string(history.loads) + " loads, " + std::to_string(history.bound) +
            " of them bound to a kept step, " + std::to_string(history.from_other_memory) +
            " of these after the loss of a node; before " + std::to_string(history.excused) +
            " others a node and that with its copies were lost");
        add("all ranks of a round load the same step, and all of it", history.different);
        add("no kept step is lost, unless a node and that with its copies are", history.lost);
        add("at most one interval is lost", history.too_old);
        if (!cluster_plan_.traits.has_snapshot_folder) {
            return;
        }
        add("no load is behind the folder", history.behind_folder);
        const auto last = last_saved_by_all(logs);
        const std::uint64_t written = newest_in_folder(cluster_.snapshot_folder());
        add("the last step that all ranks had saved is in the folder",
            !last || (written != kNoStep && written >= *last)
                ? std::vector<std::string>{}
                : std::vector<std::string>{
                      "step " + std::to_string(*last) + " was saved, and the folder has " +
                      (written == kNoStep ? std::string("no complete step")
                                          : "step " + std::to_string(written))});
    }

    /// True if nothing else was broken from a while before the deed until its end.
    bool is_alone(const Deed& deed) const {
        constexpr std::int64_t kBefore = 5'000'000'000;  // Earlier recoveries are over by then.
        const auto over = [](const Deed& one) { return std::max(one.began_at, one.healed_at); };
        return std::none_of(result_.deeds.begin(), result_.deeds.end(), [&](const Deed& other) {
            return &other != &deed && other.done && over(other) > deed.began_at - kBefore &&
                   other.began_at <= over(deed);
        });
    }

    /// Checks that each drain by an operator left at a step boundary, at no cost for other nodes.
    std::vector<std::string> check_drains(const std::vector<LedgerEntry>& ledger) const {
        std::vector<std::string> result;
        for (const Deed& deed : result_.deeds) {
            if (deed.fault.kind != FaultKind::drain_by_word || !is_alone(deed)) {
                continue;
            }
            const std::string cause = "node " + node_name(deed.fault.node) + " is drained by ";
            const bool is_told =
                std::any_of(ledger.begin(), ledger.end(), [&](const LedgerEntry& entry) {
                    return entry.planned && entry.cause.starts_with(cause);
                });
            if (!deed.done) {
                result.push_back("the daemon refused it: " + describe(deed.fault));
            } else if (deed.exit_code == kDrained && !is_told) {
                result.push_back("the ledger has no such change: " + describe(deed.fault));
            }
        }
        return result;
    }

    /// Checks resets between members, if there was no other fault.
    std::vector<std::string> check_resets(const std::vector<LedgerEntry>& ledger) const {
        std::vector<std::string> result;
        for (const Deed& deed : result_.deeds) {
            if (deed.fault.kind != FaultKind::reset_pair || !is_alone(deed)) {
                continue;
            }
            const auto names = [&](const LedgerEntry& entry, std::uint32_t node) {
                return entry.cause.find(" on " + node_name(node)) != std::string::npos;
            };
            const auto changed = std::find_if(result_.history.rounds.begin(),
                                              result_.history.rounds.end(), [&](const auto& it) {
                                                  return it.second.last_at >= deed.began_at &&
                                                         it.second.last_at <= deed.healed_at;
                                              });
            const bool is_told =
                std::any_of(ledger.begin(), ledger.end(), [&](const LedgerEntry& entry) {
                    return entry.cause.starts_with("the connection between rank ") &&
                           names(entry, deed.fault.node) && names(entry, deed.fault.other);
                });
            if (changed != result_.history.rounds.end() && !is_told) {
                result.push_back("after round " + std::to_string(changed->first) + ": " +
                                 describe(deed.fault));
            }
        }
        return result;
    }

    /// Checks that a run that is long enough has every kind of fault.
    std::vector<std::string> check_kinds() const {
        constexpr std::chrono::seconds kLong(300);
        std::vector<std::string> result;
        for (std::size_t i = 0; i < kFaultKinds; ++i) {
            const auto kind = static_cast<FaultKind>(i);
            const bool is_done =
                std::any_of(result_.deeds.begin(), result_.deeds.end(),
                            [&](const Deed& deed) { return deed.done && deed.fault.kind == kind; });
            if (plan_.lasts >= kLong && may_have(plan_, kind) && !is_done) {
                result.push_back("not once: " + std::string(to_string(kind)));
            }
        }
        return result;
    }

    /// Times at which some ledger could not be written.
    std::vector<Interval> full_disks() const {
        constexpr std::int64_t kAfter = 1'000'000'000;
        std::vector<Interval> result;
        for (const Deed& deed : result_.deeds) {
            if (deed.done && deed.fault.kind == FaultKind::fill_disk) {
                result.push_back({deed.began_at, deed.healed_at + kAfter});
            }
        }
        return result;
    }

    /// For each death of the daemon, the time in which no daemon may have heard of a round.
    std::vector<Interval> daemon_deaths() const {
        constexpr std::int64_t kBefore = 2'000'000'000;
        constexpr std::int64_t kAfter = 1'000'000'000;
        std::vector<Interval> result;
        for (const Deed& deed : result_.deeds) {
            if (deed.done && deed.fault.kind == FaultKind::kill_daemon) {
                result.push_back({deed.began_at - kBefore, deed.healed_at + kAfter});
            }
        }
        return result;
    }

    /// Checks that steps went on while only the daemon was broken.
    std::vector<std::string> find_pauses(const std::vector<ProcessLog>& logs) const {
        constexpr std::int64_t kBefore = 5'000'000'000;  // Earlier recoveries are over by then.
        constexpr std::int64_t kPauseMax = 1'000'000'000;
        std::vector<std::int64_t> times;
        for (const ProcessLog& log : logs) {
            for (const Record& record : log.records) {
                if (record.kind == RecordKind::step) {
                    times.push_back(record.at);
                }
            }
        }
        std::sort(times.begin(), times.end());
        std::vector<std::string> result;
        for (const Deed& deed : result_.deeds) {
            const bool daemon_only =
                std::none_of(result_.deeds.begin(), result_.deeds.end(), [&](const Deed& other) {
                    const std::int64_t over = std::max(other.began_at, other.healed_at);
                    return other.done && hits_node(other.fault.kind) &&
                           over > deed.began_at - kBefore && other.began_at < deed.healed_at;
                });
            if (!deed.done || hits_node(deed.fault.kind) || !daemon_only) {
                continue;
            }
            std::int64_t last = deed.began_at;
            std::int64_t longest = 0;
            for (const std::int64_t at : times) {
                if (at > last && at < deed.healed_at) {
                    longest = std::max(longest, at - last);
                    last = at;
                }
            }
            longest = std::max(longest, deed.healed_at - last);
            if (longest > kPauseMax) {
                result.push_back("no step for " + std::to_string(longest / 1'000'000) +
                                 " ms: " + describe(deed.fault));
            }
        }
        return result;
    }

    Cluster& cluster_;
    const ClusterPlan& cluster_plan_;
    const SchedulePlan& plan_;
    Breaker breaker_;
    steady_clock::time_point begin_;
    steady_clock::time_point said_at_ = steady_clock::now();
    std::size_t next_ = 0;
    std::vector<std::size_t> open_;  ///< Faults that have begun and not ended.
    std::map<std::uint32_t, steady_clock::time_point> again_;
    std::vector<std::string> surprises_;
    RunResult result_;
};

}  // namespace

bool Verdicts::all_right() const {
    return std::all_of(lines.begin(), lines.end(),
                       [](const Line& line) { return line.wrongs.empty(); });
}

RunResult run_chaos(Cluster& cluster, const ClusterPlan& cluster_plan, const SchedulePlan& plan,
                    const std::vector<Fault>& schedule) {
    return Run(cluster, cluster_plan, plan).go(schedule);
}

}  // namespace regroup::chaos
