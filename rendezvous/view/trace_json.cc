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

using nlohmann::json;

// The process of what concerns the job as a whole. Those of the nodes follow.
constexpr std::size_t kJobProcess = 1;
constexpr std::size_t kFirstNode = 2;
constexpr std::size_t kRoundsThread = 1;
// Thread 0 of a node is its agent; then come its local ranks.
constexpr std::size_t kFirstRankThread = 1;
// The most arrows from the ranks of one round: when a large node dies, some say it all.
constexpr std::size_t kArrowsMax = 64;

std::string quoted(const std::string& text) {
    return printable_json(json_text(json(text)));
}

/// {"key":"text"}
std::string argument(const char* key, const std::string& text) {
    return std::string("{\"") + key + "\":" + quoted(text) + "}";
}

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

    /// `rest`: the further fields, each with a comma before it.
    void add(char phase, TraceTime at, Track track, const std::string& rest) {
        lines_.push_back({at, lines_.size(),
                          std::string(R"({"ph":")") + phase + R"(","ts":)" + std::to_string(at) +
                              R"(,"pid":)" + std::to_string(track.process) + R"(,"tid":)" +
                              std::to_string(track.thread) + rest + "}"});
    }
    void add_slice(Track track, const std::string& name, const char* category, TraceTime begin,
                   TraceTime end, const std::string& arguments) {
        if (end > begin) {
            add('X', begin, track,
                R"(,"dur":)" + std::to_string(end - begin) + R"(,"cat":")" + category +
                    R"(","name":)" + quoted(name) + R"(,"args":)" + arguments);
        }
    }
    void name(const char* what, Track track, const std::string& text) {
        names_ += std::string(R"({"ph":"M","name":")") + what + R"(","pid":)" +
                  std::to_string(track.process) + R"(,"tid":)" + std::to_string(track.thread) +
                  R"(,"args":)" + argument("name", text) + "},\n";
    }
    void sort_index(std::size_t process) {
        names_ += R"({"ph":"M","name":"process_sort_index","pid":)" + std::to_string(process) +
                  R"(,"tid":0,"args":{"sort_index":)" + std::to_string(process) + "}},\n";
    }

    void write_names() {
        name("process_name", {kJobProcess, 0}, "job " + source_.job);
        sort_index(kJobProcess);
        name("thread_name", {kJobProcess, kRoundsThread}, "rounds");
        std::vector<std::uint32_t> workers(story_.nodes.size(), 0);
        for (const TracedRound& round : story_.rounds) {
            for (const TracedNode& node : round.nodes) {
                workers[node.process] = std::max(workers[node.process], node.workers);
            }
        }
        for (std::size_t i = 0; i < story_.nodes.size(); ++i) {
            name("process_name", {kFirstNode + i, 0}, "node " + story_.nodes[i]);
            sort_index(kFirstNode + i);
            name("thread_name", {kFirstNode + i, 0}, "agent");
            for (std::uint32_t local = 0; by_rank_ && local < workers[i]; ++local) {
                name("thread_name", {kFirstNode + i, kFirstRankThread + local},
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
                    const std::string& arguments) {
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
                   argument("cause", round.cause));
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
                           R"({"first_rank":)" + std::to_string(node.first_rank) +
                               R"(,"workers":)" + std::to_string(node.workers) + "}");
                continue;
            }
            for (std::uint32_t i = 0; i < node.workers; ++i) {
                const std::uint32_t rank = node.first_rank + i;
                write_part(track_of(node, rank), round, round.end_of(rank, now_),
                           R"({"rank":)" + std::to_string(rank) + "}");
            }
        }
        add('C', round.assigned, {kJobProcess, 0},
            R"(,"name":"world size","args":{"ranks":)" + std::to_string(world) + "}");
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
            const std::string id = R"(,"cat":"replacement","name":"replaced","id":)" +
                                   std::to_string(++arrows_) + R"(,"args":{"rank":)" +
                                   std::to_string(rank) + "}";
            add('s', end - 1, track_of(*from, rank), id);
            add('f', after.assigned, track_of(*to, rank), id + R"(,"bp":"e")");
        }
    }

    void write_incident(const TracedEvent& event, std::size_t id) {
        TraceTime total = 0;
        for (const TraceTime stage : event.stages) {
            total += stage;
        }
        TraceTime at = std::max<TraceTime>(0, event.at - total);
        const auto part = [&](char phase, const std::string& name, const std::string& rest) {
            add(phase, at, {kJobProcess, 0},
                R"(,"cat":"recovery","id":)" + std::to_string(id) + R"(,"name":)" + quoted(name) +
                    rest);
        };
        const std::string name = event.cut_short ? "no recovery"
                                 : event.planned ? "planned change"
                                                 : "recovery";
        part('b', name,
             R"(,"args":{"cause":)" + quoted(event.text) + R"(,"round":)" +
                 std::to_string(event.round) + "}");
        for (std::size_t i = 0; i < event.stages.size(); ++i) {
            if (event.stages[i] > 0) {
                part('b', std::string(kStageNames[i]), "");
                at = std::min(event.at, at + event.stages[i]);
                part('e', std::string(kStageNames[i]), "");
            }
        }
        part('e', name, "");
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
            R"(,"s":")" + scope + R"(","cat":"event","name":)" + quoted(event.kind) +
                R"(,"args":{"text":)" + quoted(event.text) + R"(,"round":)" +
                std::to_string(event.round) + R"(,"step":)" + std::to_string(event.step) + "}");
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
                add('C', at, {kJobProcess, 0},
                    R"(,"name":"step","args":{"step":)" + std::to_string(step) + "}");
                last = step;
            }
        }
    }

    std::string joined() {
        // Those of one moment stay in order: the beginning of a part comes after that of the whole.
        std::sort(lines_.begin(), lines_.end(), [](const Line& a, const Line& b) {
            return std::pair(a.at, a.order) < std::pair(b.at, b.order);
        });
        std::string text = R"({"displayTimeUnit":"ms","otherData":{"job":)" + quoted(source_.job) +
                           R"(,"began":)" + quoted(utc_time(source_.began_ms)) + R"(,"slices":")" +
                           (by_rank_ ? "per rank" : "per node") + R"(","rounds_left_out":)" +
                           std::to_string(first_round_) + "},\"traceEvents\":[\n" + names_;
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
