// SPDX-License-Identifier: Apache-2.0
#include "launcher/ssh/messages.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/process/warden.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/protocol/framing.h"

namespace regroup::launcher::ssh {
namespace {

using nlohmann::json;

constexpr int kVersion = 2;
constexpr std::size_t kLineBytesMax = std::size_t{32} << 10;

json fields_of(const Setup& setup) {
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(setup.start_limit);
    return {{"kind", "setup"},
            {"version", kVersion},
            {"word", setup.word},
            {"host", setup.host},
            {"folder", setup.folder},
            {"environment", setup.environment},
            {"start_limit_ms", limit.count()}};
}

json fields_of(const Start& start) {
    json fields{{"kind", "start"},
                {"index", start.index},
                {"arguments", start.arguments},
                {"token", start.token}};
    if (start.is_head) {
        fields["is_head"] = *start.is_head;
    }
    return fields;
}

json fields_of(const Signal& signal) {
    return {{"kind", "signal"}, {"number", signal.number}};
}

Setup read_setup(const json& fields) {
    Setup setup;
    fields.at("word").get_to(setup.word);
    fields.at("host").get_to(setup.host);
    fields.at("folder").get_to(setup.folder);
    fields.at("environment").get_to(setup.environment);
    setup.start_limit = std::chrono::milliseconds(fields.at("start_limit_ms").get<std::uint32_t>());
    return setup;
}

Start read_start(const json& fields) {
    Start start;
    fields.at("index").get_to(start.index);
    if (fields.contains("is_head")) {
        start.is_head = fields.at("is_head").get<bool>();
    }
    fields.at("arguments").get_to(start.arguments);
    fields.at("token").get_to(start.token);
    return start;
}

json fields_of(const Ready& ready) {
    return {{"kind", "ready"}, {"address", ready.address}};
}
json fields_of(const Refused& refused) {
    return {{"kind", "refused"}, {"reason", refused.reason}};
}
json fields_of(const Serving& serving) {
    return {{"kind", "serving"}, {"port", serving.port}};
}
json fields_of(const JobLine& line) {
    return {{"kind", "job_line"}, {"text", line.text}, {"topic", line.topic}};
}
json fields_of(const Alive& /*alive*/) {
    return {{"kind", "alive"}};
}
json fields_of(const Ended& ended) {
    return {{"kind", "ended"},
            {"exit_code", ended.exit_code},
            {"signal", ended.signal},
            {"by_verdict", ended.by_verdict},
            {"report", ended.report}};
}

std::string beginning(const std::string& word) {
    return "regroup-ssh " + word + " ";
}

std::string text_of(const json& fields) {
    return json_text(fields);
}

/// The launcher ends like its nodes, so this must be a way in which a launcher ends.
bool is_possible(const Ended& ended) {
    const bool is_signal =
        ended.signal == 0 ||
        std::ranges::find(agent::kAgentSignals, ended.signal) != agent::kAgentSignals.end();
    return is_signal && ended.exit_code >= 0 && ended.exit_code <= 255;
}

std::optional<Report> read_report(const json& fields) {
    const auto kind = fields.at("kind").get<std::string>();
    if (kind == "ready") {
        return Ready{fields.at("address").get<std::string>()};
    }
    if (kind == "refused") {
        return Refused{fields.at("reason").get<std::string>()};
    }
    if (kind == "serving") {
        return Serving{fields.at("port").get<std::uint16_t>()};
    }
    if (kind == "job_line") {
        return JobLine{fields.at("text").get<std::string>(), fields.at("topic").get<std::string>()};
    }
    if (kind == "alive") {
        return Alive{};
    }
    if (kind == "ended") {
        Ended ended{fields.at("exit_code").get<int>(), fields.at("signal").get<int>(),
                    fields.at("by_verdict").get<bool>(),
                    fields.at("report").get<std::vector<std::string>>()};
        return is_possible(ended) ? std::optional(std::move(ended)) : std::nullopt;
    }
    return std::nullopt;
}

}  // namespace

// MessagePack, because arguments and variables may be no UTF-8.
Result<std::string> encode(const Order& order) {
    const json fields = std::visit([](const auto& value) { return fields_of(value); }, order);
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
        const auto kind = fields.at("kind").get<std::string>();
        if (kind == "setup" && fields.at("version") == kVersion) {
            return Order(read_setup(fields));
        }
        if (kind == "start") {
            return Order(read_start(fields));
        }
        if (kind == "signal") {
            return Order(Signal{fields.at("number").get<int>()});
        }
    } catch (const json::exception&) {
        return bad;
    }
    return bad;
}

std::string line_of(const std::string& word, const Report& report) {
    const json fields = std::visit([](const auto& value) { return fields_of(value); }, report);
    std::string text = text_of(fields);
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
        return read_report(fields);
    } catch (const json::exception&) {
        return std::nullopt;
    }
}

}  // namespace regroup::launcher::ssh
