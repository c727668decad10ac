// SPDX-License-Identifier: Apache-2.0
#include "launcher/event_line.h"

#include <nlohmann/json.hpp>

#include "launcher/host.h"
#include "rendezvous/base/names.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/view/event_line.h"
#include "rendezvous/view/json_writer.h"

namespace regroup::launcher {

namespace {

// A role or a path may not be UTF-8; such bytes are replaced. ASCII only, as in torchrun.
std::string text_of(const nlohmann::ordered_json& object) {
    return ascii_json_text(object);
}

std::string name_of(agent::WorkerEvent::State state) {
    return std::string(
        name_in({"START", "SUCCEEDED", "FAILED", "TERMINATED", "STACKS_SAVED"}, state));
}

std::string_view event_of(agent::WorkerEvent::State state) {
    return name_in({"worker_started", "worker_succeeded", "worker_failed", "worker_terminated",
                    "stacks_saved"},
                   state);
}

}  // namespace

std::string event_line(const agent::WorkerEvent& event, const RunPlan::ConsoleEvents& names,
                       const agent::AgentConfig& config) {
    using nlohmann::ordered_json;
    const rendezvous::Assignment& a = event.assignment;
    const ordered_json details = {
        {"group_world_size", a.group_world_size},
        {"entry_point", names.entry_point},
        {"local_rank", ordered_json::array({event.local_rank})},
        {"role_rank", ordered_json::array({a.role_first_rank + event.local_rank})},
        {"role_world_size", ordered_json::array({a.role_world_size})},
        {"exit_code", ordered_json::array({event.exit_code})},
        {"worker_pid", ordered_json::array({event.pid})},
    };
    const ordered_json metadata = {
        {"run_id", config.job},          {"global_rank", a.first_rank + event.local_rank},
        {"group_rank", a.group_rank},    {"worker_id", std::to_string(event.pid)},
        {"role", config.offer.role},     {"hostname", short_host_name()},
        {"state", name_of(event.state)}, {"total_run_time", 0},
        {"rdzv_backend", names.backend}, {"raw_error", nullptr},
        {"metadata", text_of(details)},  {"agent_restarts", a.restart_count},
        {"duration_ms", nullptr},
    };
    const ordered_json record = {
        {"name", "torchelastic.worker.status." + name_of(event.state)},
        {"source", "WORKER"},
        {"timestamp", 0},
        {"metadata", metadata},
    };
    return text_of(record);
}

std::string agent_event_line(const agent::WorkerEvent& event, const agent::AgentConfig& config,
                             const std::string& host, std::int64_t wall_ms) {
    std::string line;
    rendezvous::JsonWriter out(line);
    out.begin_object();
    out.field("time", rendezvous::utc_time(wall_ms));
    out.field("source", "agent");
    out.field("job", config.job);
    out.field("event", event_of(event.state));
    out.field("round", number(event.assignment.round));
    out.field("node", config.offer.name);
    out.field("host", host);
    out.field("rank", event.assignment.first_rank + event.local_rank);
    out.field("local_rank", event.local_rank);
    out.field("pid", event.pid);
    if (event.state == agent::WorkerEvent::State::stacks_saved) {
        out.field("folder", event.folder);
    } else if (event.state != agent::WorkerEvent::State::started) {
        // As a shell: 128 and the number of the signal.
        out.field("exit_code", event.exit_code < 0 ? 128 - event.exit_code : event.exit_code);
        if (event.exit_code < 0) {
            out.field("signal", signal_name(-event.exit_code));
        }
    }
    out.end_object();
    return line;
}

}  // namespace regroup::launcher
