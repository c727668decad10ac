// SPDX-License-Identifier: Apache-2.0
#include <boost/pfr.hpp>

#include "journal_stories.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"

namespace regroup::journal {
namespace {

using namespace rendezvous;  // NOLINT: every event.
using regroup::testing::lines_of;

Entry entry_with(std::optional<Event> event) {
    return {Instant(std::chrono::microseconds(123456789)), 1795311368237, std::move(event), {}};
}

template <class Message>
Message through(const Message& event) {
    const Result<Entry> decoded = decode_entry(encode(entry_with(event)));
    if (!decoded || !decoded->event || !std::holds_alternative<Message>(*decoded->event)) {
        ADD_FAILURE() << (decoded ? "another event" : decoded.error().detail);
        return {};
    }
    EXPECT_EQ(decoded->at, entry_with({}).at);
    EXPECT_EQ(decoded->wall_ms, entry_with({}).wall_ms);
    return std::get<Message>(*decoded->event);
}

template <class Message>
void expect_kept(const Message& event) {
    EXPECT_TRUE(boost::pfr::eq_fields(through(event), event)) << encode(entry_with(event));
}

TEST(JournalEntries, AddressSeenByTheDaemonIsKeptAsSuch) {
    NodeJoined event = regroup::testing::joined("a");
    event.offer.address = "10.0.0.9";
    EXPECT_EQ(through(event).offer.address, "10.0.0.9");
    EXPECT_FALSE(through(event).offer.address_is_explicit);
}

TEST(JournalEntries, EventsKeepEveryField) {
    const Join join = regroup::testing::sample_join();
    expect_kept(NodeJoined{join.node, join.policy, join.offer, join.report});
    expect_kept(NodeReported{"n", join.report});
    expect_kept(NodeDisconnected{"n"});
    expect_kept(NodeLeft{"n", "why"});
    expect_kept(NodeLeft{"n", "why", true});
    expect_kept(StopRequested{"ann", "why"});
    expect_kept(DrainRequested{"a", "ann", "why"});
    expect_kept(ReleaseRequested{"a", "ann", "why"});
    Resumed resumed = through(NodeResumed{"n", regroup::testing::sample_resumed()}).resumed;
    EXPECT_TRUE(boost::pfr::eq_fields(resumed, regroup::testing::sample_resumed()));
    through(Restarted{});
    expect_kept(SlowRankFound{RoundId{17}, {3, 0.25}});
    expect_kept(JobFollows{join.policy, RoundId{17}});
    const Result<Entry> time = decode_entry(encode(entry_with(std::nullopt)));
    ASSERT_TRUE(time);
    EXPECT_FALSE(time->event);
}

TEST(JournalEntries, AssignmentsAreKept) {
    Entry entry = entry_with(std::nullopt);
    entry.assigned = {{"n", regroup::testing::sample_assignment()}, {"m", Assignment()}};
    entry.assigned[1].assignment.master_addr = "10.0.0.1";
    const Result<Entry> decoded = decode_entry(encode(entry));
    ASSERT_TRUE(decoded) << decoded.error().detail;
    EXPECT_EQ(decoded->assigned, entry.assigned);
}

TEST(JournalEntries, MalformedEntriesAreNamed) {
    for (const auto& [text, named] : std::vector<std::pair<std::string, std::string>>{
             {"", "JSON"},
             {"[]", "JSON"},
             {"{}", "at_us"},
             {R"({"at_us":-1})", "at_us"},
             {R"({"at_us":1,"event":"danced"})", "event"},
             {R"({"at_us":1,"event":"left"})", "node"},
             {R"({"at_us":1,"event":"reported","node":"n","round":1,"state":"x"})", "state"},
             {R"({"at_us":1,"event":"follows","nodes_min":1,"nodes_max":1})", "last_round"},
             {R"({"at_us":1,"assigned":[{"node":"n"}]})", "round"}}) {
        EXPECT_THAT(decode_entry(text), fails(named)) << text;
    }
}

TEST(JournalEntries, LinesOfSeveralJobsAreReadBack) {
    StoredJob one = regroup::testing::story_of_two_rounds().job();
    StoredJob other = one;
    other.key = {"other", 7};
    other.ended = true;
    const auto jobs = from_lines(lines_of(one) + lines_of(other));
    ASSERT_TRUE(jobs) << jobs.error().detail;
    ASSERT_EQ(jobs->size(), 2U);
    EXPECT_EQ((*jobs)[0].key, one.key);
    EXPECT_EQ((*jobs)[1].key, other.key);
    EXPECT_TRUE((*jobs)[1].ended);
    EXPECT_EQ(lines_of((*jobs)[0]), lines_of(one));
    EXPECT_FALSE(from_lines(R"({"at_us":1})"));
    EXPECT_THAT(from_lines("{\"job\":\"a\"}\nnonsense").error().detail, HasSubstr("line 2"));
}

}  // namespace
}  // namespace regroup::journal
