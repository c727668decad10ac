// SPDX-License-Identifier: Apache-2.0
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "rendezvous/journal/entry_json.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/fields.h"

namespace regroup::journal {

using namespace rendezvous;  // NOLINT: every event; this file is about them.
using nlohmann::json;
using protocol::FieldReader;
using protocol::Presence;

namespace {

/// The names of the events, in the order of the variant.
constexpr std::string_view kEvents[] = {"joined",    "reported", "disconnected", "left",
                                        "stop",      "drain",    "release",      "resumed",
                                        "restarted", "follows",  "slow_rank"};

/// Each event has some of these fields.
template <class Io, class Each>
void visit_event(Io& io, Each& event) {
    if constexpr (requires { event.node; }) {
        io.name("node", event.node, protocol::kRequired);
    }
    if constexpr (requires { event.policy; }) {
        visit_fields(io, event.policy);
    }
    if constexpr (requires { event.offer; }) {
        visit_fields(io, event.offer);
        if (!event.offer.address_is_explicit) {
            io.text("seen_address", event.offer.address, Presence::optional,
                    protocol::kNameBytesMax);
        }
    }
    if constexpr (requires { event.report; }) {
        visit_fields(io, event.report);
    }
    if constexpr (requires { event.author; }) {
        io.text("author", event.author);
    }
    if constexpr (requires { event.reason; }) {
        io.text("reason", event.reason);
    }
    if constexpr (requires { event.killed; }) {
        io.flag("killed", event.killed);
    }
    if constexpr (requires { event.resumed; }) {
        visit_fields(io, event.resumed);
    }
    if constexpr (requires { event.slow; }) {
        io.round("round", event.round);
        visit_fields(io, event.slow);
    }
    if constexpr (requires { event.last; }) {
        io.round("last_round", event.last);
    }
}

}  // namespace

Failure malformed(const std::string& what) {
    return {Errc::invalid_argument, "malformed journal entry: " + what};
}

json to_json(const Entry& entry) {
    json object = {{"at_us", microseconds_of(entry.at)}, {"wall_ms", entry.wall_ms}};
    if (entry.event) {
        object["event"] = kEvents[entry.event->index()];
        protocol::FieldWriter writer(object);
        std::visit([&](const auto& event) { visit_event(writer, event); }, *entry.event);
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
    reader.text("event", kind, Presence::optional, protocol::kNameBytesMax);
    entry.event = protocol::alternative_named<Event>(kind, kEvents);
    if (entry.event) {
        std::visit([&](auto& event) { visit_event(reader, event); }, *entry.event);
    } else if (!kind.empty()) {
        reader.complain("event", "has an unknown value");
    }
    read_assigned(reader, entry.assigned);
    if (reader.complaint()) {
        return malformed(*reader.complaint());
    }
    return entry;
}

std::string encode(const Entry& entry) {
    return ascii_json_text(to_json(entry));  // `regroup replay --export` prints it on a terminal.
}

Result<Entry> decode_entry(std::string_view text) {
    return entry_of(parse_json(text));
}

}  // namespace regroup::journal
