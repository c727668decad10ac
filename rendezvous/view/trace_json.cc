// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/trace_json.h"

#include <algorithm>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "rendezvous/base/printable.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/view/event_line.h"
#include "rendezvous/view/job_totals.h"
#include "rendezvous/view/trace_story.h"

namespace regroup::rendezvous {

namespace {

using nlohmann::ordered_json;

// The process of what concerns the job as a whole. Those of the nodes follow.
constexpr std::size_t kJobProcess = 1;
constexpr std::size_t kFirstNode = 2;
constexpr std::size_t kRoundsThread = 1;
// Thread 0 of a node is its agent; then come its local ranks.
constexpr std::size_t kFirstRankThread = 1;
// The most arrows from the ranks of one round: when a large node dies, some say it all.
constexpr std::size_t kArrowsMax = 64;

TraceTime microseconds(Instant at) {
    return std::chrono::duration_cast<std::chrono::microseconds>(at.time_since_epoch()).count();
}

/// Where an event is shown.
struct Track {
    std::size_t process = 0;
    std::size_t thread = 0;
};

class Writer {
   public:
    Writer(const TraceSource& source, const TraceLimits& limits) : source_(source) {
        for (const std::string_view line : source.lines) {
            story_.read(line);
        }
        now_ = std::max(story_.last, microseconds(source.now));
        choose(limits);
    }

    std::string write() {
        write_names();
        for (std::size_t i = first_round_; i < story_.rounds.size(); ++i) {
            write(story_.rounds[i]);
            if (i > first_round_) {
                write_arrows(story_.rounds[i - 1], story_.rounds[i]);
            }
        }
        std::size_t incidents = 0;
        for (const TracedEvent& event : story_.events) {
            if (event.kind == "recovered") {
                write_incident(event, ++incidents);
            } else {
                write_instant(event);
            }
        }
        write_steps();
        return joined();
    }

   private:
    struct Line {
        TraceTime at = 0;
        std::size_t order = 0;
        std::string text;
    };

    void choose(const TraceLimits& limits) {
        std::size_t slices = 0;
        for (const TracedRound& round : story_.rounds) {
            for (const TracedNode& node : round.nodes) {
                slices += std::size_t{2} * node.workers;
            }
        }
        by_rank_ = slices <= limits.rank_slices_max;
        slices = 0;
        first_round_ = story_.rounds.size();
        while (first_round_ > 0 && slices <= limits.slices_max) {
            slices += 2 * (story_.rounds[--first_round_].nodes.size() + 1);
        }
        first_round_ += slices > limits.slices_max && first_round_ + 1 < story_.rounds.size();
    }

    static std::string text_of(const ordered_json& event) {
        return printable_json(json_text(event));
    }
    void add(char phase, TraceTime at, Track track, const ordered_json& rest) {
        ordered_json event = {{"ph", std::string(1, phase)},
                              {"ts", at},
                              {"pid", track.process},
                              {"tid", track.thread}};
        event.update(rest);
        lines_.push_back({at, lines_.size(), text_of(event)});
    }
    void add_slice(Track track, const std::string& name, const char* category, TraceTime begin,
                   TraceTime end, const ordered_json& arguments) {
        if (end > begin) {
            add('X', begin, track,
                {{"dur", end - begin}, {"cat", category}, {"name", name}, {"args", arguments}});
        }
    }
    void add_name(const char* what, Track track, const ordered_json& arguments) {
        names_ += text_of({{"ph", "M"},
                           {"name", what},
                           {"pid", track.process},
                           {"tid", track.thread},
                           {"args", arguments}}) +
                  ",\n";
    }
    void name_thread(Track track, const std::string& text) {
        add_name("thread_name", track, {{"name", text}});
    }
    void name_process(std::size_t process, const std::string& text) {
        add_name("process_name", {process, 0}, {{"name", text}});
        add_name("process_sort_index", {process, 0}, {{"sort_index", process}});
    }

