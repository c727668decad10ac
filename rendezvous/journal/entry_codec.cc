// SPDX-License-Identifier: Apache-2.0
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "rendezvous/journal/entry_json.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/field_reader.h"
#include "rendezvous/protocol/parts.h"

namespace regroup::journal {

using namespace rendezvous;  // NOLINT: every event; this file is about them.
using nlohmann::json;
using protocol::FieldReader;

namespace {

// ---- Writing.

struct EventWriter {
    json& object;

    void operator()(const NodeJoined& event) const {
        object["event"] = "joined";
        object["node"] = event.node;
        protocol::write(object, event.policy);
        protocol::write(object, event.offer);
        protocol::write(object, event.report);
        if (!event.offer.address_is_explicit && !event.offer.address.empty()) {
            object["seen_address"] = event.offer.address;
        }
    }
    void operator()(const NodeReported& event) const {
        object["event"] = "reported";
        object["node"] = event.node;
        protocol::write(object, event.report);
    }
    void operator()(const NodeDisconnected& event) const {
        object["event"] = "disconnected";
        object["node"] = event.node;
    }
    void operator()(const NodeLeft& event) const {
        object["event"] = "left";
        object["node"] = event.node;
        protocol::put_sentence(object, "reason", event.reason);
        if (event.killed) {
            object["killed"] = true;
        }
    }
    void operator()(const StopRequested& event) const {
        object["event"] = "stop";
        protocol::put_sentence(object, "author", event.author);
        protocol::put_sentence(object, "reason", event.reason);
    }
    void operator()(const DrainRequested& event) const {
        object["event"] = "drain";
        object["node"] = event.node;
        protocol::put_sentence(object, "author", event.author);
        protocol::put_sentence(object, "reason", event.reason);
    }
    void operator()(const ReleaseRequested& event) const {
        object["event"] = "release";
        object["node"] = event.node;
        protocol::put_sentence(object, "author", event.author);
        protocol::put_sentence(object, "reason", event.reason);
    }
    void operator()(const NodeResumed& event) const {
        object["event"] = "resumed";
        object["node"] = event.node;
        protocol::write(object, event.resumed);
    }
    void operator()(const Restarted& /*event*/) const { object["event"] = "restarted"; }
    void operator()(const JobFollows& event) const {
        object["event"] = "follows";
        protocol::write(object, event.policy);
        object["last_round"] = number(event.last);
    }
};

// ---- Reading.

void read(FieldReader& reader, NodeJoined& event) {
    protocol::read(reader, event.policy);
    protocol::read(reader, event.offer);
    protocol::read(reader, event.report);
    if (!event.offer.address_is_explicit) {
        reader.text("seen_address", event.offer.address, protocol::kNameBytesMax);
    }
}
void read(FieldReader& reader, NodeReported& event) {
    protocol::read(reader, event.report);
}
void read(FieldReader& reader, NodeLeft& event) {
    reader.text("reason", event.reason, protocol::kSentenceBytesMax);
    reader.flag("killed", event.killed);
}
template <class Request>
void read_request(FieldReader& reader, Request& event) {
    reader.text("author", event.author, protocol::kSentenceBytesMax);
    reader.text("reason", event.reason, protocol::kSentenceBytesMax);
}
void read(FieldReader& reader, StopRequested& event) {
    read_request(reader, event);
}
void read(FieldReader& reader, DrainRequested& event) {
    read_request(reader, event);
}
void read(FieldReader& reader, ReleaseRequested& event) {
    read_request(reader, event);
}
void read(FieldReader& reader, NodeResumed& event) {
    protocol::read(reader, event.resumed);
}
void read(FieldReader& /*reader*/, NodeDisconnected& /*event*/) {}
void read(FieldReader& /*reader*/, Restarted& /*event*/) {}
void read(FieldReader& reader, JobFollows& event) {
    protocol::read(reader, event.policy);
    reader.require("last_round");
    reader.round("last_round", event.last);
}

template <class Message>
concept HasNode = requires(Message message) { message.node; };

template <class Message>
Event read_event(FieldReader& reader) {
    Message event;
    if constexpr (HasNode<Message>) {
        reader.require("node");
        reader.name("node", event.node);
    }
    read(reader, event);
    return event;
}

constexpr std::pair<std::string_view, Event (*)(FieldReader&)> kEvents[] = {
    {"joined", read_event<NodeJoined>},
    {"reported", read_event<NodeReported>},
    {"disconnected", read_event<NodeDisconnected>},
    {"left", read_event<NodeLeft>},
    {"stop", read_event<StopRequested>},
    {"drain", read_event<DrainRequested>},
    {"release", read_event<ReleaseRequested>},
    {"resumed", read_event<NodeResumed>},
    {"restarted", read_event<Restarted>},
    {"follows", read_event<JobFollows>},
};
static_assert(std::size(kEvents) == std::variant_size_v<Event>);

}  // namespace

Failure malformed(const std::string& what) {
    return {Errc::invalid_argument, "malformed journal entry: " + what};
}

json to_json(const Entry& entry) {
    json object = {{"at_us", microseconds_of(entry.at)}, {"wall_ms", entry.wall_ms}};
    if (entry.event) {
        std::visit(EventWriter{object}, *entry.event);
    }
    if (!entry.assigned.empty()) {
        object["assigned"] = to_json(entry.assigned);
    }
    return object;
}

Result<Entry> entry_of(const json& object) {
    if (!object.is_object()) {
        return malformed("not a JSON object");
    }
    FieldReader reader(object);
    Entry entry;
    Duration at{};
    reader.require("at_us");
    reader.microseconds("at_us", at);
    entry.at = Instant(at);
    reader.integer("wall_ms", entry.wall_ms);
    std::string kind;
    reader.text("event", kind, protocol::kNameBytesMax);
    bool known = kind.empty();
    for (const auto& [name, read_as] : kEvents) {
        if (name == kind) {
            entry.event = read_as(reader);
            known = true;
        }
    }
    if (!known) {
        reader.complain("event", "has an unknown value");
    }
    read_assigned(reader, entry.assigned);
    if (reader.complaint()) {
        return malformed(*reader.complaint());
    }
    return entry;
}

std::string encode(const Entry& entry) {
    return text_of(to_json(entry));
}

Result<Entry> decode_entry(std::string_view text) {
    return entry_of(parse_json(text));
}

}  // namespace regroup::journal
