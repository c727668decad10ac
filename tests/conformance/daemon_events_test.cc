// SPDX-License-Identifier: Apache-2.0
//
// The events of a job: in the daemon's sinks, for operators that follow them, and after a restart.
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "daemon_harness.h"
#include "daemon_shelf.h"
#include "rendezvous/view/event_line.h"
#include "tests/support/matchers.h"

namespace regroup::rendezvous {
namespace {

using nlohmann::json;

using Lines = std::vector<std::string>;

/// The line without its wall-clock time, which a restored daemon may know less exactly.
std::string timeless(const std::string& line) {
    json object = json::parse(line);
    object.erase("time");
    return object.dump();
}

struct Sink {
    Lines lines;
    Lines restored;

    void listen_to(Daemon& daemon) {
        daemon.add_event_sink(
            {[this](const std::string& job, const RecordedEvent& event) {
                 EXPECT_EQ(job, "job");
                 lines.push_back(timeless(*event.line));
             },
             [this](const std::string& job, std::int64_t began_ms, const JobHistory& history) {
                 EXPECT_EQ(job, "job");
                 EXPECT_GT(began_ms, 0);
                 for (const RecordedEvent& event : history.events()) {
                     restored.push_back(timeless(*event.line));
                 }
             }});
    }
    DaemonHost::Change with(testing::Shelf& shelf) {
        return [this, &shelf](DaemonSetup& setup) {
            testing::with_shelf(shelf)(setup);
            setup.prepare = [this](Daemon& daemon) { listen_to(daemon); };
        };
    }
};

std::vector<std::uint64_t> numbers_of(const Lines& lines) {
    std::vector<std::uint64_t> numbers;
    for (const std::string& line : lines) {
        numbers.push_back(json::parse(line).at("number").get<std::uint64_t>());
    }
    return numbers;
}

/// The lines of an answer, with or without its head.
Lines lines_of(const std::string& text) {
    Lines lines;
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n', begin)) {
        if (text[begin] == '{') {
            lines.push_back(text.substr(begin, end - begin));
        }
        begin = end + 1;
    }
    return lines;
}

std::vector<std::string> kinds_of(const Lines& lines) {
    std::vector<std::string> kinds;
    for (const std::string& line : lines) {
        kinds.push_back(json::parse(line).at("event").get<std::string>());
    }
    return kinds;
}

/// A client that follows the events of the job after `since`.
struct Follower {
    Follower(Loop& loop, std::uint16_t port, std::uint64_t since = 0, int receive_buffer = 0)
        : peer(loop, port, receive_buffer) {
        peer.send("GET /api/v1/events?job=job&follow=1&since=" + std::to_string(since) +
                  " HTTP/1.1\r\nHost: localhost\r\n\r\n");
        EXPECT_THAT(peer.await("\r\n\r\n\n"), ::testing::StartsWith("HTTP/1.1 200 "));
    }
    Peer peer;
};

Join elastic_join(const std::string& name) {
    Join join = join_of("job", name, 2);
    join.policy.restarts_max = 3;
    return join;
}

/// Two nodes train, a worker of one fails, and they form the next round.
struct FailingJob {
    FailingJob(Loop& loop, std::uint16_t port) : a(loop, port), b(loop, port) {
        a.say(elastic_join("a"));
        b.say(elastic_join("b"));
        EXPECT_TRUE(a.expect<Assign>() && b.expect<Assign>());
        run(RoundId{1});
    }
    void run(RoundId round) {
        for (Peer* peer : {&a, &b}) {
            peer->say(running(round));
            EXPECT_TRUE(peer->expect<Alive>());
        }
    }
    void fail() {
        Report failed = running(RoundId{1});
        failed.report.state = NodeState::stopped;
        failed.report.failure.emplace().exit_code = 1;
        a.say(failed);
        EXPECT_TRUE(b.expect<Stop>());
        Report stopped = running(RoundId{1});
        stopped.report.state = NodeState::stopped;
        b.say(stopped);
        EXPECT_TRUE(b.expect<Assign>());
    }

