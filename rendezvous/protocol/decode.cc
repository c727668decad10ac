// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/field_reader.h"
#include "rendezvous/protocol/text.h"

namespace regroup::protocol {

using namespace rendezvous;  // NOLINT: the types of every message; this file is about them.
using nlohmann::json;

namespace {

constexpr std::uint64_t kWorkersMax = std::uint64_t{1} << 20U;
constexpr std::uint64_t kExitCodeMax = 255;
constexpr std::uint64_t kSignalMax = 127;

Failure malformed(const std::string& what) {
    return {Errc::invalid_argument, "malformed control message: " + what};
}

/// How deep objects and lists are nested, told before parsing: 256 KiB of brackets would become
/// many megabytes of objects.
std::size_t nesting(std::string_view payload) {
    std::size_t depth = 0;
    std::size_t deepest = 0;
    bool in_string = false;
    bool escaped = false;
    for (const char c : payload) {
        if (in_string) {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            deepest = std::max(deepest, ++depth);
        } else if ((c == '}' || c == ']') && depth > 0) {
            --depth;
        }
    }
    return deepest;
}

Result<json> parse(std::string_view payload) {
    if (nesting(payload) > kNestingMax) {
        return malformed("nested more than " + std::to_string(kNestingMax) + " deep");
    }
    json object = json::parse(payload, nullptr, /*allow_exceptions=*/false);
    if (object.is_discarded()) {
        return malformed("not JSON");
    }
    if (!object.is_object()) {
        return malformed("not a JSON object");
    }
    return object;
}

// ---- The parts.

void read(FieldReader& outer, std::string_view key, std::optional<WorkerFailure>& out) {
    std::optional<FieldReader> reader = outer.object(key);
    if (!reader) {
        return;
    }
    WorkerFailure failure;
    reader->integer("rank", failure.rank);
    reader->integer("local_rank", failure.local_rank);
    reader->text("node", failure.node, kNameBytesMax);
    reader->text("host", failure.host, kNameBytesMax);
    reader->integer("pid", failure.pid);
    reader->integer("exit_code", failure.exit_code, kExitCodeMax, -1);
    reader->integer("signal", failure.signal, kSignalMax);
    reader->flag("core_dumped", failure.core_dumped);
    reader->text("start_error", failure.start_error, kSentenceBytesMax);
    reader->text("time", failure.time, kNameBytesMax);
    reader->last_text("last_output", failure.last_output, kOutputBytesMax);
    reader->text("log", failure.log_file, kSentenceBytesMax);
    reader->text("evidence", failure.evidence, kSentenceBytesMax);
    reader->last_text("error_message", failure.error_message, kOutputBytesMax);
    reader->text("error_file", failure.error_file, kSentenceBytesMax);
    // The job's exit code is made of this one: it must not come out as success or as nothing.
    if (failure.start_error.empty() && failure.signal == 0 && failure.exit_code <= 0) {
        reader->complain("exit_code", "tells no failure, nor does any other field");
    }
    outer.adopt(*reader);
    out = std::move(failure);
}

void read(FieldReader& reader, NodeReport& report) {
    static constexpr NodeState kStates[] = {NodeState::stopped, NodeState::running,
                                            NodeState::stopping, NodeState::finished};
    reader.require("round");
    reader.round("round", report.round);
    reader.choice("state", report.state, kStates);
    reader.integer("store_port", report.store_port);
    read(reader, "failure", report.failure);
}

void read(FieldReader& reader, JobPolicy& policy) {
    reader.require("nodes_min");
    reader.require("nodes_max");
    reader.integer("nodes_min", policy.nodes_min);
    reader.integer("nodes_max", policy.nodes_max);
    reader.integer("restarts_max", policy.restarts_max);
    reader.text("program", policy.program, kNameBytesMax);
    reader.duration("last_call_ms", policy.last_call);
    reader.duration("heartbeat_timeout_ms", policy.heartbeat_timeout);
    reader.duration("shutdown_timeout_ms", policy.shutdown_timeout);
    reader.duration("grow_after_ms", policy.grow_after);
    if (const Result<void> valid = validate(policy); !valid) {
        const bool of_time = policy.nodes_min > 0 && policy.nodes_min <= policy.nodes_max;
        reader.complain(of_time ? "heartbeat_timeout_ms" : "nodes_min",
                        "does not fit: " + valid.error().detail);
    }
}

void read(FieldReader& reader, Offer& offer) {
    reader.require("name");
    reader.name("name", offer.name);
    reader.integer("workers", offer.workers, kWorkersMax);
    reader.name("role", offer.role);
    if (reader.has("slot")) {
        reader.integer("slot", offer.slot.emplace());
    }
    reader.name("address", offer.address);
    offer.address_is_explicit = !offer.address.empty();
    reader.names("other_addresses", offer.other_addresses);
}

// ---- Whole messages.

template <class Variant, class Message>
Result<Variant> finish(const FieldReader& reader, Message message) {
    if (reader.complaint()) {
        return malformed(*reader.complaint());
    }
    return Variant(std::move(message));
}

Result<FromAgent> read_join(FieldReader& reader) {
    int version = 0;
    reader.require("protocol");
    reader.integer("protocol", version);
    if (!reader.complaint() && version != kProtocolVersion) {
        return Failure(Errc::invalid_argument,
                       "this daemon speaks version " + std::to_string(kProtocolVersion) +
                           " of the control protocol, the agent speaks version " +
                           std::to_string(version) + "; use the same regroup on all nodes");
    }
    Join join;
    reader.require("job");
    reader.name("job", join.job);
    reader.require("node");
    reader.name("node", join.node);
    read(reader, join.policy);
    read(reader, join.offer);
    read(reader, join.report);
    return finish<FromAgent>(reader, std::move(join));
}

Result<FromDaemon> read_assign(FieldReader& reader) {
    Assignment a;
    for (const char* key : {"round", "group_rank", "group_world_size", "first_rank", "world_size",
                            "master_addr", "master_port"}) {
        reader.require(key);
    }
    reader.round("round", a.round);
    reader.integer("group_rank", a.group_rank);
    reader.integer("group_world_size", a.group_world_size);
    reader.integer("first_rank", a.first_rank);
    reader.integer("world_size", a.world_size);
    a.role_first_rank = a.first_rank;
    a.role_world_size = a.world_size;
    reader.integer("role_first_rank", a.role_first_rank);
    reader.integer("role_world_size", a.role_world_size);
    reader.name("master_addr", a.master_addr);
    reader.integer("master_port", a.master_port);
    reader.integer("restart_count", a.restart_count);
    reader.text("reason", a.reason, kSentenceBytesMax);
    return finish<FromDaemon>(reader, Assign{std::move(a)});
}

Result<FromDaemon> read_closed(FieldReader& reader) {
    static constexpr Outcome kOutcomes[] = {Outcome::succeeded, Outcome::failed, Outcome::stopped};
    Verdict verdict;
    reader.choice("outcome", verdict.outcome, kOutcomes);
    reader.text("reason", verdict.reason, kSentenceBytesMax);
    reader.text("author", verdict.author, kSentenceBytesMax);
    reader.integer("exit_code", verdict.exit_code, kExitCodeMax);
    reader.integer("restarts", verdict.restarts);
    read(reader, "failure", verdict.failure);
    return finish<FromDaemon>(reader, Closed{std::move(verdict)});
}

Result<FromDaemon> read_waiting(FieldReader& reader) {
    Waiting message;
    reader.names("joined", message.joined);
    reader.integer("nodes_min", message.nodes_min);
    reader.integer("nodes_max", message.nodes_max);
    reader.flag("spare", message.spare);
    reader.text("detail", message.detail, kSentenceBytesMax);
    return finish<FromDaemon>(reader, std::move(message));
}

Result<FromDaemon> read_refused(FieldReader& reader) {
    static constexpr Errc kCodes[] = {Errc::invalid_argument,
                                      Errc::deadline_exceeded,
                                      Errc::disconnected,
                                      Errc::overloaded,
                                      Errc::fenced,
                                      Errc::closed,
                                      Errc::system};
    Refused message;
    reader.choice("code", message.code, kCodes);
    reader.text("reason", message.reason, kSentenceBytesMax);
    return finish<FromDaemon>(reader, std::move(message));
}

std::string type_of(FieldReader& reader) {
    std::string type;
    reader.require("type");
    reader.text("type", type, kNameBytesMax);
    return type;
}

Failure unknown(const FieldReader& reader, const std::string& type) {
    return malformed(reader.complaint() ? *reader.complaint() : "unknown type " + quoted(type));
}

}  // namespace

Result<FromAgent> decode_from_agent(std::string_view payload) {
    const Result<json> object = parse(payload);
    if (!object) {
        return object.error();
    }
    FieldReader reader(*object);
    const std::string type = type_of(reader);
    if (type == "join") {
        return read_join(reader);
    }
    if (type == "report") {
        Report message;
        read(reader, message.report);
        return finish<FromAgent>(reader, std::move(message));
    }
    if (type == "leave") {
        Leave message;
        reader.text("reason", message.reason, kSentenceBytesMax);
        return finish<FromAgent>(reader, std::move(message));
    }
    return unknown(reader, type);
}

Result<FromDaemon> decode_from_daemon(std::string_view payload) {
    const Result<json> object = parse(payload);
    if (!object) {
        return object.error();
    }
    FieldReader reader(*object);
    const std::string type = type_of(reader);
    if (type == "assign") {
        return read_assign(reader);
    }
    if (type == "stop") {
        Stop message;
        reader.require("round");
        reader.round("round", message.round);
        reader.text("reason", message.reason, kSentenceBytesMax);
        return finish<FromDaemon>(reader, std::move(message));
    }
    if (type == "fenced") {
        Fenced message;
        reader.text("reason", message.reason, kSentenceBytesMax);
        return finish<FromDaemon>(reader, std::move(message));
    }
    if (type == "dismissed") {
        Dismissed message;
        reader.require("round");
        reader.round("round", message.round);
        return finish<FromDaemon>(reader, message);
    }
    if (type == "alive") {
        Alive message;
        reader.require("round");
        reader.round("round", message.round);
        return finish<FromDaemon>(reader, message);
    }
    if (type == "waiting") {
        return read_waiting(reader);
    }
    if (type == "refused") {
        return read_refused(reader);
    }
    if (type == "closed") {
        return read_closed(reader);
    }
    return unknown(reader, type);
}

}  // namespace regroup::protocol
