// SPDX-License-Identifier: Apache-2.0
//
// `regroup events`, `regroup trace` and --event-log, with real jobs.
#include <csignal>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <sys/stat.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"
#include "tests/support/pseudo_terminal.h"

namespace regroup::testing {
namespace {

using nlohmann::json;

constexpr int kSkipped = 77;

/// The lines that are JSON objects, of one source if it is given.
std::vector<json> objects_of(const std::string& text, const std::string& source = "") {
    std::vector<json> objects;
    for (const std::string& line : lines_of(text)) {
        json object = json::parse(line, nullptr, false);
        if (object.is_object() && (source.empty() || object.value("source", "") == source)) {
            objects.push_back(std::move(object));
        }
    }
    return objects;
}

std::vector<std::string> kinds_of(const std::vector<json>& events) {
    std::vector<std::string> kinds;
    for (const json& event : events) {
        kinds.push_back(event.at("event").get<std::string>());
    }
    return kinds;
}

/// The numbers are 1, 2, 3 and so on.
void expect_whole(const std::vector<json>& events) {
    std::uint64_t number = 0;
    for (const json& event : events) {
        ASSERT_EQ(event.at("number"), ++number) << event;
    }
}

std::vector<json> phase_of(const json& trace, const std::string& phase) {
    std::vector<json> events;
    for (const json& event : trace.at("traceEvents")) {
        if (event.at("ph") == phase) {
            events.push_back(event);
        }
    }
    return events;
}

class EventsCommand : public EndToEnd {
   protected:
    [[nodiscard]] std::string path(const std::string& name) const { return folder() + "/" + name; }

    [[nodiscard]] std::unique_ptr<Rendezvous> serve(std::uint16_t port) const {
        return std::make_unique<Rendezvous>(Words{"--listen=127.0.0.1:" + std::to_string(port),
                                                  "--state=" + path("state"),
                                                  "--event-log=" + path("events.jsonl")});
    }
    [[nodiscard]] std::unique_ptr<Program> start_node(unsigned number,
                                                      const std::string& endpoint) const {
        return start_run(node(number, "2", endpoint) + Words{"--nproc-per-node=2",
                                                             "--max-restarts=4",
                                                             "--event-log=" + path("agents.jsonl"),
                                                             elastic_probe_program(), "beat"});
    }
    /// The output of `regroup WORDS`, of stdout alone.
    [[nodiscard]] std::string said(const Words& words) const {
        std::string line = regroup_program();
        for (const std::string& word : words) {
            line += " '" + word + "'";
        }
        Program program({{"/bin/sh", "-c", line + " 2>" + path("stderr")}, {}, folder()});
        EXPECT_EQ(program.wait(), 0) << program.output() << read_file(path("stderr"));
        return program.output();
    }
    /// Prints a line, and no more, where the tool is missing.
    void check(const std::string& script, const std::string& argument,
               const std::string& input) const {
        const std::string file = path("checked");
        std::ofstream(file) << input;
        Program program(
            {{"/bin/sh", "-c",
              "exec python3 " PYTHON_PROGRAMS "/" + script + " " + argument + " <" + file},
             {},
             folder()});
        const int code = program.wait().value_or(-1);
        if (code == kSkipped || code == 127) {
            std::printf("not checked by %s: %s\n", script.c_str(), program.output().c_str());
            return;
        }
        EXPECT_EQ(code, 0) << program.output();
    }
};

TEST_F(EventsCommand, JobIsFollowedOverARestartOfItsDaemonWithoutGapOrDuplicate) {
    auto daemon = serve(0);
    const std::uint16_t port = daemon->port();
    const std::string endpoint = daemon->endpoint();
    auto a = start_node(1, endpoint);
    auto b = start_node(2, endpoint);
    const auto first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4)) << a->output() << b->output();
    Program follower({{regroup_program(), "events", "--follow", "--json", "--endpoint=" + endpoint},
                      {},
                      folder()});
    ASSERT_TRUE(follower.prints("\"assigned\"")) << follower.output();
    ::kill(pid_of(first.at(3)), SIGKILL);
    ASSERT_TRUE(follower.prints("\"recovered\"")) << follower.output();
    ASSERT_TRUE(eventually([&] { return !read_file(path("step")).empty(); }));

    daemon->program().signal(SIGKILL);
    ASSERT_TRUE(daemon->program().wait());
    ASSERT_TRUE(follower.prints("lost the connection")) << follower.output();
    daemon = serve(port);
    ASSERT_TRUE(follower.prints("the daemon is back")) << follower.output();

    // The status and the trace of a running job.
    check("check_schema.py", STATUS_SCHEMA, said({"status", "--json", "--endpoint=" + endpoint}));
    const std::string table = said({"events", "--endpoint=" + endpoint});
    EXPECT_THAT(table, saying("TIME ", " failed ", "rank 3 on 127.0.0.3 was ended by SIGKILL"));
    const json trace = json::parse(said({"trace", "--endpoint=" + endpoint, "job"}));
    EXPECT_THAT(phase_of(trace, "s"), SizeIs(1));
    EXPECT_THAT(phase_of(trace, "f"), SizeIs(1));
    Program reader({{"/bin/sh", "-c",
                     "exec python3 -c 'import sys, urllib.request as r; "
                     "print(r.urlopen(sys.argv[1]).read().decode())' http://" +
                         endpoint + "/api/v1/jobs/job/trace"},
                    {},
                    folder()});
    ASSERT_EQ(reader.wait(), 0) << reader.output();
    EXPECT_THAT(phase_of(json::parse(reader.output()), "s"), SizeIs(1));

