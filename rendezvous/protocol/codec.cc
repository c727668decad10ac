// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/protocol/codec.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

namespace regroup::protocol {

using namespace rendezvous;  // NOLINT: the types of every message; this file is about them.
using nlohmann::json;

namespace {

// Rounds travel as JSON numbers: beyond this a double-based reader would lose digits.
constexpr std::uint64_t kRoundMax = std::uint64_t{1} << 53U;
constexpr std::int64_t kMillisecondsMax = std::int64_t{1} << 40U;

std::int64_t to_ms(Duration duration) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

/// Reads the fields of one object and remembers the first complaint.
class Reader {
   public:
    explicit Reader(const json& object) : object_(object) {
        if (!object.is_object()) {
            complain("is not a JSON object", "message");
        }
    }

    void text(const char* key, std::string& out, std::size_t bytes_max = kFrameText) {
        const json* value = find(key);
        if (value == nullptr) {
            return;
        }
        if (!value->is_string()) {
            complain("must be a string", key);
            return;
        }
        out = value->get_ref<const std::string&>();
        if (out.size() > bytes_max) {
            complain("is longer than " + std::to_string(bytes_max) + " bytes", key);
        }
    }

    template <class Number>
    void integer(const char* key, Number& out,
                 std::uint64_t max = std::numeric_limits<Number>::max()) {
        const json* value = find(key);
        if (value == nullptr) {
            return;
        }
        if (!value->is_number_integer() || (value->is_number_unsigned() == false &&
                                            value->get<std::int64_t>() < 0)) {
            complain("must be a whole number, zero or more", key);
            return;
        }
        const auto number = value->get<std::uint64_t>();
        if (number > max) {
            complain("must be at most " + std::to_string(max), key);
            return;
        }
        out = static_cast<Number>(number);
    }

    /// As `integer`, with -1 allowed.
    void exit_code(const char* key, int& out) {
        const json* value = find(key);
        if (value == nullptr) {
            return;
        }
        if (!value->is_number_integer() || *value < -1 || *value > 255) {
            complain("must be an exit code", key);
            return;
        }
        out = value->get<int>();
    }

    void flag(const char* key, bool& out) {
        const json* value = find(key);
        if (value == nullptr) {
            return;
        }
        if (!value->is_boolean()) {
            complain("must be true or false", key);
            return;
        }
        out = value->get<bool>();
    }

    void round(const char* key, RoundId& out) {
        std::uint64_t number = 0;
        integer(key, number, kRoundMax);
        out = static_cast<RoundId>(number);
    }

    void duration(const char* key, Duration& out) {
        std::uint64_t ms = static_cast<std::uint64_t>(to_ms(out));
        integer(key, ms, static_cast<std::uint64_t>(kMillisecondsMax));
        out = std::chrono::milliseconds(ms);
    }

    void texts(const char* key, std::vector<std::string>& out, std::size_t count_max) {
        const json* value = find(key);
        if (value == nullptr) {
            return;
        }
        if (!value->is_array() || value->size() > count_max) {
            complain("must be a list of at most " + std::to_string(count_max) + " strings", key);
            return;
        }
        for (const json& element : *value) {
            if (!element.is_string()) {
                complain("must be a list of strings", key);
                return;
            }
            out.push_back(element.get<std::string>());
        }
    }

    template <class Enum, std::size_t N>
    void choice(const char* key, Enum& out, const Enum (&all)[N]) {
        std::string name;
        text(key, name);
        for (const Enum candidate : all) {
            if (to_string(candidate) == name) {
                out = candidate;
                return;
            }
        }
        complain("has the unknown value '" + name.substr(0, 40) + "'", key);
    }

    void required(const char* key) {
        if (find(key) == nullptr) {
            complain("is missing", key);
        }
    }

    /// The object at `key`, or null when absent.
    [[nodiscard]] const json* find(const char* key) const {
        if (!object_.is_object()) {
            return nullptr;
        }
        const auto found = object_.find(key);
        return found == object_.end() ? nullptr : &*found;
    }

