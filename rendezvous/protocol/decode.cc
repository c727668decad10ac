// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "rendezvous/json/json_text.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/field_reader.h"
#include "rendezvous/protocol/parts.h"
#include "rendezvous/protocol/text.h"

namespace regroup::protocol {

using namespace rendezvous;  // NOLINT: the types of every message; this file is about them.
using nlohmann::json;

namespace {

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

// ---- From agents and operators.

void read(FieldReader& reader, Join& join) {
    reader.require("job");
    reader.name("job", join.job);
    reader.require("node");
    reader.name("node", join.node);
    read(reader, join.policy);
    read(reader, join.offer);
    read(reader, join.report);
    reader.duration("began_ago_ms", join.began_ago);
}
void read(FieldReader& reader, Report& message) {
    read(reader, message.report);
    read(reader, "telemetry", message.telemetry);
}
void read(FieldReader& reader, Leave& message) {
    reader.text("reason", message.reason, kSentenceBytesMax);
    reader.flag("killed", message.killed);
}
void read(FieldReader& reader, Operate& message) {
    static constexpr Operate::Action kActions[] = {
        Operate::Action::drain,  Operate::Action::release, Operate::Action::stop,
        Operate::Action::status, Operate::Action::events,  Operate::Action::logs};
    reader.choice("action", message.action, kActions);
    reader.name("job", message.job);
    if (names_node(message.action)) {
        reader.require("node");
    }
    reader.name("node", message.node);
    reader.text("author", message.author, kSentenceBytesMax);
    reader.text("reason", message.reason, kSentenceBytesMax);
    reader.flag("wait", message.wait);
    reader.integer("since", message.since);
    reader.integer("began_ms", message.began_ms);
    reader.flag("follow", message.follow);
    reader.flag("parts", message.parts);
    if (message.action == Operate::Action::logs) {
        read(reader, message.log);
    }
}
void read(FieldReader& reader, LogPart& message) {
    reader.require("ticket");
    reader.integer("ticket", message.ticket);
    reader.text("file", message.file, kSentenceBytesMax);
    reader.integer("offset", message.offset);
    // The sender has replaced each byte that is no UTF-8 by three.
    reader.text("text", message.text, 3 * kLogBytesMax);
    reader.flag("more", message.more);
    reader.text("trouble", message.trouble, kSentenceBytesMax);
}

// ---- From the daemon.

void read(FieldReader& reader, Assign& message) {
    read(reader, message.assignment);
    reader.integer("now_ms", message.now_ms);
}

/// Reads a message with a round and a reason.
template <class Message>
void read_about_round(FieldReader& reader, Message& message) {
    reader.require("round");
    reader.round("round", message.round);
    read_words(reader, "reason", message.reason);
}
void read(FieldReader& reader, Stop& message) {
    read_about_round(reader, message);
}
void read(FieldReader& reader, Prepare& message) {
    read_about_round(reader, message);
    reader.flag("leave", message.leave);
    reader.flag("if_running", message.if_running);
    reader.flag("stale", message.stale);
}
void read(FieldReader& reader, SaveStacks& message) {
    reader.require("round");
    reader.round("round", message.round);
    reader.text("reason", message.reason, kSentenceBytesMax);
    reader.integer("alarm", message.alarm);
}
void read(FieldReader& reader, EndWorker& message) {
    reader.require("round");
    reader.round("round", message.round);
    reader.text("reason", message.reason.text, kSentenceBytesMax);
    reader.require("rank");
    reader.integer("rank", message.rank);
    reader.flag("by_silence", message.by_silence);
}
void read(FieldReader& reader, Fenced& message) {
    read_words(reader, "reason", message.reason);
}
void read(FieldReader& reader, Dismissed& message) {
    reader.require("round");
    reader.round("round", message.round);
}
void read(FieldReader& reader, Alive& message) {
    reader.require("round");
    reader.round("round", message.round);
    read_words(reader, "partial_finish", message.partial_finish);
}
void read(FieldReader& reader, Waiting& message) {
    reader.names("joined", message.joined);
    reader.integer("nodes_min", message.nodes_min);
    reader.integer("nodes_max", message.nodes_max);
    reader.flag("standby", message.standby);
    reader.flag("prestart", message.prestart);
    reader.flag("other_command", message.other_command);
    read_words(reader, "detail", message.detail);
    reader.integer("now_ms", message.now_ms);
}
void read(FieldReader& reader, Refused& message) {
    static constexpr Errc kCodes[] = {Errc::invalid_argument,
                                      Errc::deadline_exceeded,
                                      Errc::disconnected,
                                      Errc::overloaded,
                                      Errc::fenced,
                                      Errc::closed,
                                      Errc::system};
    reader.choice("code", message.code, kCodes);
    read_words(reader, "reason", message.reason);
}
void read(FieldReader& reader, ReadLog& message) {
    reader.require("ticket");
    reader.integer("ticket", message.ticket);
    read(reader, message.wish);
}
void read(FieldReader& reader, Recovered& message) {
    read(reader, message.incident);
}
void read(FieldReader& reader, Closed& message) {
    read(reader, message.verdict);
    reader.flag("missed", message.missed);
}
void read(FieldReader& reader, Operated& message) {
    reader.require("done");
    reader.flag("done", message.done);
    reader.text("text", message.text, kStatusBytesMax);
    reader.flag("more", message.more);
}
void read(FieldReader& reader, EventPage& message) {
    reader.require("job");
    reader.name("job", message.job);
    reader.integer("began_ms", message.began_ms);
    reader.text("lines", message.lines, kStatusBytesMax);
    reader.flag("last", message.is_last);
}
void read(FieldReader& reader, Elsewhere& message) {
    reader.name("endpoint", message.endpoint);
}

// ---- Decoding by the name of the message.

template <class Variant>
using ReadAs = Result<Variant> (*)(FieldReader&);

template <class Variant, class Message>
Result<Variant> read_as(FieldReader& reader) {
    Message message;
    read(reader, message);
    if (reader.complaint()) {
        return malformed(*reader.complaint());
    }
    return Variant(std::move(message));
}

template <class Variant, std::size_t N>
Result<Variant> decode(std::string_view payload,
                       const std::pair<std::string_view, ReadAs<Variant>> (&known)[N]) {
    static_assert(N == std::variant_size_v<Variant>, "each message has a name");
    const Result<json> object = parse(payload);
    if (!object) {
        return object.error();
    }
    FieldReader reader(*object);
    std::string type;
    reader.require("type");
    reader.text("type", type, kNameBytesMax);
    if (reader.complaint()) {
        return malformed(*reader.complaint());
    }
    if (type == "join" || type == "operate") {  // The first message of a connection.
        int version = 0;
        reader.require("protocol");
        reader.integer("protocol", version);
        if (!reader.complaint() && version != kProtocolVersion) {
            return Failure(Errc::invalid_argument,
                           "this daemon speaks version " + std::to_string(kProtocolVersion) +
                               " of the control protocol, the agent speaks version " +
                               std::to_string(version) + "; use the same regroup on all nodes");
        }
    }
    for (const auto& [name, read_message] : known) {
        if (name == type) {
            return read_message(reader);
        }
    }
    return malformed("unknown type " + protocol::quoted(type));
}

}  // namespace

Result<FromAgent> decode_from_agent(std::string_view payload) {
    static constexpr std::pair<std::string_view, ReadAs<FromAgent>> kKnown[] = {
        {"join", read_as<FromAgent, Join>},        {"report", read_as<FromAgent, Report>},
        {"leave", read_as<FromAgent, Leave>},      {"resumed", read_as<FromAgent, Resumed>},
        {"log_part", read_as<FromAgent, LogPart>}, {"operate", read_as<FromAgent, Operate>},
    };
    return decode(payload, kKnown);
}

Result<FromDaemon> decode_from_daemon(std::string_view payload) {
    static constexpr std::pair<std::string_view, ReadAs<FromDaemon>> kKnown[] = {
        {"assign", read_as<FromDaemon, Assign>},
        {"stop", read_as<FromDaemon, Stop>},
        {"prepare", read_as<FromDaemon, Prepare>},
        {"save_stacks", read_as<FromDaemon, SaveStacks>},
        {"end_worker", read_as<FromDaemon, EndWorker>},
        {"read_log", read_as<FromDaemon, ReadLog>},
        {"fenced", read_as<FromDaemon, Fenced>},
        {"dismissed", read_as<FromDaemon, Dismissed>},
        {"alive", read_as<FromDaemon, Alive>},
        {"waiting", read_as<FromDaemon, Waiting>},
        {"refused", read_as<FromDaemon, Refused>},
        {"recovered", read_as<FromDaemon, Recovered>},
        {"closed", read_as<FromDaemon, Closed>},
        {"operated", read_as<FromDaemon, Operated>},
        {"events", read_as<FromDaemon, EventPage>},
        {"elsewhere", read_as<FromDaemon, Elsewhere>},
    };
    return decode(payload, kKnown);
}

}  // namespace regroup::protocol
