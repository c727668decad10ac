// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/log_requests.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "rendezvous/json/json_text.h"

namespace regroup::rendezvous {

namespace {

std::string json_of(const std::string& node, const LogPart& part) {
    return json_text(nlohmann::json{{"node", node},
                                    {"file", part.file},
                                    {"offset", part.offset},
                                    {"more", part.more},
                                    {"text", part.text}});
}

}  // namespace

void LogRequests::note(Session& reader, const std::string& sentence) {
    reader.send(Operated{true, json_text(nlohmann::json{{"note", sentence}})});
}

std::string LogRequests::objection(const Session& reader) const {
    const std::string name = reader.peer.name();
    std::size_t own = 0;
    for (const auto& [ticket, waiting] : waiting_) {
        if (waiting.reader.get() == &reader) {
            return "the last part has not come yet";
        }
        own += waiting.reader->peer.name() == name ? 1 : 0;
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

void LogRequests::take(const Session& node, const LogPart& part) {
    const auto found = waiting_.find(part.ticket);
    if (found == waiting_.end() || found->second.node.get() != &node) {
        return;  // Nobody waits for it any more.
    }
    const Waiting waiting = std::move(found->second);
    waiting_.erase(found);
    if (part.trouble.empty()) {
        waiting.reader->send(Operated{true, json_of(waiting.name, part)});
    } else {
        note(*waiting.reader, "node " + waiting.name + ": " + part.trouble);
    }
}

void LogRequests::sweep(Instant now) {
    while (!waiting_.empty() && waiting_.begin()->second.until <= now) {
        const Waiting waiting = std::move(waiting_.begin()->second);
        waiting_.erase(waiting_.begin());
        note(*waiting.reader,
             "node " + waiting.name + " has not answered within " + format_duration(kLimit));
    }
}

void LogRequests::ended(const std::shared_ptr<Session>& session) {
    std::erase_if(waiting_, [&](const auto& entry) {
        const Waiting& waiting = entry.second;
        if (waiting.reader != session && waiting.node == session) {
            note(*waiting.reader, "the connection to node " + waiting.name + " has broken");
        }
        return waiting.reader == session || waiting.node == session;
    });
}

}  // namespace regroup::rendezvous
