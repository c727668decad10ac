// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/trace_json.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/matchers.h"

namespace regroup::rendezvous {
namespace {

using nlohmann::json;
using Place = std::pair<std::uint64_t, std::uint64_t>;  // Process and thread.

/// The lines of a job, one after the other.
class Story {
   public:
    void add(double at, const std::string& event, std::uint64_t round, const json& fields = {}) {
        json line = {{"time", "2026-11-25T21:20:00.123Z"},
                     {"job", "nightly"},
                     {"number", lines_.size() + 1},
                     {"job_time_s", at},
                     {"event", event},
                     {"round", round},
                     {"step", step}};
        if (!fields.is_null()) {
            line.update(fields);
        }
        lines_.push_back(line.dump());
    }
    /// `nodes` of `workers` each, named a, b and so on, or n0, n1, if `letters` is empty.
    void assign(double at, std::uint64_t round, const std::string& letters, std::uint32_t workers,
                std::uint32_t nodes = 0) {
        json members = json::array();
        const auto add_node = [&](const std::string& name) {
            members.push_back(
                {{"node", name}, {"first_rank", members.size() * workers}, {"workers", workers}});
        };
        for (const char letter : letters) {
            add_node(std::string(1, letter));
        }
        for (std::uint32_t i = 0; i < nodes; ++i) {
            add_node("n" + std::to_string(i));
        }
        add(at, "assigned", round, {{"nodes", members}, {"text", "because"}});
    }
    void recover(double at, std::uint64_t round, double stage_s, const json& fields = {}) {
        json all = {{"planned", false},
                    {"cut_short", false},
                    {"next_round", round},
                    {"text", "rank 1 on a was ended by SIGKILL"},
                    {"stages_s",
                     {{"detect", stage_s},
                      {"decide", 0.0},
                      {"stop", stage_s},
                      {"join", stage_s},
                      {"communicator", stage_s},
                      {"state", stage_s},
                      {"first_step", stage_s},
                      {"total", 6 * stage_s}}}};
        if (!fields.is_null()) {
            all.update(fields);
        }
        add(at, "recovered", round, all);
    }
    [[nodiscard]] json trace(const TraceLimits& limits = {}, double now = 0) const {
        return json::parse(text(limits, now));
    }
    [[nodiscard]] std::string text(const TraceLimits& limits = {}, double now = 0) const {
        TraceSource source{"nightly", 1764105600123, {}, {}, {}};
        source.lines.assign(lines_.begin(), lines_.end());
        source.samples = {{Instant(std::chrono::seconds(4)), 7}};
        source.now =
            Instant(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(now)));
        return trace_json(source, limits);
    }

    std::uint64_t step = 0;

