// SPDX-License-Identifier: Apache-2.0
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "rendezvous/journal/journal.h"
#include "rendezvous/journal/replay.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/field_reader.h"
#include "rendezvous/protocol/parts.h"

namespace regroup::journal {

using namespace rendezvous;  // NOLINT: every event; this file is about them.
using nlohmann::json;
using protocol::FieldReader;

namespace {

Failure malformed(const std::string& what) {
    return {Errc::invalid_argument, "malformed journal entry: " + what};
}

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
    void operator()(const NodeResumed& event) const {
        object["event"] = "resumed";
        object["node"] = event.node;
        protocol::write(object, event.resumed);
    }
    void operator()(const Restarted& /*event*/) const { object["event"] = "restarted"; }
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
void read(FieldReader& reader, NodeResumed& event) {
    protocol::read(reader, event.resumed);
}
void read(FieldReader& /*reader*/, NodeDisconnected& /*event*/) {}
void read(FieldReader& /*reader*/, Restarted& /*event*/) {}

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
    {"resumed", read_event<NodeResumed>},
    {"restarted", read_event<Restarted>},
};
static_assert(std::size(kEvents) == std::variant_size_v<Event>);

void read_assigned(FieldReader& reader, std::vector<Assigned>& out) {
    for (FieldReader& element : reader.objects("assigned", RendezvousCore::kNodesLimit)) {
        Assigned& assigned = out.emplace_back();
        element.require("node");
        element.name("node", assigned.node);
        protocol::read(element, assigned.assignment);
        reader.adopt(element);
    }
}

}  // namespace

std::string encode(const Entry& entry) {
    json object = {
        {"at_us", std::chrono::duration_cast<std::chrono::microseconds>(entry.at.time_since_epoch())
                      .count()},
        {"wall_ms", entry.wall_ms}};
    if (entry.event) {
        std::visit(EventWriter{object}, *entry.event);
    }
    for (const Assigned& assigned : entry.assigned) {
        json element = {{"node", assigned.node}};
        protocol::write(element, assigned.assignment);
        object["assigned"].push_back(std::move(element));
    }
    return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Entry> decode_entry(std::string_view text) {
    const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
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

std::string to_lines(const StoredJob& job) {
    json head = {{"job", job.key.id}, {"began_ms", job.key.began_ms}, {"ended", job.ended}};
    std::string lines = head.dump() + "\n";
    for (const Entry& entry : job.entries) {
        lines += encode(entry) + "\n";
    }
    return lines;
}

Result<std::vector<StoredJob>> from_lines(std::string_view text) {
    std::vector<StoredJob> jobs;
    std::size_t number = 0;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        ++number;
        const std::string where = "line " + std::to_string(number) + ": ";
        if (line.empty()) {
            continue;
        }
        const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
        if (object.is_object() && object.contains("job")) {
            FieldReader reader(object);
            StoredJob& job = jobs.emplace_back();
            reader.name("job", job.key.id);
            reader.integer("began_ms", job.key.began_ms);
            reader.flag("ended", job.ended);
            if (reader.complaint()) {
                return Failure(Errc::invalid_argument, where + *reader.complaint());
            }
            continue;
        }
        Result<Entry> entry = decode_entry(line);
        if (!entry || jobs.empty()) {
            return Failure(Errc::invalid_argument,
                           where + (entry ? "an entry before any job" : entry.error().detail));
        }
        jobs.back().entries.push_back(std::move(*entry));
    }
    return jobs;
}

}  // namespace regroup::journal
