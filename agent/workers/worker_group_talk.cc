// SPDX-License-Identifier: Apache-2.0
//
// The messages between a WorkerGroup and workers that have the SDK.
#include <algorithm>
#include <filesystem>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/link/round_key.h"
#include "agent/process/proc_files.h"
#include "agent/text/cause_text.h"
#include "agent/workers/worker_group.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/text.h"
#include "rendezvous/text/describe.h"

namespace regroup::agent {

namespace {

/// The first output opens the file of a worker. After this time a silent worker gets empty files.
constexpr Duration kFilesPause = std::chrono::milliseconds(20);

Duration from_milliseconds(double count) {
    constexpr double kLongest = 1e12;  // Thirty years: limits invalid values.
    const std::chrono::duration<double, std::milli> time(count >= 0 ? std::min(count, kLongest)
                                                                    : 0.0);  // NaN gives 0.
    return std::chrono::duration_cast<Duration>(time);
}

/// `text` as the daemon will receive it: invalid UTF-8 is replaced, and the length is limited.
std::string as_reported(const std::string& text) {
    using nlohmann::json;
    const json heard = json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace));
    return protocol::beginning_of(heard.get<std::string>(), protocol::kSentenceBytesMax);
}

rendezvous::FailureKind kind_of(worker_link::FatalKind kind) {
    switch (kind) {
        case worker_link::FatalKind::user_error:
            return rendezvous::FailureKind::user_error;
        case worker_link::FatalKind::retry:
            return rendezvous::FailureKind::retry;
        case worker_link::FatalKind::bad_node:
            return rendezvous::FailureKind::bad_node;
        case worker_link::FatalKind::error:
            return rendezvous::FailureKind::failure;
    }
    return rendezvous::FailureKind::failure;
}

/// True if the process still executes the program with which it was started.
bool runs(pid_t pid, const std::string& executable) {
    std::error_code error;
    return std::filesystem::equivalent("/proc/" + std::to_string(pid) + "/exe", executable, error);
}

}  // namespace

Result<void> WorkerGroup::open_link() {
    LinkServer::Handlers handlers;
    handlers.on_hello = [this](std::uint64_t key, pid_t pid, bool elastic, bool is_new) {
        hear_hello(key, pid, elastic, is_new);
    };
    handlers.on_message = [this](std::uint64_t key, const worker_link::FromWorker& message) {
        hear(key, message);
    };
    handlers.on_trouble = [this](const std::string& line) { output_.say(line); };
    Result<std::unique_ptr<LinkServer>> link = LinkServer::open(io_, std::move(handlers));
    if (!link) {
        return link.error();
    }
    Result<std::unique_ptr<DeathWatch>> deaths =
        DeathWatch::start(io_, [this](std::uint64_t key) { marked_dead(key); });
    if (!deaths) {
        return deaths.error();
    }
    link_ = *std::move(link);
    deaths_ = *std::move(deaths);
    return {};
}

// ---- Messages to workers.

void WorkerGroup::assign(const Assignment& assignment,
                         const std::vector<std::uint32_t>& local_ranks) {
    for (const std::uint32_t local_rank : local_ranks) {
        const auto found = processes_.find(living(local_rank));
        if (found == processes_.end()) {
            continue;  // It has ended meanwhile; its end is reported.
        }
        found->second.assignment = assignment;
        if (found->second.page) {
            // It takes part in one more round before its node leaves.
            (*found->second.page)->leaving.store(worker_link::Leaving::no);
        }
        worker_link::AssignWorker message;
        message.round = number(assignment.round);
        message.job = config_.job;
        message.rank = assignment.first_rank + local_rank;
        message.world_size = assignment.world_size;
        message.local_rank = local_rank;
        message.local_world_size = config_.offer.workers;
        message.group_rank = assignment.group_rank;
        message.group_world_size = assignment.group_world_size;
        message.role_rank = assignment.role_first_rank + local_rank;
        message.role_world_size = assignment.role_world_size;
        message.restart_count = assignment.restart_count;
        message.max_restarts = config_.policy.restarts_max;
        const rendezvous::Endpoint store = store_of(identity_of(assignment, local_rank));
        message.master_addr = store.host;
        message.master_port = store.port;
        message.master_node_addr = assignment.master_addr;
        message.round_key = round_key(assignment);
        message.reason = describe(assignment.reason);
        link_->send(found->first, message);
    }
    // The assignments are sent. Later output belongs to the new round.
    for (const std::uint32_t local_rank : local_ranks) {
        const WorkerIdentity identity = identity_of(assignment, local_rank);
        const WorkerOutput plan =
            plan_output(options_.output, identity, config_.offer.name, options_.host);
        output_.replan(local_rank, plan.out, plan.err);
    }
    begin_records();
}

