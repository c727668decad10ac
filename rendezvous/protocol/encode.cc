// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <nlohmann/json.hpp>

#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/text.h"

namespace regroup::protocol {

using namespace rendezvous;  // NOLINT: the types of every message; this file is about them.
using nlohmann::json;

namespace {

std::string sentence(const std::string& text) {
    return beginning_of(text, kSentenceBytesMax);
}

std::vector<std::string> names(const std::vector<std::string>& all) {
    const auto count = static_cast<std::ptrdiff_t>(std::min(all.size(), kNamesMax));
    return {all.begin(), all.begin() + count};
}

json to_json(const WorkerFailure& failure) {
    json object = {{"rank", failure.rank},
                   {"local_rank", failure.local_rank},
                   {"node", failure.node},
                   {"host", failure.host},
                   {"pid", failure.pid},
                   {"exit_code", failure.exit_code},
                   {"time", failure.time},
                   {"signal", failure.signal},
                   {"log", sentence(failure.log_file)}};
    if (failure.core_dumped) {
        object["core_dumped"] = true;
    }
    if (!failure.start_error.empty()) {
        object["start_error"] = sentence(failure.start_error);
    }
    if (!failure.last_output.empty()) {
        object["last_output"] = end_of(failure.last_output, kOutputBytesMax);
    }
    if (!failure.evidence.empty()) {
        object["evidence"] = sentence(failure.evidence);
    }
    if (!failure.error_message.empty()) {
        object["error_message"] = end_of(failure.error_message, kOutputBytesMax);
    }
    if (!failure.error_file.empty()) {
        object["error_file"] = sentence(failure.error_file);
    }
    return object;
}

void write(json& object, const NodeReport& report) {
    object["round"] = number(report.round);
    object["state"] = to_string(report.state);
    object["store_port"] = report.store_port;
    if (report.failure) {
        object["failure"] = to_json(*report.failure);
    }
}

// What equals the default is left out: most jobs send none of the optional fields.
void write(json& object, const JobPolicy& policy) {
    const JobPolicy usual;
    object["nodes_min"] = policy.nodes_min;
    object["nodes_max"] = policy.nodes_max;
    object["restarts_max"] = policy.restarts_max;
    object["program"] = beginning_of(policy.program, kNameBytesMax);
    const auto put = [&](const char* key, Duration value, Duration default_value) {
        if (value != default_value) {
            object[key] = std::chrono::duration_cast<std::chrono::milliseconds>(value).count();
        }
    };
    put("last_call_ms", policy.last_call, usual.last_call);
    put("heartbeat_timeout_ms", policy.heartbeat_timeout, usual.heartbeat_timeout);
    put("shutdown_timeout_ms", policy.shutdown_timeout, usual.shutdown_timeout);
    put("grow_after_ms", policy.grow_after, usual.grow_after);
}

void write(json& object, const Offer& offer) {
    object["name"] = offer.name;
    object["workers"] = offer.workers;
    if (offer.role != Offer().role) {
        object["role"] = offer.role;
    }
    if (offer.slot) {
        object["slot"] = *offer.slot;
    }
    if (offer.address_is_explicit && !offer.address.empty()) {
        object["address"] = offer.address;
    }
    if (!offer.other_addresses.empty()) {
        object["other_addresses"] = names(offer.other_addresses);
    }
}

struct AgentWriter {
    json operator()(const Join& join) const {
        json object = {{"type", "join"},
                       {"protocol", kProtocolVersion},
                       {"job", join.job},
                       {"node", join.node}};
        write(object, join.policy);
        write(object, join.offer);
        write(object, join.report);
        return object;
    }
    json operator()(const Report& message) const {
        json object = {{"type", "report"}};
        write(object, message.report);
        return object;
    }
    json operator()(const Leave& message) const {
        return {{"type", "leave"}, {"reason", sentence(message.reason)}};
    }
    template <class Message>
    json operator()(const Message& /*message*/) const {
        return {};
    }
};

struct DaemonWriter {
    json operator()(const Assign& message) const {
        const Assignment& a = message.assignment;
        json object = {{"type", "assign"},
                       {"round", number(a.round)},
                       {"group_rank", a.group_rank},
                       {"group_world_size", a.group_world_size},
                       {"first_rank", a.first_rank},
                       {"world_size", a.world_size},
                       {"master_addr", a.master_addr},
                       {"master_port", a.master_port},
                       {"restart_count", a.restart_count},
                       {"reason", sentence(a.reason)}};
        // With a single role, the usual case, role ranks are ranks.
        if (a.role_first_rank != a.first_rank || a.role_world_size != a.world_size) {
            object["role_first_rank"] = a.role_first_rank;
            object["role_world_size"] = a.role_world_size;
        }
        return object;
    }
    json operator()(const Stop& message) const {
        return {{"type", "stop"},
                {"round", number(message.round)},
                {"reason", sentence(message.reason)}};
    }
    json operator()(const Fenced& message) const {
        return {{"type", "fenced"}, {"reason", sentence(message.reason)}};
    }
    json operator()(const Dismissed& message) const {
        return {{"type", "dismissed"}, {"round", number(message.round)}};
    }
    json operator()(const Alive& message) const {
        return {{"type", "alive"}, {"round", number(message.round)}};
    }
    json operator()(const Waiting& message) const {
        return {{"type", "waiting"},
                {"joined", names(message.joined)},
                {"nodes_min", message.nodes_min},
                {"nodes_max", message.nodes_max},
                {"spare", message.spare},
                {"detail", sentence(message.detail)}};
    }
    json operator()(const Refused& message) const {
        return {{"type", "refused"},
                {"code", regroup::to_string(message.code)},
                {"reason", sentence(message.reason)}};
    }
    json operator()(const Closed& message) const {
        const Verdict& verdict = message.verdict;
        json object = {{"type", "closed"},
                       {"outcome", to_string(verdict.outcome)},
                       {"reason", sentence(verdict.reason)},
                       {"author", sentence(verdict.author)},
                       {"exit_code", verdict.exit_code},
                       {"restarts", verdict.restarts}};
        if (verdict.failure) {
            object["failure"] = to_json(*verdict.failure);
        }
        return object;
    }
    template <class Message>
    json operator()(const Message& /*message*/) const {
        return {};
    }
};

std::string dump(const json& object) {
    return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

std::string encode(const FromAgent& message) {
    return dump(std::visit(AgentWriter(), message));
}

std::string encode(const FromDaemon& message) {
    return dump(std::visit(DaemonWriter(), message));
}

}  // namespace regroup::protocol