   private:
    std::vector<std::string> lines_;
};

std::vector<json> events_of(const json& trace, const std::string& phase,
                            const std::string& name = "") {
    std::vector<json> found;
    for (const json& event : trace.at("traceEvents")) {
        if (event.at("ph") == phase && (name.empty() || event.value("name", "") == name)) {
            found.push_back(event);
        }
    }
    return found;
}

Place place_of(const json& event) {
    return {event.at("pid").get<std::uint64_t>(), event.at("tid").get<std::uint64_t>()};
}

/// The place of the thread with this name in the process with that name.
Place thread_of(const json& trace, const std::string& process, const std::string& thread) {
    for (const json& named : events_of(trace, "M", "process_name")) {
        for (const json& inner : events_of(trace, "M", "thread_name")) {
            if (named.at("args").at("name") == process && inner.at("args").at("name") == thread &&
                inner.at("pid") == named.at("pid")) {
                return place_of(inner);
            }
        }
    }
    ADD_FAILURE() << "no thread " << thread << " in " << process;
    return {};
}

std::vector<json> slices_on(const json& trace, Place place) {
    std::vector<json> found;
    for (const json& slice : events_of(trace, "X")) {
        if (place_of(slice) == place) {
            found.push_back(slice);
        }
    }
    return found;
}

std::int64_t begin_of(const json& event) {
    return event.at("ts").get<std::int64_t>();
}
std::int64_t end_of(const json& slice) {
    return begin_of(slice) + slice.at("dur").get<std::int64_t>();
}

/// The demands of Perfetto and chrome://tracing on such a file. Empty, or what is wrong.
std::vector<std::string> faults_of(const json& trace) {
    std::vector<std::string> faults;
    std::int64_t last = 0;
    std::map<Place, std::vector<json>> slices;
    std::map<std::pair<std::string, std::uint64_t>, std::vector<std::string>> open;
    std::map<std::uint64_t, std::string> arrows;
    for (const json& event : trace.at("traceEvents")) {
        const std::string phase = event.at("ph").get<std::string>();
        if (phase == "M") {
            continue;
        }
        if (begin_of(event) < last) {
            faults.push_back("goes back in time: " + event.dump());
        }
        last = begin_of(event);
        if (phase == "X") {
            std::vector<json>& before = slices[place_of(event)];
            // A slice lies in an earlier one, or after it.
            for (const json& other : before) {
                if (begin_of(event) < end_of(other) && end_of(event) > end_of(other)) {
                    faults.push_back("overlaps: " + event.dump());
                }
            }
            if (end_of(event) <= begin_of(event)) {
                faults.push_back("is empty: " + event.dump());
            }
            before.push_back(event);
        } else if (phase == "b" || phase == "e") {
            auto& names = open[{event.at("cat"), event.at("id")}];
            if (phase == "b") {
                names.push_back(event.at("name"));
            } else if (names.empty() || names.back() != event.at("name").get<std::string>()) {
                faults.push_back("ends what is not open: " + event.dump());
            } else {
                names.pop_back();
            }
        } else if (phase == "s" || phase == "f") {
            arrows[event.at("id").get<std::uint64_t>()] += phase;
            bool inside = false;
            for (const json& slice : slices_on(trace, place_of(event))) {
                inside = inside ||
                         (begin_of(slice) <= begin_of(event) && begin_of(event) < end_of(slice));
            }
            if (!inside) {
                faults.push_back("an arrow's end is in no slice: " + event.dump());
            }
        }
    }
    for (const auto& [key, names] : open) {
        if (!names.empty()) {
            faults.push_back("is not ended: " + names.back());
        }
    }
    for (const auto& [id, ends] : arrows) {
        if (ends != "sf") {
            faults.push_back("arrow " + std::to_string(id) + " has the ends " + ends);
        }
    }
    return faults;
}

/// Rank 1 on node a dies at 5 s; standby c takes the place of a.
Story killed() {
    Story story;
    story.add(0, "joined", 0, {{"node", "a"}});
    story.add(0.5, "joined", 0, {{"node", "b"}});
    story.assign(1, 1, "ab", 2);
    story.add(2, "running", 1);
    story.add(3, "joined", 1, {{"node", "c"}});
    story.step = 9;
    story.add(5, "failed", 1,
              {{"node", "a"}, {"first_rank", 0}, {"workers", 2}, {"rank", 1}, {"local_rank", 1}});
    story.add(5.5, "ending", 1, {{"cause", "failure"}});
    story.add(5.5, "quarantined", 1, {{"node", "a"}});
    story.assign(6, 2, "cb", 2);
    story.add(7, "running", 2);
    story.recover(7, 2, 0.25);
    return story;
}

TEST(TraceJson, RankHasASliceFromTheFirstStepToItsEnd) {
    const json trace = killed().trace({}, 10);
    EXPECT_THAT(faults_of(trace), IsEmpty());
    const auto dead = slices_on(trace, thread_of(trace, "node a", "local rank 1"));
    ASSERT_THAT(dead, SizeIs(2));
    EXPECT_EQ(dead[0].at("name"), "start of round 1");
    EXPECT_EQ(dead[1].at("name"), "round 1");
    EXPECT_EQ(begin_of(dead[1]), 2'000'000);
    EXPECT_EQ(end_of(dead[1]), 5'000'000);
    const auto survivor = slices_on(trace, thread_of(trace, "node b", "local rank 0"));
    ASSERT_THAT(survivor, SizeIs(4));
    EXPECT_EQ(end_of(survivor[1]), 5'500'000);
    EXPECT_EQ(survivor[3].at("name"), "round 2");
    EXPECT_EQ(survivor[3].at("args").at("rank"), 2);
    EXPECT_EQ(end_of(survivor[3]), 10'000'000);  // It goes on.
    EXPECT_EQ(trace.at("otherData").at("slices"), "per rank");
}

TEST(TraceJson, ArrowLeadsFromTheDeadRankToItsReplacement) {
    const json trace = killed().trace();
    const auto from = events_of(trace, "s");
    const auto to = events_of(trace, "f");
    ASSERT_THAT(from, SizeIs(1));
    ASSERT_THAT(to, SizeIs(1));
    EXPECT_EQ(place_of(from[0]), thread_of(trace, "node a", "local rank 1"));
    EXPECT_EQ(place_of(to[0]), thread_of(trace, "node c", "local rank 1"));
    EXPECT_EQ(to[0].at("bp"), "e");
}

TEST(TraceJson, RecoveryHasItsStagesInsideInOrder) {
    const json trace = killed().trace();
    std::vector<std::string> begun;
    for (const json& event : events_of(trace, "b")) {
        begun.push_back(event.at("name"));
    }
    EXPECT_THAT(begun, ElementsAre("recovery", "detect", "stop", "join", "communicator", "state",
                                   "first_step"));
    EXPECT_EQ(begin_of(events_of(trace, "b", "recovery").at(0)), 5'500'000);
    EXPECT_EQ(begin_of(events_of(trace, "e", "recovery").at(0)), 7'000'000);
    EXPECT_EQ(begin_of(events_of(trace, "b", "join").at(0)), 6'000'000);
}

TEST(TraceJson, RecoveriesThatOverlapAreSeparate) {
    Story story = killed();
    story.recover(7.5, 2, 0.25);
    story.recover(7.6, 2, 0.25, {{"planned", true}});
    const json trace = story.trace();
    EXPECT_THAT(faults_of(trace), IsEmpty());
    EXPECT_THAT(events_of(trace, "b", "recovery"), SizeIs(2));
    EXPECT_THAT(events_of(trace, "b", "planned change"), SizeIs(1));
}

TEST(TraceJson, InstantsAreOnTheirNodesAndRanks) {
    const json trace = killed().trace();
    const auto failed = events_of(trace, "i", "failed");
    ASSERT_THAT(failed, SizeIs(1));
    EXPECT_EQ(place_of(failed[0]), thread_of(trace, "node a", "local rank 1"));
    const auto quarantined = events_of(trace, "i", "quarantined");
    ASSERT_THAT(quarantined, SizeIs(1));
    EXPECT_EQ(place_of(quarantined[0]), thread_of(trace, "node a", "agent"));
    EXPECT_THAT(events_of(trace, "i", "joined"), SizeIs(3));
}

TEST(TraceJson, StepsAreACounterOfEventsAndSamples) {
    std::vector<std::pair<std::int64_t, std::uint64_t>> steps;
    for (const json& event : events_of(killed().trace(), "C", "step")) {
        steps.emplace_back(begin_of(event), event.at("args").at("step").get<std::uint64_t>());
    }
    EXPECT_THAT(steps, ElementsAre(std::pair(4'000'000, 7), std::pair(5'000'000, 9)));
}

TEST(TraceJson, PlannedChangeEndsTheRoundWhereTheNextOneIsAssigned) {
    Story story;
    story.assign(1, 1, "a", 1);
    story.add(2, "running", 1);
    story.add(3, "changing", 1);
    story.assign(4, 2, "ab", 1);
    story.add(5, "running", 2);
    story.add(6, "closed", 2, {{"outcome", "succeeded"}});
    const json trace = story.trace();
    EXPECT_THAT(faults_of(trace), IsEmpty());
    const auto slices = slices_on(trace, thread_of(trace, "node a", "local rank 0"));
    ASSERT_THAT(slices, SizeIs(4));
    EXPECT_EQ(end_of(slices[1]), 4'000'000);
    EXPECT_EQ(end_of(slices[3]), 6'000'000);
    EXPECT_THAT(events_of(trace, "s"), IsEmpty());
}

TEST(TraceJson, NodesOfOneNameAreTwoProcesses) {
    Story story;
    story.assign(1, 1, "aa", 1);
    story.add(2, "running", 1);
    const json trace = story.trace({}, 3);
    EXPECT_THAT(faults_of(trace), IsEmpty());
    EXPECT_NE(thread_of(trace, "node a", "local rank 0"),
              thread_of(trace, "node a (2)", "local rank 0"));
}

TEST(TraceJson, LargeJobHasSlicesOfNodesInPlaceOfRanks) {
    Story story;
    for (std::uint32_t round = 1; round <= 2; ++round) {
        story.assign(round * 10.0, round, "", 8, 1000);
        story.add(round * 10.0 + 1, "running", round);
        story.add(round * 10.0 + 5, "failed", round,
                  {{"node", "n7"}, {"first_rank", 56}, {"workers", 8}, {"rank", 60}});
        story.add(round * 10.0 + 6, "ending", round);
    }
    const json trace = story.trace();
    EXPECT_THAT(faults_of(trace), IsEmpty());
    EXPECT_EQ(trace.at("otherData").at("slices"), "per node");
    EXPECT_THAT(slices_on(trace, thread_of(trace, "node n7", "agent")), SizeIs(4));
    EXPECT_THAT(events_of(trace, "X"), SizeIs(4 * 1001));
    EXPECT_THAT(events_of(trace, "s"), SizeIs(1));

    TraceLimits limits;
    limits.slices_max = 2100;
    const json cut = story.trace(limits);
    EXPECT_THAT(faults_of(cut), IsEmpty());
    EXPECT_EQ(cut.at("otherData").at("rounds_left_out"), 1);
    EXPECT_THAT(events_of(cut, "X", "round 1"), IsEmpty());
    EXPECT_THAT(events_of(cut, "X", "round 2"), SizeIs(1001));
}

TEST(TraceJson, HistoryThatBeginsInTheMiddleIsDrawnFromThereOn) {
    Story story;
    story.add(100, "running", 7);
    story.add(101, "failed", 7, {{"node", "a"}, {"first_rank", 0}, {"workers", 2}, {"rank", 1}});
    story.add(102, "ending", 7);
    story.assign(103, 8, "ab", 2);
    story.recover(103, 8, 50);  // It began before the first event that is kept.
    const json trace = story.trace({}, 104);
    EXPECT_THAT(faults_of(trace), IsEmpty());
    EXPECT_THAT(events_of(trace, "X", "round 7"), IsEmpty());
    EXPECT_THAT(events_of(trace, "i", "failed"), SizeIs(1));
}

TEST(TraceJson, StrangeLinesAreLeftOut) {
    TraceSource source{"a\"b\xff",
                       0,
                       {"", "[]", "nonsense", "{\"job_time_s\":\"x\"}",
                        R"({"job_time_s":1e300,"event":"assigned","nodes":[3]})",
                        R"({"job_time_s":-5,"event":7,"round":-1})"},
                       {},
                       {}};
    EXPECT_THAT(faults_of(json::parse(trace_json(source))), IsEmpty());
}

TEST(TraceJson, TextsOfOthersAreEscapedForTheTerminal) {
    Story story;
    story.assign(1, 1, "a", 1);
    story.add(2, "failed", 1, {{"node", "J\u00fcrgen"}, {"text", "\u202eevil\u009b31m"}});
    const std::string text = story.text();
    EXPECT_THAT(text, ::testing::HasSubstr("\"text\":\"\\u202eevil\\u009b31m\""));
    EXPECT_THAT(text, ::testing::HasSubstr("\"node J\u00fcrgen\""));
}

}  // namespace
}  // namespace regroup::rendezvous