    void complain(const std::string& what, const char* key) {
        if (!complaint_) {
            complaint_ = "field '" + std::string(key) + "' " + what;
        }
    }
    void adopt(const Reader& inner) {
        if (!complaint_) {
            complaint_ = inner.complaint_;
        }
    }
    [[nodiscard]] const std::optional<std::string>& complaint() const { return complaint_; }

   private:
    static constexpr std::size_t kFrameText = std::size_t{64} << 10U;

    const json& object_;
    std::optional<std::string> complaint_;
};

// ---- The parts.

json to_json(const WorkerFailure& failure) {
    json object = {{"rank", failure.rank},   {"local_rank", failure.local_rank},
                   {"node", failure.node},   {"host", failure.host},
                   {"pid", failure.pid},     {"exit_code", failure.exit_code},
                   {"time", failure.time},   {"signal", failure.signal},
                   {"log", failure.log_file}};
    if (failure.core_dumped) {
        object["core_dumped"] = true;
    }
    if (!failure.start_error.empty()) {
        object["start_error"] = failure.start_error;
    }
    if (!failure.last_output.empty()) {
        object["last_output"] = failure.last_output;
    }
    return object;
}

void read(Reader& outer, const char* key, std::optional<WorkerFailure>& out) {
    const json* value = outer.find(key);
    if (value == nullptr) {
        return;
    }
    Reader reader(*value);
    WorkerFailure failure;
    reader.integer("rank", failure.rank);
    reader.integer("local_rank", failure.local_rank);
    reader.text("node", failure.node);
    reader.text("host", failure.host);
    reader.integer("pid", failure.pid);
    reader.exit_code("exit_code", failure.exit_code);
    reader.integer("signal", failure.signal, 127);
    reader.flag("core_dumped", failure.core_dumped);
    reader.text("start_error", failure.start_error);
    reader.text("time", failure.time);
    reader.text("last_output", failure.last_output);
    reader.text("log", failure.log_file);
    outer.adopt(reader);
    out = std::move(failure);
}

void write(json& object, const NodeReport& report) {
    object["round"] = number(report.round);
    object["state"] = to_string(report.state);
    object["store_port"] = report.store_port;
    if (report.failure) {
        object["failure"] = to_json(*report.failure);
    }
}

void read(Reader& reader, NodeReport& report) {
    static constexpr NodeState kStates[] = {NodeState::stopped, NodeState::running,
                                            NodeState::stopping, NodeState::finished};
    reader.round("round", report.round);
    reader.choice("state", report.state, kStates);
    reader.integer("store_port", report.store_port);
    read(reader, "failure", report.failure);
}

// What equals the default is left out: most jobs send none of the optional fields.
void write(json& object, const JobPolicy& policy) {
    const JobPolicy usual;
    object["nodes_min"] = policy.nodes_min;
    object["nodes_max"] = policy.nodes_max;
    object["restarts_max"] = policy.restarts_max;
    object["program"] = policy.program;
    const auto put = [&](const char* key, Duration value, Duration default_value) {
        if (value != default_value) {
            object[key] = to_ms(value);
        }
    };
    put("last_call_ms", policy.last_call, usual.last_call);
    put("heartbeat_timeout_ms", policy.heartbeat_timeout, usual.heartbeat_timeout);
    put("shutdown_timeout_ms", policy.shutdown_timeout, usual.shutdown_timeout);
    put("grow_after_ms", policy.grow_after, usual.grow_after);
}

void read(Reader& reader, JobPolicy& policy) {
    reader.required("nodes_min");
    reader.required("nodes_max");
    reader.integer("nodes_min", policy.nodes_min);
    reader.integer("nodes_max", policy.nodes_max);
    reader.integer("restarts_max", policy.restarts_max);
    reader.text("program", policy.program, kNameBytesMax);
    reader.duration("last_call_ms", policy.last_call);
    reader.duration("heartbeat_timeout_ms", policy.heartbeat_timeout);
    reader.duration("shutdown_timeout_ms", policy.shutdown_timeout);
    reader.duration("grow_after_ms", policy.grow_after);
    if (!reader.complaint()) {
        if (const Result<void> valid = validate(policy); !valid) {
            reader.complain("does not fit: " + valid.error().detail, "nodes_min");
        }
    }
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
    if (!offer.address.empty()) {
        object["address"] = offer.address;
    }
    if (!offer.other_addresses.empty()) {
        object["other_addresses"] = offer.other_addresses;
    }
}

void read(Reader& reader, Offer& offer) {
    reader.required("name");
    reader.text("name", offer.name, kNameBytesMax);
    reader.integer("workers", offer.workers, 1U << 20U);
    reader.text("role", offer.role, kNameBytesMax);
    if (reader.find("slot") != nullptr) {
        std::uint32_t slot = 0;
        reader.integer("slot", slot);
        offer.slot = slot;
    }
    reader.text("address", offer.address, kNameBytesMax);
    offer.address_is_explicit = !offer.address.empty();
    reader.texts("other_addresses", offer.other_addresses, 16);
}

// ---- Whole messages.

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
    json operator()(const Report& report) const {
        json object = {{"type", "report"}};
        write(object, report.report);
        return object;
    }
    json operator()(const Leave& leave) const {
        return {{"type", "leave"}, {"reason", leave.reason}};
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
                       {"reason", a.reason}};
        // With a single role, the usual case, role ranks are ranks.
        if (a.role_first_rank != a.first_rank || a.role_world_size != a.world_size) {
            object["role_first_rank"] = a.role_first_rank;
            object["role_world_size"] = a.role_world_size;
        }
        return object;
    }
    json operator()(const Stop& message) const {
        return {{"type", "stop"}, {"round", number(message.round)}, {"reason", message.reason}};
    }
    json operator()(const Fenced& message) const {
        return {{"type", "fenced"}, {"reason", message.reason}};
    }
    json operator()(const Alive& message) const {
        return {{"type", "alive"}, {"round", number(message.round)}};
    }
    json operator()(const Waiting& message) const {
        return {{"type", "waiting"},
                {"joined", message.joined},
                {"nodes_min", message.nodes_min},
                {"nodes_max", message.nodes_max},
                {"spare", message.spare},
                {"detail", message.detail}};
    }
    json operator()(const Refused& message) const {
        return {{"type", "refused"},
                {"code", regroup::to_string(message.code)},
                {"reason", message.reason}};
    }
    json operator()(const Closed& message) const {
        const Verdict& verdict = message.verdict;
        json object = {{"type", "closed"},
                       {"outcome", to_string(verdict.outcome)},
                       {"reason", verdict.reason},
                       {"author", verdict.author},
                       {"exit_code", verdict.exit_code},
                       {"restarts", verdict.restarts}};
        if (verdict.failure) {
            object["failure"] = to_json(*verdict.failure);
        }
        return object;
    }
};