    void write_names() {
        name_process(kJobProcess, "job " + source_.job);
        name_thread({kJobProcess, kRoundsThread}, "rounds");
        std::vector<std::uint32_t> workers(story_.nodes.size(), 0);
        for (const TracedRound& round : story_.rounds) {
            for (const TracedNode& node : round.nodes) {
                workers[node.process] = std::max(workers[node.process], node.workers);
            }
        }
        for (std::size_t i = 0; i < story_.nodes.size(); ++i) {
            name_process(kFirstNode + i, "node " + story_.nodes[i]);
            name_thread({kFirstNode + i, 0}, "agent");
            for (std::uint32_t local = 0; by_rank_ && local < workers[i]; ++local) {
                name_thread({kFirstNode + i, kFirstRankThread + local},
                            "local rank " + std::to_string(local));
            }
        }
    }

    [[nodiscard]] Track track_of(const TracedNode& node, std::uint32_t rank) const {
        return {kFirstNode + node.process,
                by_rank_ ? kFirstRankThread + (rank - node.first_rank) : 0};
    }

    /// The activity of a rank, a node or the whole round until `end`.
    void write_part(Track track, const TracedRound& round, TraceTime end,
                    const ordered_json& arguments) {
        const std::string name = "round " + std::to_string(round.number);
        const bool ran = round.running >= 0 && round.running < end;
        add_slice(track, "start of " + name, "start", round.assigned, ran ? round.running : end,
                  arguments);
        if (ran) {
            add_slice(track, name, "round", round.running, end, arguments);
        }
    }

    void write(const TracedRound& round) {
        write_part({kJobProcess, kRoundsThread}, round, round.end < 0 ? now_ : round.end,
                   {{"cause", round.cause}});
        std::uint64_t world = 0;
        for (const TracedNode& node : round.nodes) {
            world += node.workers;
            if (!by_rank_) {
                // The node is there as long as its last rank.
                TraceTime end = round.assigned;
                for (std::uint32_t i = 0; i < node.workers; ++i) {
                    end = std::max(end, round.end_of(node.first_rank + i, now_));
                }
                write_part(track_of(node, node.first_rank), round, end,
                           {{"first_rank", node.first_rank}, {"workers", node.workers}});
                continue;
            }
            for (std::uint32_t i = 0; i < node.workers; ++i) {
                const std::uint32_t rank = node.first_rank + i;
                write_part(track_of(node, rank), round, round.end_of(rank, now_), {{"rank", rank}});
            }
        }
        add('C', round.assigned, {kJobProcess, 0},
            {{"name", "world size"}, {"args", {{"ranks", world}}}});
    }

    /// From each rank that died to the one that has its number in the next round.
    void write_arrows(const TracedRound& before, const TracedRound& after) {
        std::size_t count = 0;
        for (const auto& [rank, died] : before.dead) {
            const TracedNode* const from = before.node_of(rank);
            const TracedNode* const to = after.node_of(rank);
            const TraceTime end = before.end_of(rank, now_);
            // Both ends must lie in slices.
            if (from == nullptr || to == nullptr || end <= before.assigned ||
                after.end_of(rank, now_) <= after.assigned) {
                continue;
            }
            if (++count > kArrowsMax) {
                return;
            }
            ordered_json arrow = {{"cat", "replacement"},
                                  {"name", "replaced"},
                                  {"id", ++arrows_},
                                  {"args", {{"rank", rank}}}};
            add('s', end - 1, track_of(*from, rank), arrow);
            arrow["bp"] = "e";
            add('f', after.assigned, track_of(*to, rank), arrow);
        }
    }

