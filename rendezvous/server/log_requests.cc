// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/log_requests.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

namespace regroup::rendezvous {

namespace {

std::string text_of(const nlohmann::json& object) {
    return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_of(const std::string& node, const LogPart& part) {
    const nlohmann::json object = {{"node", node},
                                   {"file", part.file},
                                   {"offset", part.offset},
                                   {"more", part.more},
                                   {"text", part.text}};
    return text_of(object);
}

std::string name_of(const Session& reader) {
    return reader.proven ? reader.proven->name : "";
}

}  // namespace

std::string LogRequests::note_json(const std::string& sentence) {
    nlohmann::json object;
    object["note"] = sentence;
    return text_of(object);
}

std::string LogRequests::objection(const Session& reader) const {
    const std::string name = name_of(reader);
    std::size_t own = 0;
    for (const auto& [ticket, waiting] : waiting_) {
        if (waiting.reader.get() == &reader) {
            return "the last part has not come yet";
        }
        own += name_of(*waiting.reader) == name ? 1 : 0;
    }
    return own >= kMaxOfOne || waiting_.size() >= kMax
               ? std::to_string(waiting_.size()) + " operators read logs now; try again later"
               : "";
}

std::uint64_t LogRequests::add(const std::shared_ptr<Session>& reader,
                               const std::shared_ptr<Session>& node, const std::string& name,
                               Instant now) {
    waiting_[++last_ticket_] = {reader, node, name, after(now, kLimit)};
    return last_ticket_;
}

std::optional<LogRequests::Answer> LogRequests::take(const Session& node, const LogPart& part) {
    const auto found = waiting_.find(part.ticket);
    if (found == waiting_.end() || found->second.node.get() != &node) {
        return std::nullopt;
    }
    const Waiting waiting = std::move(found->second);
    waiting_.erase(found);
    return Answer{waiting.reader, part.trouble.empty()
                                      ? json_of(waiting.name, part)
                                      : note_json("node " + waiting.name + ": " + part.trouble)};
}

std::vector<LogRequests::Answer> LogRequests::take_overdue(Instant now) {
    std::vector<Answer> answers;
    while (!waiting_.empty() && waiting_.begin()->second.until <= now) {
        const Waiting waiting = std::move(waiting_.begin()->second);
        waiting_.erase(waiting_.begin());
        answers.push_back(
            {waiting.reader, note_json("node " + waiting.name + " has not answered within " +
                                       format_duration(kLimit))});
    }
    return answers;
}

std::vector<LogRequests::Answer> LogRequests::ended(const std::shared_ptr<Session>& session) {
    std::vector<Answer> answers;
    std::erase_if(waiting_, [&](const auto& entry) {
        const Waiting& waiting = entry.second;
        if (waiting.reader != session && waiting.node == session) {
            answers.push_back({waiting.reader, note_json("the connection to node " + waiting.name +
                                                         " has broken")});
        }
        return waiting.reader == session || waiting.node == session;
    });
    return answers;
}

}  // namespace regroup::rendezvous
