// SPDX-License-Identifier: Apache-2.0
//
// The messages between a WorkerGroup and workers that have the SDK.
#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/link/round_key.h"
#include "agent/text/cause_text.h"
#include "agent/workers/worker_group.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/text.h"
#include "rendezvous/text/describe.h"

namespace regroup::agent {

namespace {

Duration from_milliseconds(double count) {
    constexpr double kLongest = 1e12;  // Thirty years: limits invalid values.
    const std::chrono::duration<double, std::milli> time(count >= 0 ? std::min(count, kLongest)
                                                                    : 0.0);  // NaN gives 0.
    return std::chrono::duration_cast<Duration>(time);
}

/// `text` as the daemon will receive it: invalid UTF-8 is replaced, and the length is limited.
std::string as_reported(const std::string& text) {
    using nlohmann::json;
    const json heard = parse_json(json_text(json(text)));
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

Result<void> WorkerGroup::open() {
    starter_.start_fork_server();
    LinkServer::Handlers handlers;
    handlers.on_hello = [this](std::uint64_t key, pid_t pid, const worker_link::Hello& hello,
                               bool is_new) { hear_hello(key, pid, hello, is_new); };
    handlers.on_message = [this](std::uint64_t key, const worker_link::FromWorker& message) {
        hear(key, message);
    };
    handlers.on_trouble = output_.sayer();
    Result<std::unique_ptr<LinkServer>> link = LinkServer::open(io_, std::move(handlers));
    if (!link) {
        return link.error();
    }
    if (Result<void> watching = ends_.open(); !watching) {
        return watching;
    }
    link_ = *std::move(link);
    return {};
}

// ---- Messages to workers.

void WorkerGroup::assign(const Assignment& assignment,
                         const std::vector<std::uint32_t>& local_ranks) {
    ends_.clear_places();
    for (const std::uint32_t local_rank : local_ranks) {
        const auto found = at(local_rank);
        if (found == workers_.end()) {
            continue;  // It has ended meanwhile; its end is reported.
        }
        WorkerProcess& worker = found->second;
        worker.assignment = assignment;
        if (worker.page) {
            // It takes part in one more round before its node leaves.
            (*worker.page)->leaving.store(worker_link::Leaving::no);
        }
        const worker_link::AssignWorker message{starter_.identity_of(assignment, local_rank).place,
                                                round_key(assignment), describe(assignment.reason)};
        // A survivor has its memory, and waits for the new ranks in any case.
        const auto send = [this, key = found->first, message] { link_->send(key, message); };
        std::exchange(worker.needs_memory, false) ? gpus_.when_free(found->first, send) : send();
    }
    // The assignments are sent. Later output belongs to the new round.
    for (const std::uint32_t local_rank : local_ranks) {
        const WorkerOutput plan = starter_.output_of(starter_.identity_of(assignment, local_rank));
        output_.replan(local_rank, plan.out, plan.err);
    }
    ends_.begin_round();
    starter_.open_files_soon();
}

void WorkerGroup::end_round(const EndRound& end) {
    for (auto& [key, worker] : workers_) {
        if (worker.page) {
            (*worker.page)->ended_round.store(number(end.round));
        }
    }
    for (const std::uint32_t local_rank : end.local_ranks) {
        if (const auto found = at(local_rank); found != workers_.end()) {
            // The place comes before the order about it.
            found->second.needs_memory = gpus_.hurry(found->first) || found->second.needs_memory;
            link_->send(found->first, worker_link::EndRound{number(end.round), text_of(end.cause)});
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
    for (auto& [key, worker] : workers_) {
        if (worker.pid != 0) {
            worker.needs_memory = gpus_.hurry(key) || worker.needs_memory;
        }
        if (worker.page) {
            (*worker.page)->leaving.store(leaving);
        }
    }
    for (auto& [key, worker] : workers_) {
        if (worker.page) {
            (*worker.page)->pause_round.store(number(pause.round));
            link_->send(
                key, worker_link::Pause{number(pause.round), pause.leave,
                                        static_cast<std::uint64_t>(limit), text_of(pause.cause)});
        }
    }
}

void WorkerGroup::announce_drain() {
    if (!std::exchange(draining_, true)) {
        for (auto& [key, worker] : workers_) {
            if (worker.page) {
                (*worker.page)->draining.store(1);
            }
        }
    }
}

void WorkerGroup::save_records(std::uint32_t local_rank, const std::string& prefix,
                               std::function<void(const worker_link::RecordsSaved&)> on_saved) {
    if (const auto found = at(local_rank); found != workers_.end() && link_) {
        found->second.on_records_saved = std::move(on_saved);
        link_->send(found->first, worker_link::SaveRecords{prefix});
    }
}

// ---- Messages from workers.

void WorkerGroup::hear_hello(std::uint64_t key, pid_t pid, const worker_link::Hello& hello,
                             bool is_new) {
    const auto found = workers_.find(key);
    if (found == workers_.end()) {
        return;
    }
    WorkerProcess& worker = found->second;
    const bool is_own_process = worker.pid == pid;  // Not a child of it.
    worker.elastic = hello.elastic;
    worker.stops = hello.stops;
    ends_.set_elastic(key, hello.elastic);
    if (hello.elastic) {
        starter_.starts().end();  // The agent prepares a fork server without being asked.
    }
    starter_.starts().attached();
    if (is_new && is_own_process) {
        ends_.watch_page(key, worker.page);
    }
    const bool may_wait = is_own_process && runs(pid, options_.command.executable);
    on_event_(WorkerAttached{worker.local_rank, hello.elastic, may_wait, hello.stops});
}

void WorkerGroup::hear(std::uint64_t key, const worker_link::FromWorker& message) {
    const auto found = workers_.find(key);
    if (found == workers_.end()) {
        return;
    }
    WorkerProcess& worker = found->second;
    if (const auto* suspended = std::get_if<worker_link::Suspended>(&message)) {
        on_event_(WorkerSuspended{worker.local_rank, RoundId{suspended->round},
                                  suspended->at_boundary, suspended->step});
    } else if (const auto* resumed = std::get_if<worker_link::Resumed>(&message)) {
        rendezvous::Resumed event;
        event.round = RoundId{resumed->round};
        event.step = resumed->step;
        event.communicator = from_milliseconds(resumed->communicator_ms);
        event.state = from_milliseconds(resumed->state_ms);
        event.first_step = from_milliseconds(resumed->first_step_ms);
        on_event_(WorkerResumed{worker.local_rank, event});
    } else if (const auto* lost = std::get_if<worker_link::PeerLost>(&message)) {
        on_event_(WorkerLostPeer{worker.local_rank, RoundId{lost->round}, lost->peer, lost->text});
    } else if (const auto* fatal = std::get_if<worker_link::Fatal>(&message)) {
        const bool announced =
            worker.own_report ? worker.own_report->announced : !worker.asked_to_end;
        // The program's own report has more facts than that of the loop.
        if (!worker.own_report || worker.own_report->kind == rendezvous::FailureKind::failure) {
            worker.own_report = {kind_of(fatal->kind), as_reported(fatal->text), announced};
        }
    } else if (const auto* remark = std::get_if<worker_link::Remark>(&message)) {
        output_.say(remark->text);
    } else if (const auto* saved = std::get_if<worker_link::RecordsSaved>(&message)) {
        if (const auto on_saved = std::exchange(worker.on_records_saved, nullptr)) {
            on_saved(*saved);
        }
    } else if (const auto* imports = std::get_if<worker_link::Imports>(&message)) {
        if (worker.elastic) {
            starter_.prepare_fork_server(imports->modules);
        }
    } else if (std::holds_alternative<worker_link::OpenSnapshots>(message)) {
        open_snapshots(key);
    }
}

void WorkerGroup::open_snapshots(std::uint64_t key) {
    Result<UniqueFd> channel =
        options_.open_snapshots
            ? options_.open_snapshots()
            : Result<UniqueFd>(Failure(Errc::system, "this agent keeps no snapshots"));
    if (channel) {
        link_->send(key, worker_link::SnapshotsOpened{}, channel->get());
    } else {
        link_->send(key, worker_link::SnapshotsOpened{channel.error().detail});
    }
}

}  // namespace regroup::agent
