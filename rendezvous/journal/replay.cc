// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/replay.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "rendezvous/journal/entry_json.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/protocol/fields.h"
#include "rendezvous/protocol/message_line.h"
#include "rendezvous/text/describe.h"

namespace regroup::journal {

using namespace rendezvous;  // NOLINT: every event; this file is about them.
using nlohmann::json;

namespace {

std::string because(const std::string& reason) {
    return reason.empty() ? "" : ": " + reason;
}

/// Writes the story line by line, with the names of nodes instead of ids.
class Storyteller {
   public:
    explicit Storyteller(const std::function<void(const std::string&)>& on_line)
        : on_line_(on_line) {}

    void tell(const Entry& entry) {
        if (const auto* joined = entry.event ? std::get_if<NodeJoined>(&*entry.event) : nullptr) {
            names_[joined->node] = joined->offer.name;
        }
        char seconds[40];
        std::snprintf(seconds, sizeof seconds, "%12.6f s  ",
                      std::chrono::duration<double>(entry.at.time_since_epoch()).count());
        on_line_(seconds +
                 (entry.event ? std::visit(*this, *entry.event) : std::string("(time passed)")));
    }
    /// One line for equal messages to several nodes.
    void tell(const Effects& effects) {
        for (std::size_t i = 0; i < effects.size();) {
            const std::string line = protocol::to_line(effects[i].message);
            std::string to = name_of(effects[i].node);
            std::size_t next = i + 1;
            while (next < effects.size() && protocol::to_line(effects[next].message) == line) {
                to += ", " + name_of(effects[next++].node);
            }
            on_line_("                  -> " + to + ": " + line);
            i = next;
        }
    }
    void say(const std::string& line) { on_line_("                  " + line); }

    std::string operator()(const NodeJoined& event) const {
        return event.offer.name + " joins with " + std::to_string(event.offer.workers) +
               (event.offer.workers == 1 ? " worker, " : " workers, ") +
               protocol::to_line(event.report);
    }
    std::string operator()(const NodeReported& event) const {
        return name_of(event.node) + " reports " + protocol::to_line(event.report);
    }
    std::string operator()(const NodeDisconnected& event) const {
        return "the connection of " + name_of(event.node) + " broke";
    }
    std::string operator()(const NodeLeft& event) const {
        return name_of(event.node) + " leaves" + because(event.reason);
    }
    std::string operator()(const StopRequested& event) const {
        return event.author + " stops the job" + because(event.reason);
    }
    std::string operator()(const DrainRequested& event) const {
        return event.author + " drains node " + event.node + because(event.reason);
    }
    std::string operator()(const ReleaseRequested& event) const {
        return event.author + " releases node " + event.node + because(event.reason);
    }
    std::string operator()(const NodeResumed& event) const {
        return name_of(event.node) + " has " + protocol::to_line(FromAgent(event.resumed));
    }
    std::string operator()(const SlowRankFound& event) const { return describe(event.slow, ""); }
    std::string operator()(const Restarted& /*event*/) const {
        return "another daemon takes over the job";
    }
    std::string operator()(const JobFollows& event) const {
        return "the job begins anew, after round " + std::to_string(number(event.last)) +
               " of the previous job";
    }

    [[nodiscard]] std::string name_of(const NodeId& node) const {
        const auto found = names_.find(node);
        return found == names_.end() ? node : found->second;
    }

   private:
    const std::function<void(const std::string&)>& on_line_;
    std::map<NodeId, std::string> names_;
};

std::string shown(const Storyteller& story, const std::vector<Assigned>& all, std::size_t at) {
    return at >= all.size() ? std::string("nothing")
                            : story.name_of(all[at].node) + ": " +
                                  protocol::to_line(FromDaemon(Assign{all[at].assignment}));
}

// A journal keeps the reason as text.
std::vector<Assigned> as_kept(std::vector<Assigned> made) {
    for (Assigned& assigned : made) {
        assigned.assignment.reason = protocol::sentence(describe(assigned.assignment.reason));
    }
    return made;
}

// Lines are sent to other people. Without any secret the replay decides the same: all secrets of a
// node are then equal, and the journal has no join with a wrong one.
Entry without_secrets(Entry entry) {
    if (auto* joined = entry.event ? std::get_if<NodeJoined>(&*entry.event) : nullptr) {
        joined->offer.secret.clear();
        joined->offer.store_key.clear();
    }
    for (Assigned& assigned : entry.assigned) {
        assigned.assignment.store_key.clear();
    }
    return entry;
}

void compare(const std::vector<Assigned>& recorded, const std::vector<Assigned>& made,
             Storyteller& story, Replayed& result) {
    const std::size_t count = std::max(recorded.size(), made.size());
    for (std::size_t i = 0; i < count; ++i) {
        ++result.assignments;
        if (i < recorded.size() && i < made.size() && recorded[i] == made[i]) {
            ++result.identical;
            continue;
        }
        story.say("DIFFERS, recorded: " + shown(story, recorded, i));
        story.say("         replayed: " + shown(story, made, i));
    }
}

}  // namespace

Result<Replayed> replay(const KeptJob& job,
                        const std::function<void(const std::string& line)>& on_line) {
    JobReader reader(job);
    Storyteller story(on_line);
    Replayed result;
    std::string reason;
    for (;;) {
        const Result<bool> more = reader.read([&](const Entry& entry, Effects effects) {
            ++result.entries;
            const std::vector<Assigned> made = as_kept(assignments_of(effects));
            std::erase_if(effects, [](const Send& effect) {
                return std::holds_alternative<Alive>(effect.message);
            });
            story.tell(entry);
            story.tell(effects);
            compare(as_kept(entry.assigned), made, story, result);
            const RendezvousCore& core = reader.core();
            if (std::string now = describe(core.situation(entry.at)); now != reason) {
                reason = std::move(now);
                story.say("== " + std::string(to_string(core.phase())) + ": " + reason);
            }
        });
        if (!more) {
            return more.error();
        }
        if (!*more) {
            return result;
        }
    }
}

Result<void> to_lines(const KeptJob& job,
                      const std::function<void(const std::string& line)>& on_line) {
    on_line(ascii_json_text(
        json{{"job", job.key.id}, {"began_ms", job.key.began_ms}, {"ended", job.ended}}));
    for (;;) {
        const Result<std::vector<Entry>> entries = job.next();
        if (!entries) {
            return entries.error();
        }
        if (entries->empty()) {
            return {};
        }
        for (const Entry& entry : *entries) {
            on_line(encode(without_secrets(entry)));
        }
    }
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
        const json object = parse_json(line);
        if (object.is_object() && object.contains("job")) {
            protocol::FieldReader reader(object);
            StoredJob& job = jobs.emplace_back();
            reader.name("job", job.key.id);
            reader.integer("began_ms", job.key.began_ms);
            reader.flag("ended", job.ended);
            if (reader.complaint()) {
                return Failure(Errc::invalid_argument, where + *reader.complaint());
            }
            continue;
        }
        Result<Entry> entry = entry_of(object);
        if (!entry || jobs.empty()) {
            return Failure(Errc::invalid_argument,
                           where + (entry ? "an entry before any job" : entry.error().detail));
        }
        jobs.back().entries.push_back(std::move(*entry));
    }
    return jobs;
}

}  // namespace regroup::journal