void WorkerGroup::end_round(const EndRound& end) {
    for (auto& [key, process] : processes_) {
        if (!process.told && process.page) {
            (*process.page)->ended_round.store(number(end.round));
        }
    }
    for (auto& [key, process] : processes_) {
        if (!process.told && std::find(end.local_ranks.begin(), end.local_ranks.end(),
                                       process.local_rank) != end.local_ranks.end()) {
            link_->send(key, worker_link::EndRound{number(end.round), text_of(end.cause)});
        }
    }
}

void WorkerGroup::pause(const PauseWorkers& pause) {
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(pause.limit).count();
    using worker_link::Leaving;
    const Leaving leaving = pause.at_once ? Leaving::at_once
                            : pause.leave ? Leaving::at_boundary
                                          : Leaving::no;
    // Set all pages before the messages: the first worker that reads its message brings the others
    // to the boundary, and there each must see that the node leaves.
    for (auto& [key, process] : processes_) {
        if (!process.told && process.page) {
            (*process.page)->leaving.store(leaving);
        }
    }
    for (auto& [key, process] : processes_) {
        if (process.told || !process.page) {
            continue;
        }
        (*process.page)->pause_round.store(number(pause.round));
        link_->send(key,
                    worker_link::Pause{number(pause.round), pause.leave,
                                       static_cast<std::uint64_t>(limit), text_of(pause.cause)});
    }
}

void WorkerGroup::announce_drain() {
    if (!std::exchange(draining_, true)) {
        for (auto& [key, process] : processes_) {
            if (process.page) {
                (*process.page)->draining.store(1);
            }
        }
    }
}

void WorkerGroup::forward(int signal) {
    for (auto& [key, process] : processes_) {
        if (!process.told && process.child && !would_only_end(process, signal)) {
            send(process, signal);
        }
    }
}

bool WorkerGroup::would_only_end(int signal) const {
    bool any = false;
    for (const auto& [key, process] : processes_) {
        if (!process.told) {
            if (!would_only_end(process, signal)) {
                return false;
            }
            any = true;
        }
    }
    return any;
}

// A worker that was started ahead counts as elastic: it is started ahead only if the others are.
bool WorkerGroup::would_only_end(const Process& process, int signal) {
    const bool waits = process.assignment.round == RoundId::none;
    return (process.elastic || waits) && process.child && has_default(process.child->pid(), signal);
}

// ---- Messages from workers.

void WorkerGroup::hear_hello(std::uint64_t key, pid_t pid, bool elastic, bool is_new) {
    const auto found = processes_.find(key);
    if (found == processes_.end() || found->second.told) {
        return;
    }
    Process& process = found->second;
    process.attached = process.child && process.child->pid() == pid;
    process.elastic = elastic;
    if (is_new && process.attached) {
        deaths_->add(key, process.page);
    }
    const bool may_wait = process.attached && runs(pid, options_.command.executable);
    on_event_(WorkerAttached{process.local_rank, process.elastic, may_wait});
}