    std::ofstream(path("finish")) << "";
    ASSERT_EQ(follower.wait(), 0) << follower.output();
    EXPECT_EQ(a->wait(), 0) << a->output();
    EXPECT_EQ(b->wait(), 0) << b->output();

    const std::vector<json> followed = objects_of(follower.output());
    expect_whole(followed);
    EXPECT_EQ(kinds_of(followed).back(), "closed");
    EXPECT_THAT(follower.output(), Not(HasSubstr("are missing")));
    const std::vector<json> after =
        objects_of(said({"events", "--json", "--since=3", "--endpoint=" + endpoint}));
    ASSERT_THAT(after, SizeIs(followed.size() - 3));
    EXPECT_EQ(after.front().at("number"), 4);

    // The file has the same events, each once.
    const std::string log = read_file(path("events.jsonl"));
    EXPECT_EQ(objects_of(log), followed);
    struct stat facts{};
    ASSERT_EQ(::stat(path("events.jsonl").c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777U, 0600U);
    const std::string agents = read_file(path("agents.jsonl"));
    const std::vector<json> workers = objects_of(agents, "agent");
    EXPECT_THAT(kinds_of(workers),
                AllOf(Contains("worker_started").Times(5), Contains("worker_failed").Times(1),
                      Contains("worker_succeeded").Times(4)));
    check("check_schema.py", EVENTS_SCHEMA, log + agents);

    // The trace of the whole job, from the journal.
    daemon->program().signal(SIGTERM);
    ASSERT_TRUE(daemon->program().wait());
    const std::string text = said({"trace", "--journal=" + path("state"), "job"});
    const json whole = json::parse(text);
    EXPECT_EQ(whole.at("otherData").at("job"), "job");
    const std::vector<json> slices = phase_of(whole, "X");
    std::set<std::pair<int, int>> ranks;  // Processes and threads of `round 2`.
    for (const json& slice : slices) {
        if (slice.at("name") == "round 2" && slice.at("args").contains("rank")) {
            ranks.emplace(slice.at("pid").get<int>(), slice.at("tid").get<int>());
        }
    }
    EXPECT_THAT(ranks, SizeIs(4));
    EXPECT_THAT(phase_of(whole, "s"), SizeIs(1));
    EXPECT_THAT(phase_of(whole, "b"), Not(IsEmpty()));
    std::ofstream(path("trace.json")) << text;
    check("check_trace.py", path("trace.json"), "");
}

TEST_F(EventsCommand, DaemonThatWritesEventsToItsTerminalDoesNotReadThere) {
    PseudoTerminal daemon({regroup_program(), "serve", "--listen=127.0.0.1:0",
                           "--state=" + path("state"), "--event-log=/dev/tty"},
                          {});
    EXPECT_TRUE(daemon.shows("listening")) << daemon.screen().text();
}

TEST_F(EventsCommand, LauncherWritesTheEventsOfItsJobAndOfItsWorkers) {
    Program job = run_probe({"--standalone", "--rdzv-id=solo", "--nproc-per-node=2",
                             "--max-restarts=1", "--event-log=" + path("log.jsonl")},
                            {"exit=3"});
    EXPECT_EQ(job.wait(), 3) << job.output();
    const std::string log = read_file(path("log.jsonl"));
    const std::vector<json> events = objects_of(log, "daemon");
    expect_whole(events);
    EXPECT_THAT(kinds_of(events), AllOf(Contains("joined"), Contains("failed"),
                                        Contains("assigned").Times(2), Contains("closed")));
    const std::vector<json> workers = objects_of(log, "agent");
    EXPECT_THAT(kinds_of(workers),
                AllOf(Contains("worker_started").Times(4), Contains("worker_failed")));
    check("check_schema.py", EVENTS_SCHEMA, log);
}

TEST_F(EventsCommand, MistakesAreNamed) {
    const Rendezvous rendezvous;
    const auto fails = [&](const Words& words, int code, const std::string& text) {
        Program program({Words{regroup_program()} + words, {}, folder()});
        EXPECT_THAT(ended(program), exits(code, text));
    };
    const std::string endpoint = "--endpoint=" + rendezvous.endpoint();
    fails({"events", endpoint}, 1, "regroup events: this daemon has no job");
    fails({"events", endpoint, "--job=x"}, 1, "there is no job x");
    fails({"trace", endpoint, "x"}, 1, "regroup trace: there is no job x");
    fails({"events", "--since=-1"}, 2, "--since must be a whole number");
    fails({"events", "job"}, 2, "name the job with --job");
    fails({"events", "--endpoint=127.0.0.1:1", "--timeout=0.3"}, 3, "no daemon has answered");
    fails({"trace", "a", "b"}, 2, "takes one JOB, not 'b' as well");
    fails({"trace", "--journal=" + path("none")}, 2, "cannot open");
    fails({"serve", "--listen=127.0.0.1:0", "--event-log=" + path("no/file")}, 2,
          "--event-log: cannot write " + path("no/file"));
    fails({"run", "--standalone", "--event-log=" + path("no/file"), "/bin/true"}, 2,
          "--event-log: cannot write " + path("no/file"));
}

}  // namespace
}  // namespace regroup::testing
