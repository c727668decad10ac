// SPDX-License-Identifier: Apache-2.0
#include "launcher/ssh/messages.h"

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/process/warden.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/protocol/framing.h"

namespace regroup::launcher::ssh {

using nlohmann::json;

static void to_json(json& fields, const Setup& setup) {
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(setup.start_limit);
    fields = {{"word", setup.word},
              {"host", setup.host},
              {"folder", setup.folder},
              {"environment", setup.environment},
              {"start_limit_ms", limit.count()}};
}
static void from_json(const json& fields, Setup& setup) {
    fields.at("word").get_to(setup.word);
    fields.at("host").get_to(setup.host);
    fields.at("folder").get_to(setup.folder);
    fields.at("environment").get_to(setup.environment);
    setup.start_limit = std::chrono::milliseconds(fields.at("start_limit_ms").get<std::uint32_t>());
}

static void to_json(json& fields, const Start& start) {
    fields = {{"index", start.index}, {"arguments", start.arguments}, {"token", start.token}};
    if (start.is_head) {
        fields["is_head"] = *start.is_head;
    }
}
static void from_json(const json& fields, Start& start) {
    fields.at("index").get_to(start.index);
    if (fields.contains("is_head")) {
        start.is_head = fields.at("is_head").get<bool>();
    }
    fields.at("arguments").get_to(start.arguments);
    fields.at("token").get_to(start.token);
}

static void to_json(json& fields, const Alive& /*alive*/) {
    fields = json::object();
}
static void from_json(const json& /*fields*/, Alive& /*alive*/) {}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Signal, number)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Ready, address)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Refused, reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Serving, port)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(JobLine, text, topic)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Ended, exit_code, signal, by_verdict, report)

namespace {

constexpr int kVersion = 2;
constexpr std::size_t kLineBytesMax = std::size_t{32} << 10;
// In the order of the variants.
constexpr std::array kOrders{"setup", "start", "signal"};
constexpr std::array kReports{"ready", "refused", "serving", "job_line", "alive", "ended"};

template <class Message, std::size_t Count>
json fields_of(const Message& message, const std::array<const char*, Count>& kinds) {
    static_assert(Count == std::variant_size_v<Message>);
    json fields = std::visit([](const auto& value) { return json(value); }, message);
    fields["kind"] = kinds[message.index()];
    return fields;
}

/// Nothing for an unknown kind. Throws json::exception.
template <class Message, std::size_t Count, std::size_t Place = 0>
std::optional<Message> message_in(const json& fields, const std::array<const char*, Count>& kinds) {
    if constexpr (Place < Count) {
        return fields.at("kind") == kinds[Place]
                   ? std::optional<Message>(
                         fields.get<std::variant_alternative_t<Place, Message>>())
                   : message_in<Message, Count, Place + 1>(fields, kinds);
    } else {
        return std::nullopt;
    }
}

std::string beginning(const std::string& word) {
    return "regroup-ssh " + word + " ";
}

/// The launcher ends like its nodes, so this must be a way in which a launcher ends.
bool is_possible(const Ended& ended) {
    const bool is_signal =
        ended.signal == 0 ||
        std::ranges::find(agent::kAgentSignals, ended.signal) != agent::kAgentSignals.end();
    return is_signal && ended.exit_code >= 0 && ended.exit_code <= 255;
}

}  // namespace

// MessagePack, because arguments and variables may be no UTF-8.
Result<std::string> encode(const Order& order) {
    json fields = fields_of(order, kOrders);
    if (std::holds_alternative<Setup>(order)) {
        fields["version"] = kVersion;
    }
    std::string payload;
    json::to_msgpack(fields, payload);
    if (payload.size() > protocol::kFrameBytesMax) {
        return Failure(Errc::invalid_argument,
                       "the environment or the arguments for the hosts have " +
                           std::to_string(payload.size() >> 10U) + " KiB; at most " +
                           std::to_string(protocol::kFrameBytesMax >> 10U) +
                           " KiB can be passed on");
    }
    return protocol::make_frame(payload);
}

Result<Order> decode(std::string_view payload) {
    const Failure bad(Errc::invalid_argument,
                      "the launcher is of another version of regroup; install the same one on all "
                      "hosts, or name it by --regroup");
    const json fields = json::from_msgpack(payload, true, /*allow_exceptions=*/false);
    try {
        const std::optional<Order> order = message_in<Order>(fields, kOrders);
        const bool is_known =
            order && (!std::holds_alternative<Setup>(*order) || fields.at("version") == kVersion);
        return is_known ? Result<Order>(*order) : bad;
    } catch (const json::exception&) {
        return bad;
    }
}

std::string line_of(const std::string& word, const Report& report) {
    const std::string text = json_text(fields_of(report, kReports));
    if (const auto* ended = std::get_if<Ended>(&report);
        ended != nullptr && text.size() > kLineBytesMax && !ended->report.empty()) {
        Ended shorter = *ended;
        shorter.report.resize(shorter.report.size() / 2);
        return line_of(word, shorter);
    }
    return beginning(word) + text + "\n";
}

std::optional<Report> parse_line(const std::string& word, std::string_view line) {
    const std::string start = beginning(word);
    const std::size_t at = line.find(start);
    if (at == line.npos) {
        return std::nullopt;
    }
    line.remove_prefix(at + start.size());
    const json fields = parse_json(line);
    try {
        const std::optional<Report> report = message_in<Report>(fields, kReports);
        const auto* ended = report ? std::get_if<Ended>(&*report) : nullptr;
        return ended == nullptr || is_possible(*ended) ? report : std::nullopt;
    } catch (const json::exception&) {
        return std::nullopt;
    }
}

}  // namespace regroup::launcher::ssh
