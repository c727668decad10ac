// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <nlohmann/json.hpp>

#include "rendezvous/json/json_text.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/parts.h"
#include "rendezvous/protocol/text.h"
#include "rendezvous/text/describe.h"

namespace regroup::protocol {

using namespace rendezvous;  // NOLINT: the types of every message; this file is about them.
using nlohmann::json;

namespace {

std::vector<std::string> names(const std::vector<std::string>& all) {
    const auto count = static_cast<std::ptrdiff_t>(std::min(all.size(), kNamesMax));
    return {all.begin(), all.begin() + count};
}

json about_round(const char* type, RoundId round, const std::string& reason) {
    return {{"type", type}, {"round", number(round)}, {"reason", sentence(reason)}};
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
        if (join.began_ago > Duration::zero()) {
            object["began_ago_ms"] =
                std::chrono::duration_cast<std::chrono::milliseconds>(join.began_ago).count();
        }
        return object;
    }
    json operator()(const Report& message) const {
        json object = {{"type", "report"}};
        write(object, message.report);
        if (message.telemetry) {
            write(object["telemetry"], *message.telemetry);
        }
        return object;
    }
    json operator()(const Leave& message) const {
        json object = {{"type", "leave"}, {"reason", sentence(message.reason)}};
        if (message.killed) {
            object["killed"] = true;
        }
        return object;
    }
    json operator()(const Resumed& message) const {
        json object = {{"type", "resumed"}};
        write(object, message);
        return object;
    }
    json operator()(const LogPart& message) const {
        json object = {{"type", "log_part"}, {"ticket", message.ticket}};
        put_sentence(object, "file", message.file);
        object["offset"] = message.offset;
        if (!message.text.empty()) {
            object["text"] = beginning_of(message.text, kLogBytesMax);
        }
        if (message.more) {
            object["more"] = true;
        }
        put_sentence(object, "trouble", message.trouble);
        return object;
    }
    json operator()(const Operate& message) const {
        json object = {{"type", "operate"},
                       {"protocol", kProtocolVersion},
                       {"action", to_string(message.action)}};
        if (!message.job.empty()) {
            object["job"] = message.job;
        }
        if (!message.node.empty()) {
            object["node"] = message.node;
        }
        put_sentence(object, "author", message.author);
        put_sentence(object, "reason", message.reason);
        if (message.wait) {
            object["wait"] = true;
        }
        if (message.action == Operate::Action::events) {
            object["since"] = message.since;
            object["began_ms"] = message.began_ms;
        }
        if (message.action == Operate::Action::logs) {
            write(object, message.log);
        }
        if (message.follow) {
            object["follow"] = true;
        }
        if (message.parts) {
            object["parts"] = true;
        }
        return object;
    }
};

void put_time(json& object, std::int64_t now_ms) {
    if (now_ms != 0) {
        object["now_ms"] = now_ms;
    }
}

struct DaemonWriter {
    json operator()(const Assign& message) const {
        json object = {{"type", "assign"}};
        write(object, message.assignment);
        put_time(object, message.now_ms);
        return object;
    }
    json operator()(const Stop& message) const {
        return about_round("stop", message.round, describe(message.reason));
    }
    json operator()(const Prepare& message) const {
        json object = about_round("prepare", message.round, describe(message.reason));
        if (message.leave) {
            object["leave"] = true;
        }
        if (message.if_running) {
            object["if_running"] = true;
        }
        if (message.stale) {
            object["stale"] = true;
        }
        return object;
    }
    json operator()(const SaveStacks& message) const {
        json object = about_round("save_stacks", message.round, message.reason);
        object["alarm"] = message.alarm;
        return object;
    }
    json operator()(const EndWorker& message) const {
        json object = about_round("end_worker", message.round, describe(message.reason));
        object["rank"] = message.rank;
        if (message.by_silence) {
            object["by_silence"] = true;
        }
        return object;
    }
    json operator()(const Fenced& message) const {
        return {{"type", "fenced"}, {"reason", sentence(describe(message.reason))}};
    }
    json operator()(const Dismissed& message) const {
        return {{"type", "dismissed"}, {"round", number(message.round)}};
    }
    json operator()(const Alive& message) const {
        json object = {{"type", "alive"}, {"round", number(message.round)}};
        put_sentence(object, "partial_finish", describe(message.partial_finish));
        return object;
    }
    json operator()(const Waiting& message) const {
        json object = {{"type", "waiting"},
                       {"joined", names(message.joined)},
                       {"nodes_min", message.nodes_min},
                       {"nodes_max", message.nodes_max},
                       {"standby", message.standby},
                       {"detail", sentence(describe(message.detail))}};
        if (message.prestart) {
            object["prestart"] = true;
        }
        if (message.other_command) {
            object["other_command"] = true;
        }
        put_time(object, message.now_ms);
        return object;
    }
    json operator()(const ReadLog& message) const {
        json object = {{"type", "read_log"}, {"ticket", message.ticket}};
        write(object, message.wish);
        return object;
    }
    json operator()(const Refused& message) const {
        return {{"type", "refused"},
                {"code", regroup::to_string(message.code)},
                {"reason", sentence(describe(message.reason))}};
    }
    json operator()(const Closed& message) const {
        json object = {{"type", "closed"}};
        write(object, message.verdict);
        if (message.missed) {
            object["missed"] = true;
        }
        return object;
    }
    json operator()(const Recovered& message) const {
        json object = {{"type", "recovered"}};
        write(object, message.incident);
        return object;
    }
    json operator()(const Operated& message) const {
        json object = {{"type", "operated"},
                       {"done", message.done},
                       {"text", beginning_of(message.text, kStatusBytesMax)}};
        if (message.more) {
            object["more"] = true;
        }
        return object;
    }
    json operator()(const EventPage& message) const {
        json object = {{"type", "events"},
                       {"job", message.job},
                       {"began_ms", message.began_ms},
                       {"lines", beginning_of(message.lines, kStatusBytesMax)}};
        if (message.is_last) {
            object["last"] = true;
        }
        return object;
    }
    json operator()(const Elsewhere& message) const {
        json object = {{"type", "elsewhere"}};
        if (!message.endpoint.empty()) {
            object["endpoint"] = message.endpoint;
        }
        return object;
    }
};

std::string dump(const json& object) {
    return json_text(object);
}

}  // namespace

std::string encode(const FromAgent& message) {
    return dump(std::visit(AgentWriter(), message));
}

std::string encode(const FromDaemon& message) {
    return dump(std::visit(DaemonWriter(), message));
}

}  // namespace regroup::protocol
