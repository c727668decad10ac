// SPDX-License-Identifier: Apache-2.0
#include "agent/watch/node_watch.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "agent/process/process_tree.h"
#include "agent/watch/kernel_view.h"
#include "rendezvous/text/describe.h"

namespace regroup::agent {

namespace {

namespace fs = std::filesystem;

std::string ranks(const std::vector<StackSubject>& subjects) {
    if (subjects.size() == 1) {
        return "rank " + std::to_string(subjects.front().rank);
    }
    return "ranks " + std::to_string(subjects.front().rank) + "-" +
           std::to_string(subjects.back().rank);
}

std::string doing(const rendezvous::RankPosition& position) {
    std::string text = position.step == 0 ? "" : "step " + std::to_string(position.step);
    if (!position.doing.empty()) {
        text += text.empty() ? "" : ", ";
        text += (position.waiting ? "waits in " : "in ") + position.doing;
    }
    return text;
}

std::string universal_time() {
    const std::time_t now = std::time(nullptr);
    std::tm universal{};
    ::gmtime_r(&now, &universal);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &universal);
    return text;
}

/// True if the worker, or a process below it, is stopped: the worker may be a wrapper.
bool stands_stopped(pid_t worker) {
    const std::vector<pid_t> below = descendants(worker);
    return is_stopped(worker) || std::any_of(below.begin(), below.end(), is_stopped);
}

std::string round_name(RoundId round) {
    return "round " + std::to_string(number(round));
}

}  // namespace

NodeWatch::NodeWatch(boost::asio::io_context& io, const Clock& clock, LinuxLauncher& launcher,
                     NodeWatchOptions options, Handlers handlers)
    : options_(std::move(options)),
      handlers_(std::move(handlers)),
      hangs_(io, clock, options_.limits,
             {[this] { return looks(); }, handlers_.output,
              [this](const std::optional<rendezvous::Hang>& hang) { tell_hang(hang); },
              [this](Duration left) { handlers_.on_work(WorkersAtWork{assignment_.round, left}); },
              [](std::int64_t pid) { return is_stopped(static_cast<pid_t>(pid)); }}),
      stacks_(io, clock, launcher, {.search_path = options_.search_path}) {
    if (!options_.folder.empty() && options_.keeps_ledger) {
        ledger_.emplace(options_.folder / "recoveries.jsonl");
    }
}

void NodeWatch::round_began(const Assignment& assignment, std::uint32_t workers) {
    assignment_ = assignment;
    hang_.clear();
    hangs_.begin(assignment.first_rank, workers);
}

std::vector<LiveWorker> NodeWatch::workers() const {
    std::vector<LiveWorker> result = handlers_.workers();
    std::erase_if(result, [this](const LiveWorker& w) { return w.round != assignment_.round; });
    return result;
}

std::vector<WorkerLook> NodeWatch::looks() const {
    std::vector<WorkerLook> result;
    for (const LiveWorker& worker : workers()) {
        if (worker.attached) {
            result.push_back(look_at(**worker.page, worker.local_rank, worker.rank, worker.pid));
        }
    }
    return result;
}

void NodeWatch::tell_hang(const std::optional<rendezvous::Hang>& hang) {
    if (hang) {
        hang_ = hang->text;
        handlers_.say(hang_);
    } else if (!hang_.empty()) {
        handlers_.say("the round moves again; no longer true: " + std::exchange(hang_, ""));
    }
    handlers_.on_hang(HangSuspected{assignment_.round, hang});
}

Result<fs::path> NodeWatch::folder_for_stacks(RoundId round) {
    if (options_.folder.empty()) {
        std::error_code error;
        std::string path = (fs::temp_directory_path(error) / "regroup-stacks-XXXXXX").string();
        if (error || ::mkdtemp(path.data()) == nullptr) {
            return system_failure("cannot make a folder for stacks: " + path, errno);
        }
        options_.folder = path;
    }
    return options_.folder / ("hang-round" + std::to_string(number(round)));
}

void NodeWatch::save_stacks(const SaveStacks& request) {
    std::vector<rendezvous::RankPosition> positions;
    std::vector<StackSubject> subjects;
    for (const LiveWorker& worker : workers()) {
        rendezvous::RankPosition position;
        position.rank = worker.rank;
        if (worker.attached) {
            position =
                position_of(look_at(**worker.page, worker.local_rank, worker.rank, worker.pid));
        }
        position.stopped = stands_stopped(worker.pid);
        position.silent = hangs_.silence_of(worker.local_rank);
        subjects.push_back({worker.rank, worker.pid, doing(position)});
        positions.push_back(std::move(position));
    }
    Result<fs::path> folder = folder_for_stacks(request.round);
    if (subjects.empty() || !folder) {
        handlers_.say(folder ? "no worker is left whose stacks could be saved"
                             : folder.error().detail);
        handlers_.on_stacks(StacksSaved{request.round, std::move(positions)});
        return;
    }
    folder = unused_folder(*folder, subjects);
    const std::string heading =
        "job " + options_.job + ", " + round_name(request.round) + ": " + request.reason;
    stacks_.save(*folder, subjects, heading,
                 [this, round = request.round, whose = ranks(subjects), folder = *folder,
                  positions = std::move(positions)](const SavedStacks& saved) {
                     handlers_.say(saved.files == 0 ? "no stacks could be saved: " + saved.complaint
                                                    : "the stacks of " + whose + " are in " +
                                                          folder.string() + ", " + saved.how +
                                                          (saved.complaint.empty() ? "" : "; ") +
                                                          saved.complaint);
                     handlers_.on_stacks(StacksSaved{round, positions});
                 });
}

void NodeWatch::tell(const TellRecovery& recovery) {
    handlers_.say(describe(recovery.incident));
    if (!recovery.keep || !ledger_) {
        return;
    }
    const Result<void> kept =
        ledger_->append(ledger_line(options_.job, recovery.incident, universal_time()));
    if (!kept && !std::exchange(ledger_trouble_, true)) {
        handlers_.say(kept.error().detail + "; recoveries are missing there while that lasts");
    } else if (kept) {
        ledger_trouble_ = false;
    }
}

}  // namespace regroup::agent