    Peer a;
    Peer b;
};

class DaemonEvents : public testing::DaemonJournal {};

TEST_F(DaemonEvents, RestoredDaemonHasTheSameEventsAndGoesOnCounting) {
    Sink first;
    Sink second;
    {
        const auto daemon = host();
        first.listen_to(daemon->daemon());
        FailingJob job(loop, daemon->port());
        job.fail();
        ASSERT_TRUE(loop.until([&] { return first.lines.size() >= 7; }));
    }
    ASSERT_THAT(kinds_of(first.lines), ElementsAre("joined", "joined", "assigned", "running",
                                                   "failed", "ending", "assigned"));
    const auto next = std::make_unique<DaemonHost>(loop, DaemonLimits(), 0, second.with(shelf));
    // The first daemon's end was one more event of its nodes, or none.
    ASSERT_TRUE(loop.until([&] { return second.restored.size() >= first.lines.size(); }));
    EXPECT_THAT(Lines(second.restored.begin(),
                      second.restored.begin() + static_cast<std::ptrdiff_t>(first.lines.size())),
                ElementsAreArray(first.lines));
    Peer stop(loop, next->port());
    stop.say(Operate{"job", Operate::Action::stop, "", "ann", "enough"});
    ASSERT_TRUE(stop.expect<Operated>());
    ASSERT_THAT(second.lines, Not(IsEmpty()));
    EXPECT_EQ(kinds_of(second.lines).front(), "restored") << "the daemon was restarted";
    EXPECT_EQ(kinds_of(second.lines).back(), "closed");
    EXPECT_EQ(numbers_of(second.lines).front(), second.restored.size() + 1);
}

TEST_F(DaemonEvents, EventsAreToldInTheOrderOfTheJournalThoughItIsSlow) {
    Sink first;
    Sink second;
    {
        const auto daemon = host();
        first.listen_to(daemon->daemon());
        shelf.slow = true;
        Peer a(loop, daemon->port());
        Peer b(loop, daemon->port());
        a.say(elastic_join("a"));
        b.say(elastic_join("b"));
        ASSERT_TRUE(loop.until([&] { return shelf.waiting.size() == 2; }));
        EXPECT_THAT(first.lines, IsEmpty());
        for (const auto& done : std::exchange(shelf.waiting, {})) {
            done();
        }
        ASSERT_TRUE(a.expect<Assign>() && b.expect<Assign>());
        // A third node joins, and before that is kept, the round runs.
        Peer c(loop, daemon->port());
        c.say(elastic_join("c"));
        ASSERT_TRUE(loop.until([&] { return shelf.waiting.size() == 1; }));
        for (Peer* peer : {&a, &b}) {
            peer->say(running(RoundId{1}));
            ASSERT_TRUE(peer->expect<Alive>());
        }
        EXPECT_THAT(kinds_of(first.lines), ElementsAre("joined", "joined", "assigned"));
        shelf.release();
        EXPECT_THAT(kinds_of(first.lines),
                    ElementsAre("joined", "joined", "assigned", "joined", "running"));
    }
    const DaemonHost next(loop, {}, 0, second.with(shelf));
    ASSERT_TRUE(loop.until([&] { return second.restored.size() >= first.lines.size(); }));
    EXPECT_EQ(second.restored[3], first.lines[3]);
    EXPECT_EQ(second.restored[4], first.lines[4]);
}

TEST_F(DaemonEvents, FirstRoundRunsWithItsProgramsAndAgainWithItsFirstStep) {
    Sink sink;
    DaemonHost daemon(loop);
    sink.listen_to(daemon.daemon());
    Peer a(loop, daemon.port());
    a.say(join_of("job", "a", 1));
    ASSERT_TRUE(a.expect<Assign>());
    a.say(running(RoundId{1}));
    ASSERT_TRUE(a.expect<Alive>());
    Resumed resumed;
    resumed.round = RoundId{1};
    resumed.step = 1;
    a.say(resumed);
    a.say(resumed);  // It is repeated until it is answered.
    a.say(running(RoundId{1}));
    ASSERT_TRUE(a.expect<Alive>());
    EXPECT_THAT(kinds_of(sink.lines), ElementsAre("joined", "assigned", "running", "running"));
    EXPECT_EQ(json::parse(sink.lines[2]).at("step"), 0);
    EXPECT_EQ(json::parse(sink.lines[3]).at("step"), 1);
    EXPECT_EQ(daemon.daemon().history("job")->state(), JobState::productive);
}

TEST_F(DaemonEvents, OperatorGetsThePastEvents) {
    DaemonHost daemon(loop);
    FailingJob job(loop, daemon.port());
    const auto get = [&](const std::string& parameters) {
        return lines_of(body_by_http(loop, daemon.port(), "/api/v1/events?job=job" + parameters));
    };
    const std::string all = get_by_http(loop, daemon.port(), "/api/v1/events");
    EXPECT_THAT(kinds_of(lines_of(all)), ElementsAre("joined", "joined", "assigned", "running"));
    const std::string field = "Regroup-Job-Began: ";
    const std::size_t at = all.find(field);
    ASSERT_NE(at, all.npos);
    const std::int64_t began_ms = std::stoll(all.substr(at + field.size()));

    EXPECT_THAT(numbers_of(get("&since=3&began=" + std::to_string(began_ms))), ElementsAre(4));
    EXPECT_THAT(numbers_of(get("&since=3&began=" + std::to_string(began_ms - 1))),
                ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(get("&since=1000"), IsEmpty());
    EXPECT_THAT(get_by_http(loop, daemon.port(), "/api/v1/events?job=other"),
                AllOf(::testing::StartsWith("HTTP/1.1 404 "), HasSubstr("no job other")));
}

TEST_F(DaemonEvents, FollowerGetsEachEventOnceAndTheEndOfTheJob) {
    DaemonHost daemon(loop);
    FailingJob job(loop, daemon.port());
    Follower follower(loop, daemon.port());
    job.fail();
    Peer stop(loop, daemon.port());
    stop.say(Operate{"job", Operate::Action::stop, "", "ann", "enough"});
    const Lines lines = lines_of(follower.peer.rest());
    std::uint64_t number = 0;
    for (const std::uint64_t next : numbers_of(lines)) {
        EXPECT_EQ(next, ++number);
    }
    EXPECT_EQ(kinds_of(lines).back(), "closed");
    EXPECT_EQ(kinds_of(lines_of(Follower(loop, daemon.port()).peer.rest())), kinds_of(lines))
        << "of a job that has ended";
}

TEST_F(DaemonEvents, FollowerThatComesBackGoesOnWhereItWas) {
    DaemonHost daemon(loop);
    FailingJob job(loop, daemon.port());
    Lines lines = lines_of(Follower(loop, daemon.port()).peer.await("running"));
    const std::uint64_t last = numbers_of(lines).back();
    job.fail();
    Follower next(loop, daemon.port(), last);
    lines = lines_of(next.peer.await("failed"));
    EXPECT_EQ(numbers_of(lines).front(), last + 1);
}

TEST_F(DaemonEvents, JobWithoutNewEventsKeepsFewerWhenThereAreManyJobs) {
    DaemonHost daemon(loop);
    FailingJob job(loop, daemon.port());
    constexpr int kStandbys = 200;
    for (int i = 0; i < kStandbys; ++i) {
        Peer standby(loop, daemon.port());
        standby.say(elastic_join("standby" + std::to_string(i)));
        ASSERT_TRUE(standby.expect<Waiting>());
        standby.say(Leave{"done"});
    }
    ASSERT_TRUE(loop.until(
        [&] { return daemon.daemon().history("job")->last_number() >= 4 + 2 * kStandbys; }));
    const std::size_t events = daemon.daemon().history("job")->events().size();
    ASSERT_EQ(events, 4U + 2 * kStandbys);

    std::vector<Peer> others;
    for (int i = 0; i < 900; ++i) {
        others.emplace_back(loop, daemon.port());
        others.back().say(join_of("job " + std::to_string(i), "node", 2));
    }

    EXPECT_TRUE(
        loop.until([&] { return daemon.daemon().history("job")->events().size() < events; }));
}

TEST_F(DaemonEvents, DaemonThatEndsSendsTheLastEventsFirst) {
    DaemonHost daemon(loop);
    FailingJob job(loop, daemon.port());
    Follower follower(loop, daemon.port(), 4);
    bool done = false;
    daemon.daemon().stop("the daemon", "it ends", std::chrono::seconds(5), [&] { done = true; });
    EXPECT_TRUE(loop.until([&] { return done; }));
    daemon.destroy();
    EXPECT_THAT(kinds_of(lines_of(follower.peer.rest())), ::testing::Contains("closed"));
}

}  // namespace
}  // namespace regroup::rendezvous
