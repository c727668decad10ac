// SPDX-License-Identifier: Apache-2.0
//
// Entries in bulk are kept completely and take little space.

#include "journal_stories.h"
#include "rendezvous/base/random.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"

namespace regroup::journal {
namespace {

using namespace rendezvous;  // NOLINT: every event.
using regroup::testing::lines_of;

std::vector<Entry> through(const std::vector<Entry>& entries) {
    std::vector<Entry> back;
    for (const std::string& record : to_records(entries)) {
        Result<std::vector<Entry>> read = decode_record(record);
        if (!read) {
            ADD_FAILURE() << read.error().detail << " in " << record;
            continue;
        }
        back.insert(back.end(), read->begin(), read->end());
    }
    return back;
}

std::string text_of(std::vector<Entry> entries) {
    for (Entry& entry : entries) {
        entry.wall_ms = 0;
    }
    return lines_of({{"job", 1}, std::move(entries), false});
}

std::size_t bytes_of(const std::vector<Entry>& entries) {
    std::size_t bytes = 0;
    for (const std::string& record : to_records(entries)) {
        bytes += record.size();
    }
    return bytes;
}

std::string name_of(std::size_t i) {
    return "node" + std::to_string(10000 + i) + "-12345-00c0ffee";
}

NodeReport report_of(std::size_t i, NodeState state) {
    NodeReport report;
    report.round = RoundId{3};
    report.state = state;
    report.store_port = static_cast<std::uint16_t>(30000 + (i * 37) % 9000);
    report.elastic = true;
    report.step = report.held_step = 123456;
    return report;
}

/// Reports of `count` nodes, one after the other, 100 us apart.
std::vector<Entry> said_by(std::size_t count, NodeState state) {
    std::vector<Entry> entries;
    for (std::size_t i = 0; i < count; ++i) {
        entries.push_back({Instant(std::chrono::microseconds(5000000 + i * 100)),
                           1795311368237,
                           NodeReported{name_of(i), report_of(i, state)},
                           {}});
    }
    return entries;
}

TEST(JournalRecords, ReportsAreReadBackInOrder) {
    Random random(7);
    for (int round = 0; round < 200; ++round) {
        std::vector<Entry> entries;
        Instant at{};
        for (std::uint64_t left = 1 + random.below(40); left > 0; --left) {
            at += std::chrono::microseconds(random.below(3) * random.below(100000));
            NodeReport report = report_of(random.below(5), NodeState(random.below(4)));
            report.step += random.below(2);
            report.held_step *= random.below(2);
            report.elastic = random.below(4) != 0;
            if (random.below(20) == 0) {
                report = regroup::testing::sample_report();
            }
            Entry entry{at, 0, NodeReported{name_of(random.below(9)), report}, {}};
            if (random.below(10) == 0) {
                entry.event = NodeDisconnected{name_of(random.below(9))};
            } else if (random.below(10) == 0) {
                entry.assigned = {{name_of(1), regroup::testing::sample_assignment()}};
            } else if (random.below(10) == 0) {
                entry.event.reset();
            }
            entries.push_back(std::move(entry));
        }
        ASSERT_EQ(text_of(through(entries)), text_of(entries));
    }
}

TEST(JournalRecords, ThousandsOfEntriesMakeSeveralRecords) {
    std::vector<Entry> entries = said_by(5000, NodeState::running);
    EXPECT_EQ(text_of(through(entries)), text_of(entries));
    for (Entry& entry : entries) {
        auto& event = std::get<NodeReported>(*entry.event);
        event.node.resize(255, 'x');
    }
    EXPECT_GE(to_records(entries).size(), 9U);
    for (const std::string& record : to_records(entries)) {
        EXPECT_LT(record.size(), std::size_t{200} << 10U);
    }
    EXPECT_EQ(text_of(through(entries)), text_of(entries));
}

TEST(JournalRecords, ReportSharedByManyNodesTakesLittleMoreThanTheirNames) {
    constexpr std::size_t kNodes = 1000;
    std::size_t names = 0;
    for (std::size_t i = 0; i < kNodes; ++i) {
        names += name_of(i).size() + 3;  // With its quotes and a comma.
    }
    EXPECT_LT(bytes_of(said_by(kNodes, NodeState::running)), names + kNodes * 12);
}

TEST(JournalRecords, RoundOfTheMostNodesFitsIntoARequest) {
    constexpr std::size_t kEtcdRequestMax = std::size_t{1536} << 10U;
    Entry entry{Instant(std::chrono::seconds(1)), 1, Restarted{}, {}};
    Assignment assignment = regroup::testing::sample_assignment();
    assignment.world_size = 8 * kNodesMax;
    for (std::uint32_t i = 0; i < kNodesMax; ++i) {
        assignment.group_rank = i;
        assignment.first_rank = assignment.role_first_rank = 8 * i;
        entry.assigned.push_back({name_of(i), assignment});
    }
    const std::vector<std::string> records = to_records(std::span(&entry, 1));
    ASSERT_EQ(records.size(), 1U);
    EXPECT_LT(records[0].size(), kEtcdRequestMax * 3 / 4);
    const std::vector<Entry> back = through({entry});
    ASSERT_EQ(back.size(), 1U);
    EXPECT_EQ(back[0].assigned, entry.assigned);
}

TEST(JournalRecords, AssignmentsThatDifferInMoreThanRanksAreReadBack) {
    Entry entry{Instant(std::chrono::seconds(1)), 1, Restarted{}, {}};
    Assignment assignment = regroup::testing::sample_assignment();
    for (std::uint32_t i = 0; i < 6; ++i) {
        assignment.group_rank = i;
        assignment.first_rank = 2 * i;
        assignment.role_first_rank = i / 2;
        assignment.role_world_size = i < 4 ? 4 : 2;
        entry.assigned.push_back({name_of(i), assignment});
    }
    const std::vector<Entry> back = through({entry});
    ASSERT_EQ(back.size(), 1U);
    EXPECT_EQ(back[0].assigned, entry.assigned);
}

TEST(JournalRecords, RecordOfTheFirstFormatIsRead) {
    const Entry entry{Instant(std::chrono::seconds(1)), 7, NodeDisconnected{"n"}, {}};
    const auto read = decode_record(encode(entry));
    ASSERT_TRUE(read) << read.error().detail;
    ASSERT_EQ(read->size(), 1U);
    EXPECT_EQ(encode(read->front()), encode(entry));
}

TEST(JournalRecords, MalformedRecordsAreNamed) {
    const std::string table =
        R"({"event":"reports","at_us":1,"reports":[{"round":1,"state":"running"}],"nodes":["a","b"])";
    ASSERT_TRUE(decode_record(table + "}")) << decode_record(table + "}").error().detail;
    for (const auto& [text, named] : std::vector<std::pair<std::string, std::string>>{
             {"nonsense", "JSON"},
             {"[1]", "JSON"},
             {R"([{"at_us":1},{"at_us":1,"event":"danced"}])", "event"},
             {table + R"(,"step":[1]})", "step"},
             {table + R"(,"step":[1,"x"]})", "step"},
             {table + R"(,"step":-1})", "step"},
             {table + R"(,"step":9007199254740993})", "step"},
             {table + R"(,"store_port":70000})", "store_port"},
             {table + R"(,"report":[0,1]})", "report"},
             {table + R"(,"gaps_us":9223372036854775807})", "gaps_us"},
             {table + R"(,"gaps_us":[0,950000000000000]})", "gaps_us"},
             {table + R"(,"gaps_us":[5,-1]})", "gaps_us"},
             {R"({"event":"reports","at_us":1,"nodes":["a"]})", "report"},
             {R"({"event":"reports","at_us":1,"nodes":[""]})", "nodes"},
             {R"({"event":"reports","at_us":1,"nodes":["\u001b"]})", "nodes"},
             {R"({"event":"reports","at_us":1,"nodes":7})", "nodes"},
             {R"({"event":"reports","nodes":["a"]})", "at_us"}}) {
        EXPECT_THAT(decode_record(text), fails(named)) << text;
    }
}

}  // namespace
}  // namespace regroup::journal