std::string dump(const json& object) {
    return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

Failure malformed(const std::string& what) {
    return Failure(Errc::invalid_argument, "malformed control message: " + what);
}

Result<json> parse(std::string_view payload) {
    json object = json::parse(payload, nullptr, /*allow_exceptions=*/false);
    if (object.is_discarded()) {
        return malformed("not JSON");
    }
    if (!object.is_object()) {
        return malformed("not a JSON object");
    }
    return object;
}

template <class Variant, class Message>
Result<Variant> finish(const Reader& reader, Message message) {
    if (reader.complaint()) {
        return malformed(*reader.complaint());
    }
    return Variant(std::move(message));
}

Result<FromAgent> read_join(Reader& reader) {
    int version = 0;
    reader.integer("protocol", version);
    if (version != kProtocolVersion) {
        return Failure(Errc::invalid_argument,
                       "this daemon speaks version " + std::to_string(kProtocolVersion) +
                           " of the control protocol, the agent speaks version " +
                           std::to_string(version) + "; use the same regroup on all nodes");
    }
    Join join;
    for (const char* key : {"job", "node"}) {
        reader.required(key);
    }
    reader.text("job", join.job, kNameBytesMax);
    reader.text("node", join.node, kNameBytesMax);
    read(reader, join.policy);
    read(reader, join.offer);
    read(reader, join.report);
    return finish<FromAgent>(reader, std::move(join));
}

Result<FromDaemon> read_assign(Reader& reader) {
    Assignment a;
    for (const char* key : {"round", "world_size", "master_addr", "master_port"}) {
        reader.required(key);
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
    reader.text("master_addr", a.master_addr, kNameBytesMax);
    reader.integer("master_port", a.master_port);
    reader.integer("restart_count", a.restart_count);
    reader.text("reason", a.reason);
    return finish<FromDaemon>(reader, Assign{std::move(a)});
}

Result<FromDaemon> read_closed(Reader& reader) {
    static constexpr Outcome kOutcomes[] = {Outcome::succeeded, Outcome::failed, Outcome::stopped};
    Verdict verdict;
    reader.choice("outcome", verdict.outcome, kOutcomes);
    reader.text("reason", verdict.reason);
    reader.text("author", verdict.author);
    reader.integer("exit_code", verdict.exit_code, 255);
    reader.integer("restarts", verdict.restarts);
    read(reader, "failure", verdict.failure);
    return finish<FromDaemon>(reader, Closed{std::move(verdict)});
}

Result<FromDaemon> read_waiting(Reader& reader) {
    Waiting message;
    reader.texts("joined", message.joined, 1024);
    reader.integer("nodes_min", message.nodes_min);
    reader.integer("nodes_max", message.nodes_max);
    reader.flag("spare", message.spare);
    reader.text("detail", message.detail);
    return finish<FromDaemon>(reader, std::move(message));
}

Result<FromDaemon> read_refused(Reader& reader) {
    static constexpr Errc kCodes[] = {Errc::invalid_argument, Errc::deadline_exceeded,
                                      Errc::disconnected,     Errc::overloaded,
                                      Errc::fenced,           Errc::closed,
                                      Errc::system};
    Refused message;
    reader.choice("code", message.code, kCodes);
    reader.text("reason", message.reason);
    return finish<FromDaemon>(reader, std::move(message));
}

}  // namespace

std::string encode(const FromAgent& message) { return dump(std::visit(AgentWriter(), message)); }

std::string encode(const FromDaemon& message) { return dump(std::visit(DaemonWriter(), message)); }

Result<FromAgent> decode_from_agent(std::string_view payload) {
    const Result<json> object = parse(payload);
    if (!object) {
        return object.error();
    }
    Reader reader(*object);
    std::string type;
    reader.text("type", type);
    if (type == "join") {
        return read_join(reader);
    }
    if (type == "report") {
        Report report;
        read(reader, report.report);
        return finish<FromAgent>(reader, std::move(report));
    }
    if (type == "leave") {
        Leave leave;
        reader.text("reason", leave.reason);
        return finish<FromAgent>(reader, std::move(leave));
    }
    return malformed("unknown type '" + type.substr(0, 40) + "'");
}

Result<FromDaemon> decode_from_daemon(std::string_view payload) {
    const Result<json> object = parse(payload);
    if (!object) {
        return object.error();
    }
    Reader reader(*object);
    std::string type;
    reader.text("type", type);
    if (type == "assign") {
        return read_assign(reader);
    }
    if (type == "stop") {
        Stop message;
        reader.round("round", message.round);
        reader.text("reason", message.reason);
        return finish<FromDaemon>(reader, std::move(message));
    }
    if (type == "fenced") {
        Fenced message;
        reader.text("reason", message.reason);
        return finish<FromDaemon>(reader, std::move(message));
    }
    if (type == "alive") {
        Alive message;
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
    return malformed("unknown type '" + type.substr(0, 40) + "'");
}

}  // namespace regroup::protocol
