// SPDX-License-Identifier: Apache-2.0
#include "agent/watch/node_watch.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "agent/explain/hang_facts.h"
#include "agent/process/process_tree.h"
#include "agent/text/names.h"
#include "agent/watch/kernel_view.h"
#include "rendezvous/base/time_text.h"
#include "rendezvous/files/own_file.h"
#include "rendezvous/text/describe.h"

namespace regroup::agent {

namespace {

namespace fs = std::filesystem;

std::string doing(const rendezvous::RankPosition& position) {
    std::string text = position.step == 0 ? "" : "step " + std::to_string(position.step);
    if (!position.doing.empty()) {
        text += text.empty() ? "" : ", ";
        text += (position.waiting ? "waits in " : "in ") + position.doing;
    }
    return text;
}

/// True if the worker, or a process below it, is stopped: the worker may be a wrapper.
bool stands_stopped(pid_t worker) {
    const std::vector<pid_t> below = descendants(worker);
    return is_stopped(worker) || std::any_of(below.begin(), below.end(), is_stopped);
}

}  // namespace

NodeWatch::NodeWatch(boost::asio::io_context& io, const Clock& clock, LinuxLauncher& launcher,
                     const AgentConfig& config, NodeWatchOptions options, Handlers handlers)
    : clock_(clock),
      job_(config.job),
      node_(config.offer.name),
      workers_(config.offer.workers),
      options_(std::move(options)),
      handlers_(std::move(handlers)),
      hangs_(io, clock, options_.limits,
             {[this] { return looks(); }, [this](Instant now) { return groups(now); },
              [this] { return output(); }, handlers_.finished,
              [this](const std::optional<rendezvous::Hang>& hang) { tell_hang(hang); },
              [this](Duration left) { handlers_.on_work(WorkersAtWork{assignment_.round, left}); },
              [](std::int64_t pid) { return is_stopped(static_cast<pid_t>(pid)); }}),
      stacks_(io, clock, launcher, {.search_path = options_.search_path}),
      records_(io, clock, {.torch = options_.torch_pipe}, handlers_.ask_for_records) {
    if (!options_.folder.empty() && options_.keeps_ledger) {
        ledger_.emplace(options_.folder / "recoveries.jsonl");
    }
}

void NodeWatch::round_began(const Assignment& assignment) {
    assignment_ = assignment;
    seen_.clear();
    hang_.clear();
    hangs_.begin(assignment.first_rank, workers_);
    work_.begin_round(clock_.now());
}

std::optional<rendezvous::WorkWindow> NodeWatch::work_window() {
    std::vector<TimeInCollectives> times;
    for (const LiveWorker& worker : workers()) {
        if (worker.collectives != nullptr) {
            times.push_back(time_in_collectives(**worker.collectives));
        }
    }
    if (times.size() != workers_) {
        return std::nullopt;  // Some have ended.
    }
    std::optional<rendezvous::WorkWindow> window = work_.look(clock_.now(), times);
    if (window) {
        window->world_size = assignment_.world_size;
        window->first_rank = assignment_.first_rank;
    }
    return window;
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

std::vector<WorkerGroups> NodeWatch::groups(Instant now) {
    std::vector<WorkerGroups> result;
    for (const LiveWorker& worker : workers()) {
        if (worker.collectives != nullptr) {
            seen_[worker.rank] = worker;
            result.push_back(
                {worker.local_rank, worker.rank, worker.pid, look_at(**worker.collectives, now)});
        }
    }
    return result;
}

std::optional<std::vector<std::uint64_t>> NodeWatch::output() const {
    // Without a process nobody is silent: --preload may still import modules.
    return workers().empty() ? std::nullopt : handlers_.output();
}

void NodeWatch::tell_hang(const std::optional<rendezvous::Hang>& hang) {
    if (hang && !hang->in_collective) {
        hang_ = hang->text;
        handlers_.say(hang_);
    } else if (!hang && !hang_.empty()) {
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

/// The files that are saved of one hang.
struct NodeWatch::HangSave {
    Assignment assignment;
    fs::path folder;
    std::vector<HangSubject> subjects;
    std::vector<RankFacts> facts;
    std::vector<rendezvous::RankPosition> positions;
    std::optional<SavedStacks> saved_stacks;
    std::optional<SavedRecords> saved_records;
    std::string complaint;  ///< About the file of facts.

    void add(const LiveWorker& worker, bool is_stopped, Duration silent, Instant now);
    void add_gone(std::uint32_t workers, const rendezvous::RankSet& finished);
    void add_last_collectives(const LiveWorker& worker, Instant now);
};

void NodeWatch::HangSave::add(const LiveWorker& worker, bool is_stopped, Duration silent,
                              Instant now) {
    rendezvous::RankPosition position;
    RankFacts fact;
    position.rank = worker.rank;
    if (worker.attached) {
        const WorkerLook look = look_at(**worker.page, worker.local_rank, worker.rank, worker.pid);
        position = position_of(look);
        fact.operations = look.operations;
        if (look.phase != worker_link::Phase::starting) {
            fact.step = look.step;
        }
    }
    position.stopped = is_stopped;
    position.silent = silent;
    pid_t process = worker.pid;
    if (worker.collectives != nullptr) {
        std::vector<GroupLook> groups = look_at(**worker.collectives, now);
        if (!groups.empty()) {
            fact.records.push_back(record_of(groups));
        }
        for (GroupLook& group : groups) {
            position.groups.push_back(std::move(group.position));
        }
        // The worker may be a wrapper of the process that uses the groups.
        const pid_t user = (*worker.collectives)->pid.load();
        process = user > 0 ? user : process;
    }
    position.activity = activity_of(process);
    fact.rank = worker.rank;
    fact.state = is_stopped ? ProcessState::stopped : ProcessState::running;
    fact.pid = worker.pid;
    fact.doing = position.doing;
    fact.waiting = position.waiting;
    fact.silent_ms = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(silent).count());
    subjects.push_back(
        {worker.rank, worker.pid, doing(position), worker.local_rank, worker.attached, is_stopped});
    facts.push_back(std::move(fact));
    positions.push_back(std::move(position));
}

/// The ranks of this node that have no process any more.
void NodeWatch::HangSave::add_gone(std::uint32_t workers, const rendezvous::RankSet& finished) {
    const auto known = facts.size();
    for (std::uint32_t i = 0; i < workers; ++i) {
        const std::uint32_t rank = assignment.first_rank + i;
        const auto end = facts.begin() + static_cast<std::ptrdiff_t>(known);
        if (std::none_of(facts.begin(), end, [&](const auto& f) { return f.rank == rank; })) {
            facts.emplace_back();
            facts.back().rank = rank;
            facts.back().state =
                finished.contains(rank) ? ProcessState::finished : ProcessState::gone;
        }
    }
}

/// Where a worker that has ended was in the groups that it has not ended.
void NodeWatch::HangSave::add_last_collectives(const LiveWorker& worker, Instant now) {
    rendezvous::RankPosition position;
    position.rank = worker.rank;
    for (GroupLook& group : look_at(**worker.collectives, now)) {
        position.groups.push_back(std::move(group.position));
    }
    if (!position.groups.empty()) {
        positions.push_back(std::move(position));
    }
}

void NodeWatch::save_stacks(const SaveStacks& request) {
    const auto hang = std::make_shared<HangSave>();
    hang->assignment = assignment_;
    for (const LiveWorker& worker : workers()) {
        hang->add(worker, stands_stopped(worker.pid), hangs_.silence_of(worker.local_rank),
                  clock_.now());
    }
    if (request.positions_only) {
        const rendezvous::RankSet finished = handlers_.finished();
        for (const auto& [rank, worker] : seen_) {
            if (finished.contains(rank)) {
                hang->add_last_collectives(worker, clock_.now());
            }
        }
        handlers_.on_stacks(StacksSaved{request.round, std::move(hang->positions)});
        return;
    }
    const std::string reason = describe(request.reason);
    if (hang_.empty()) {  // Only the other nodes have told it.
        hang_ = round_name(request.round) + " hangs: " + reason;
        handlers_.say(hang_);
    }
    const Result<fs::path> folder = folder_for_stacks(request.round);
    if (hang->subjects.empty() || !folder) {
        handlers_.say(folder ? "no worker is left whose stacks could be saved"
                             : folder.error().detail);
        handlers_.on_stacks(StacksSaved{request.round, std::move(hang->positions)});
        return;
    }
    hang->folder = unused_folder(*folder, hang->subjects);
    hang->add_gone(workers_, handlers_.finished());
    save(hang, reason);
}

// The records are asked for before a tool stops the processes.
void NodeWatch::save(const std::shared_ptr<HangSave>& hang, const std::string& reason) {
    write_facts(*hang, reason);
    records_.save(hang->folder, hang->subjects, [this, hang](const SavedRecords& saved) {
        hang->saved_records = saved;
        finish_if_saved(*hang);
    });
    const std::string heading =
        "job " + job_ + ", " + round_name(hang->assignment.round) + ": " + reason;
    stacks_.save(hang->folder, hang->subjects, heading, [this, hang](const SavedStacks& saved) {
        hang->saved_stacks = saved;
        finish_if_saved(*hang);
    });
}

void NodeWatch::write_facts(HangSave& hang, const std::string& reason) const {
    NodeFacts facts;
    facts.job = job_;
    facts.round = number(hang.assignment.round);
    facts.reason = reason;
    facts.world_size = hang.assignment.world_size;
    facts.node = node_;
    facts.ranks = hang.facts;
    const std::string name = "node" + std::to_string(hang.assignment.group_rank) + ".json";
    Result<void> done = files::make_own_folder(hang.folder);
    if (done) {
        done = write_private_file(hang.folder / name, write_node_facts(facts));
    }
    hang.complaint = done ? "" : done.error().detail;
}

void NodeWatch::finish_if_saved(const HangSave& hang) {
    if (!hang.saved_stacks || !hang.saved_records) {
        return;
    }
    const SavedStacks& stacks = *hang.saved_stacks;
    if (stacks.files == 0) {
        handlers_.say("no stacks could be saved: " + stacks.complaint);
    } else {
        record(hang.assignment, hang.subjects, hang.folder);
        std::string line = "the stacks of " +
                           rank_range(hang.subjects.front().rank, hang.subjects.back().rank) +
                           " are in " + hang.folder.string() + ", " + stacks.how;
        for (const std::string& complaint :
             {stacks.complaint, hang.saved_records->complaint, hang.complaint}) {
            line += (complaint.empty() ? "" : "; ") + complaint;
        }
        handlers_.say(line);
        handlers_.say("which ranks wait for which: regroup explain " + hang.folder.string());
    }
    handlers_.on_stacks(StacksSaved{hang.assignment.round, hang.positions});
}

void NodeWatch::record(const Assignment& assignment, const std::vector<HangSubject>& subjects,
                       const fs::path& folder) const {
    if (!handlers_.on_event) {
        return;
    }
    for (const HangSubject& subject : subjects) {
        WorkerEvent event;
        event.state = WorkerEvent::State::stacks_saved;
        event.assignment = assignment;
        event.local_rank = subject.rank - assignment.first_rank;
        event.pid = subject.pid;
        event.folder = folder.string();
        handlers_.on_event(event);
    }
}

void NodeWatch::tell(const TellRecovery& recovery) {
    if (!recovery.keep || !ledger_) {
        return;
    }
    const Result<void> kept = ledger_->append(
        ledger_line(job_, recovery.incident, universal_time_text(std::time(nullptr))));
    if (!kept && !std::exchange(ledger_trouble_, true)) {
        handlers_.say(kept.error().detail + "; recoveries are missing there while that lasts");
    } else if (kept) {
        ledger_trouble_ = false;
    }
}

}  // namespace regroup::agent