    void write_incident(const TracedEvent& event, std::size_t id) {
        TraceTime total = 0;
        for (const TraceTime stage : event.stages) {
            total += stage;
        }
        TraceTime at = std::max<TraceTime>(0, event.at - total);
        const auto part = [&](char phase, std::string_view name, const ordered_json& arguments) {
            ordered_json rest = {{"cat", "recovery"}, {"id", id}, {"name", name}};
            rest.update(arguments);
            add(phase, at, {kJobProcess, 0}, rest);
        };
        const ordered_json none = ordered_json::object();
        const std::string_view name = event.cut_short ? "no recovery"
                                      : event.planned ? "planned change"
                                                      : "recovery";
        part('b', name, {{"args", {{"cause", event.text}, {"round", event.round}}}});
        for (std::size_t i = 0; i < event.stages.size(); ++i) {
            if (event.stages[i] > 0) {
                part('b', kStageNames[i], none);
                at = std::min(event.at, at + event.stages[i]);
                part('e', kStageNames[i], none);
            }
        }
        part('e', name, none);
    }

    [[nodiscard]] Track place_of(const TracedEvent& event) {
        if (event.node.empty()) {
            return {kJobProcess, kRoundsThread};
        }
        const auto round =
            std::find_if(story_.rounds.rbegin(), story_.rounds.rend(),
                         [&](const TracedRound& other) { return other.number == event.round; });
        if (round != story_.rounds.rend() && (event.has_rank || event.workers > 0)) {
            const std::uint32_t rank = event.has_rank ? event.rank : event.first_rank;
            if (const TracedNode* node = round->node_of(rank)) {
                return event.has_rank ? track_of(*node, rank)
                                      : Track{kFirstNode + node->process, 0};
            }
        }
        return {kFirstNode + story_.process_of(event.node), 0};
    }

    void write_instant(const TracedEvent& event) {
        if (event.kind == "assigned" || event.kind == "running") {
            return;  // The slices begin there.
        }
        const std::string scope = event.node.empty() ? "g" : event.has_rank ? "t" : "p";
        add('i', event.at, place_of(event),
            {{"s", scope},
             {"cat", "event"},
             {"name", event.kind},
             {"args", {{"text", event.text}, {"round", event.round}, {"step", event.step}}}});
    }

    void write_steps() {
        std::multimap<TraceTime, std::uint64_t> steps;
        for (const TracedEvent& event : story_.events) {
            steps.emplace(event.at, event.step);
        }
        for (const StepSample& sample : source_.samples) {
            steps.emplace(microseconds(sample.at), sample.step);
        }
        std::uint64_t last = 0;
        for (const auto& [at, step] : steps) {
            if (step != last) {
                add('C', at, {kJobProcess, 0}, {{"name", "step"}, {"args", {{"step", step}}}});
                last = step;
            }
        }
    }

    std::string joined() {
        // Those of one moment stay in order: the beginning of a part comes after that of the whole.
        std::sort(lines_.begin(), lines_.end(), [](const Line& a, const Line& b) {
            return std::pair(a.at, a.order) < std::pair(b.at, b.order);
        });
        const ordered_json other = {{"job", source_.job},
                                    {"began", utc_time(source_.began_ms)},
                                    {"slices", by_rank_ ? "per rank" : "per node"},
                                    {"rounds_left_out", first_round_}};
        std::string text = R"({"displayTimeUnit":"ms","otherData":)" + text_of(other) +
                           ",\"traceEvents\":[\n" + names_;
        for (const Line& line : lines_) {
            text += line.text + ",\n";
        }
        text.erase(text.size() - 2);  // The last comma: there is a name at least.
        return text + "\n]}\n";
    }

    const TraceSource& source_;
    TraceStory story_;
    TraceTime now_ = 0;
    bool by_rank_ = true;
    std::size_t first_round_ = 0;
    std::size_t arrows_ = 0;
    std::string names_;
    std::vector<Line> lines_;
};

}  // namespace

std::string trace_json(const TraceSource& source, const TraceLimits& limits) {
    return Writer(source, limits).write();
}

}  // namespace regroup::rendezvous