void WorkerGroup::hear(std::uint64_t key, const worker_link::FromWorker& message) {
    const auto found = processes_.find(key);
    if (found == processes_.end() || found->second.told) {
        return;
    }
    Process& process = found->second;
    if (const auto* suspended = std::get_if<worker_link::Suspended>(&message)) {
        on_event_(WorkerSuspended{process.local_rank, RoundId{suspended->round},
                                  suspended->at_boundary, suspended->step});
    } else if (const auto* resumed = std::get_if<worker_link::Resumed>(&message)) {
        rendezvous::Resumed event;
        event.round = RoundId{resumed->round};
        event.step = resumed->step;
        event.communicator = from_milliseconds(resumed->communicator_ms);
        event.state = from_milliseconds(resumed->state_ms);
        event.first_step = from_milliseconds(resumed->first_step_ms);
        on_event_(WorkerResumed{process.local_rank, event});
    } else if (const auto* lost = std::get_if<worker_link::PeerLost>(&message)) {
        on_event_(WorkerLostPeer{process.local_rank, RoundId{lost->round}, lost->peer, lost->text});
    } else if (const auto* fatal = std::get_if<worker_link::Fatal>(&message)) {
        if (!process.fatal) {
            process.announced = process.asked_by == 0;
        }
        // The program's own report has more facts than that of the loop.
        if (!process.fatal || process.fatal->kind == worker_link::FatalKind::error) {
            process.fatal = {fatal->kind, as_reported(fatal->text)};
        }
    } else if (const auto* remark = std::get_if<worker_link::Remark>(&message)) {
        output_.say(remark->text);
    } else if (const auto* saved = std::get_if<worker_link::RecordsSaved>(&message)) {
        if (const auto on_saved = std::exchange(process.on_records_saved, nullptr)) {
            on_saved(*saved);
        }
    }
}

void WorkerGroup::save_records(std::uint32_t local_rank, const std::string& prefix,
                               std::function<void(const worker_link::RecordsSaved&)> on_saved) {
    const std::uint64_t key = living(local_rank);
    if (const auto found = processes_.find(key); found != processes_.end() && link_) {
        found->second.on_records_saved = std::move(on_saved);
        link_->send(key, worker_link::SaveRecords{prefix});
    }
}

void WorkerGroup::add_own_words(const Process& process, WorkerFailure& failure) {
    failure.kind = kind_of(process.fatal->kind);
    failure.announced = process.announced;
    const std::string in_file = std::exchange(failure.error_message, process.fatal->text);
    if (!in_file.empty()) {
        // Limit the length: keep the worker's report and the end of the error file.
        const std::size_t room = protocol::kOutputBytesMax - process.fatal->text.size() - 1;
        failure.error_message += "\n" + protocol::end_of(in_file, room);
    }
}

// ---- Records of a round.

void WorkerGroup::begin_records() {
    if (oom_watch_) {
        oom_watch_->begin_again();
    } else {
        oom_watch_.emplace();
    }
    open_files_soon();
}

// Opens the files a little later: the disk may be slow, and the workers wait for their store.
void WorkerGroup::open_files_soon() {
    files_wanted_ = true;
    files_timer_.expires_after(kFilesPause);
    files_timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) {
            open_files_now();
        }
    });
}

void WorkerGroup::open_files_now() {
    if (std::exchange(files_wanted_, false)) {
        output_.open_files();
    }
}

// ---- Views of the workers.

std::uint64_t WorkerGroup::living(std::uint32_t local_rank) const {
    for (const auto& [key, process] : processes_) {
        if (process.local_rank == local_rank && !process.told) {
            return key;
        }
    }
    return 0;
}

std::vector<LiveWorker> WorkerGroup::live() const {
    std::vector<LiveWorker> result;
    for (const auto& [key, process] : processes_) {
        if (!process.told && process.child && !process.ended) {
            result.push_back({process.local_rank,
                              process.assignment.first_rank + process.local_rank,
                              process.child->pid(), process.assignment.round,
                              link_ && link_->is_attached(key), process.page});
        }
    }
    std::sort(result.begin(), result.end(),
              [](const LiveWorker& a, const LiveWorker& b) { return a.local_rank < b.local_rank; });
    return result;
}

std::uint64_t WorkerGroup::highest_step() const {
    std::uint64_t step = 0;
    for (const auto& [key, process] : processes_) {
        if (!process.told && process.page) {
            step = std::max(step, (*process.page)->step.load());
        }
    }
    return step;
}

}  // namespace regroup::agent
