// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/protocol/codec.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "rendezvous/json/json_text.h"
#include "rendezvous/protocol/fields.h"
#include "rendezvous/protocol/message_line.h"
#include "rendezvous/protocol/text.h"
#include "rendezvous/text/describe.h"

namespace regroup::protocol {

using namespace rendezvous;  // NOLINT: the types of every message; this file is about them.
using nlohmann::json;

namespace {

// ---- From agents and operators.

template <class Io>
void visit_fields(Io& io, Visited<Io, Join>& join) {
    io.name("job", join.job, kRequired);
    io.name("node", join.node, kRequired);
    visit_fields(io, join.policy);
    visit_fields(io, join.offer);
    visit_fields(io, join.report);
    io.duration("began_ago_ms", join.began_ago);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, Report>& message) {
    visit_fields(io, message.report);
    io.part("telemetry", message.telemetry);
    io.part("snapshots", message.snapshots);
    io.part("work", message.work);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, Leave>& message) {
    io.text("reason", message.reason, kWritten);
    io.flag("killed", message.killed);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, LogPart>& message) {
    io.integer("ticket", message.ticket, kRequired);
    io.text("file", message.file);
    io.integer("offset", message.offset, kWritten);
    // Each byte that is no UTF-8 is replaced by three.
    io.text("text", message.text, Presence::optional, 3 * kLogBytesMax);
    io.flag("more", message.more);
    io.text("trouble", message.trouble);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, Operate>& message) {
    io.choice("action", message.action, {Operate::Action::drain, Operate::Action::logs}, kRequired);
    io.name("job", message.job);
    io.name("node", message.node, names_node(message.action) ? kRequired : Presence::optional);
    io.text("author", message.author);
    io.text("reason", message.reason);
    io.flag("wait", message.wait);
    if (message.action == Operate::Action::logs) {
        visit_fields(io, message.log);
    }
}

// ---- From the daemon.

template <class Io>
void visit_fields(Io& io, Visited<Io, Assign>& message) {
    visit_fields(io, message.assignment);
    io.integer("now_ms", message.now_ms);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, Stop>& message) {
    io.round("round", message.round);
    io.words("reason", message.reason, kWritten);
    io.flag("planned", message.planned);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, Prepare>& message) {
    io.round("round", message.round);
    io.words("reason", message.reason, kWritten);
    io.flag("leave", message.leave);
    io.flag("if_running", message.if_running);
    io.flag("stale", message.stale);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, SaveStacks>& message) {
    io.round("round", message.round);
    io.words("reason", message.reason, kWritten);
    io.integer("alarm", message.alarm, kWritten);
    io.flag("positions_only", message.positions_only);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, EndWorker>& message) {
    io.round("round", message.round);
    io.words("reason", message.reason, kWritten);
    io.integer("rank", message.rank, kRequired);
    io.flag("by_silence", message.by_silence);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, ReadLog>& message) {
    io.integer("ticket", message.ticket, kRequired);
    visit_fields(io, message.wish);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, Fenced>& message) {
    io.words("reason", message.reason, kWritten);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, Dismissed>& message) {
    io.round("round", message.round);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, Alive>& message) {
    io.round("round", message.round);
    io.words("partial_finish", message.partial_finish);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, Waiting>& message) {
    io.names("joined", message.joined, kWritten);
    io.integer("nodes_min", message.nodes_min, kWritten);
    io.integer("nodes_max", message.nodes_max, kWritten);
    io.flag("standby", message.standby, kWritten);
    io.flag("prestart", message.prestart);
    io.flag("other_command", message.other_command);
    io.words("detail", message.detail, kWritten);
    io.integer("now_ms", message.now_ms);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, Refused>& message) {
    io.choice("code", message.code, {Errc::invalid_argument, Errc::system}, kRequired);
    io.words("reason", message.reason, kWritten);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, Recovered>& message) {
    visit_fields(io, message.incident);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, RankIsSlow>& message) {
    io.round("round", message.round);
    visit_fields(io, message.slow);
    io.name("node", message.node, kRequired);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, Closed>& message) {
    visit_fields(io, message.verdict);
    io.flag("missed", message.missed);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, Operated>& message) {
    io.flag("done", message.done, kRequired);
    io.text("text", message.text, kWritten, kAnswerBytesMax);
}
template <class Io>
void visit_fields(Io& io, Visited<Io, Elsewhere>& message) {
    io.name("endpoint", message.endpoint);
}

// ---- Any message.

/// The first message of a connection.
template <class Message>
constexpr bool kIsFirst = std::is_same_v<Message, Join> || std::is_same_v<Message, Operate>;

template <class Variant>
std::string encode_any(const Variant& message) {
    json object = {{"type", kind_of(message)}};
    FieldWriter writer(object);
    const auto write_fields = [&]<class Message>(const Message& fields) {
        if constexpr (kIsFirst<Message>) {
            writer.integer("protocol", kProtocolVersion);
        }
        visit_fields(writer, fields);
    };
    std::visit(write_fields, message);
    return json_text(object);
}

Failure malformed(const std::string& what) {
    return {Errc::invalid_argument, "malformed control message: " + what};
}

/// The nesting depth of objects and lists, found before parsing: 256 KiB of brackets would become
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
    json object = parse_json(payload);
    if (object.is_discarded()) {
        return malformed("not JSON");
    }
    if (!object.is_object()) {
        return malformed("not a JSON object");
    }
    return object;
}

/// Refuses the first message of a program of another version.
Result<void> check_version(FieldReader& reader) {
    int version = kProtocolVersion;
    reader.integer("protocol", version, kRequired);
    if (version != kProtocolVersion) {
        return Failure(Errc::invalid_argument,
                       "this daemon speaks version " + std::to_string(kProtocolVersion) +
                           " of the control protocol, the agent speaks version " +
                           std::to_string(version) + "; use the same regroup on all nodes");
    }
    return {};
}

/// Refuses a command of a regroup that read these over the control protocol.
Result<void> check_action(FieldReader& reader) {
    std::string action;
    reader.text("action", action);
    if (action == "status" || action == "events") {
        return Failure(Errc::invalid_argument, "this daemon shows " + action +
                                                   " by HTTP only; use a regroup of its version");
    }
    return {};
}

template <class Message>
Result<void> read(FieldReader& reader, Message& message) {
    if constexpr (kIsFirst<Message>) {
        if (const Result<void> fits = check_version(reader); !fits) {
            return fits;
        }
    }
    if constexpr (std::is_same_v<Message, Operate>) {
        if (const Result<void> known = check_action(reader); !known) {
            return known;
        }
    }
    visit_fields(reader, message);
    return reader.complaint() ? Result<void>(malformed(*reader.complaint())) : Result<void>();
}

template <class Variant, std::size_t N>
Result<Variant> decode(std::string_view payload, const std::string_view (&kinds)[N]) {
    const Result<json> object = parse(payload);
    if (!object) {
        return object.error();
    }
    FieldReader reader(*object);
    std::string type;
    reader.text("type", type, kRequired, kNameBytesMax);
    if (reader.complaint()) {
        return malformed(*reader.complaint());
    }
    std::optional<Variant> message = alternative_named<Variant>(type, kinds);
    if (!message) {
        return malformed("unknown type " + protocol::quoted(type));
    }
    const Result<void> done = std::visit([&](auto& each) { return read(reader, each); }, *message);
    return done ? Result<Variant>(*std::move(message)) : done.error();
}

}  // namespace

bool is_of_unknown_type(std::string_view payload) {
    const Result<json> object = parse(payload);
    if (!object) {
        return false;
    }
    FieldReader reader(*object);
    std::string type;
    reader.text("type", type, kRequired, kNameBytesMax);
    return !reader.complaint() && std::ranges::find(kDaemonKinds, type) == std::end(kDaemonKinds);
}

std::string encode(const FromAgent& message) {
    return encode_any(message);
}

std::string encode(const FromDaemon& message) {
    return encode_any(message);
}

Result<FromAgent> decode_from_agent(std::string_view payload) {
    return decode<FromAgent>(payload, kAgentKinds);
}

Result<FromDaemon> decode_from_daemon(std::string_view payload) {
    return decode<FromDaemon>(payload, kDaemonKinds);
}

}  // namespace regroup::protocol
