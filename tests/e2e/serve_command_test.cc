// SPDX-License-Identifier: Apache-2.0
//
// `regroup serve`: one daemon for many jobs. It survives garbage on its port and ends on SIGTERM.
#include <algorithm>
#include <arpa/inet.h>
#include <csignal>
#include <fcntl.h>
#include <memory>
#include <netinet/in.h>
#include <random>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

class ServeCommand : public EndToEnd {};

/// A connection to the daemon that is held until the end of the test.
class Connection {
   public:
    explicit Connection(std::uint16_t port)
        : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        if (fd_ < 0) {
            ADD_FAILURE() << "no socket";
            return;
        }
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(port);
        EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    }
    ~Connection() { ::close(fd_); }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void send(const std::string& bytes) const {
        ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }

    /// `count` bytes; fewer at the end of the connection or after 20 s.
    [[nodiscard]] std::string receive(std::size_t count) const {
        const timeval limit{20, 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        std::string bytes(count, '\0');
        bytes.resize(static_cast<std::size_t>(
            std::max(ssize_t{0}, ::recv(fd_, bytes.data(), count, MSG_WAITALL))));
        return bytes;
    }

   private:
    int fd_;
};

std::string frame(const std::string& payload) {
    std::string bytes(4, '\0');
    for (int i = 0; i < 4; ++i) {
        bytes[static_cast<std::size_t>(i)] = static_cast<char>(payload.size() >> (24 - 8 * i));
    }
    return bytes + payload;
}

TEST_F(ServeCommand, ManyJobsShareOnePortWithoutMeeting) {
    constexpr unsigned kJobs = 10;
    const Rendezvous rendezvous;
    std::vector<std::unique_ptr<Program>> agents;
    for (unsigned number = 1; number <= 2; ++number) {
        for (unsigned job = 0; job < kJobs; ++job) {
            const std::string id = "job" + std::to_string(job);
            agents.push_back(
                start_run(node(number, "2", rendezvous.endpoint()) +
                          Words{"--rdzv-id=" + id, probe_program(), "store", "mark=" + id}));
        }
    }
    for (const auto& agent : agents) {
        EXPECT_EQ(agent->wait(), 0) << agent->output();
    }
    for (unsigned job = 0; job < kJobs; ++job) {
        const std::string id = "job" + std::to_string(job);
        const auto members = marks(id)[1];
        EXPECT_THAT(members, SizeIs(2)) << id;
        for (const auto& [rank, mark] : members) {
            EXPECT_EQ(mark.at("TORCHELASTIC_RUN_ID"), id);
            EXPECT_EQ(mark.at("WORLD_SIZE"), "2");
        }
    }
}

TEST_F(ServeCommand, EachRetryOfAFailedJobIsANewAttempt) {
    const Rendezvous rendezvous;
    for (const std::string code : {"5", "9", "0"}) {
        Program attempt = run(node(1, "1:1", rendezvous.endpoint()) +
                              Words{probe_program(), "mark=up" + code, "exit=" + code});
        EXPECT_THAT(ended(attempt), exits(std::stoi(code), Not(HasSubstr("nothing was run here"))));
        EXPECT_THAT(marks("up" + code), SizeIs(1)) << attempt.output();
    }
}

TEST_F(ServeCommand, NodeWithAnotherCommandWaitsAloudAndItsEndIsNoSuccess) {
    const Rendezvous rendezvous;
    const auto start = [&](unsigned number, const Words& steps) {
        return Program({Words{regroup_program(), "run"} +
                            node(number, "1:2", rendezvous.endpoint()) +
                            Words{"--grow-after=60", "--last-call=60", probe_program()} + steps,
                        {"PROBE_DIR=" + folder()},
                        folder()});
    };
    const Words steps{"mark=up", "await=finish"};
    Program first = start(1, steps);
    Program second = start(2, steps);
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << first.output() << second.output();
    Program spare = start(3, steps);
    Program other = start(4, {"mark=other", "await=finish"});
    EXPECT_TRUE(spare.prints("waiting as a standby of job job, and may never run"))
        << spare.output();
    EXPECT_TRUE(other.prints("which runs another command than this node")) << other.output();
    release("finish");
    EXPECT_EQ(first.wait(), 0) << first.output();
    EXPECT_EQ(second.wait(), 0) << second.output();
    EXPECT_EQ(spare.wait(), 3) << spare.output();  // Without --standbys.
    EXPECT_THAT(spare.output(), HasSubstr("nothing was run here"));
    EXPECT_THAT(ended(other), exits(3, "nothing was run here"));
    EXPECT_THAT(marks("other"), IsEmpty());
}

TEST_F(ServeCommand, SigtermEndsTheDaemonAndItTellsTheAgents) {
    Rendezvous rendezvous;
    Program first = run_probe(node(1, "2", rendezvous.endpoint()), {"mark=up", "hold"});
    Program second = run_probe(node(2, "2", rendezvous.endpoint()), {"mark=up", "hold"});
    Program waiting =
        run_probe(node(3, "2", rendezvous.endpoint()) + Words{"--rdzv-id=waiting"}, {"hold"});
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << first.output() << second.output();
    ASSERT_TRUE(waiting.prints("waiting: ")) << waiting.output();

    rendezvous.program().signal(SIGTERM);
    EXPECT_EQ(rendezvous.program().wait(), 0) << rendezvous.program().output();
    EXPECT_THAT(rendezvous.program().output(), HasSubstr("SIGTERM"));
    for (Program* agent : {&first, &second, &waiting}) {
        EXPECT_EQ(agent->wait(), 1) << agent->output();
        EXPECT_THAT(lines_of(agent->output()).back(), saying("stopped by the daemon", "SIGTERM"));
        EXPECT_THAT(agent->family(), IsEmpty());
    }
}

TEST_F(ServeCommand, StoreDialectMustBeKnown) {
    Program wrong({{regroup_program(), "serve", "--store-dialect=2.2"}, {}, {}});
    EXPECT_THAT(ended(wrong), exits(2, "--store-dialect must be 1.13 or 2.1, not '2.2'"));
    Program right(
        {{regroup_program(), "serve", "--store-dialect=2.1", "--listen=127.0.0.1:0"}, {}, {}});
    EXPECT_TRUE(right.prints("listening on 127.0.0.1:")) << right.output();
}

TEST_F(ServeCommand, TextOfAPeerMakesNoLineOfTheLogAndControlsNoTerminal) {
    Rendezvous rendezvous;
    const Connection peer(rendezvous.port());
    peer.send(
        frame(R"({"type":"join","protocol":1,"job":"\u202enightly\u009b2J","node":"n",)"
              R"("nodes_min":1,"nodes_max":1,"name":"a\u200b","round":0,"state":"stopped"})"));
    peer.send(
        frame(R"({"type":"leave","reason":"x\nregroup serve: job b has succeeded\u001b[8m"})"));
    ASSERT_TRUE(rendezvous.program().prints("job \\u202enightly\\u009b2J: "))
        << rendezvous.program().output();
    const std::string status = "--endpoint=" + rendezvous.endpoint();
    Program table({{regroup_program(), "status", status}, {}, {}});
    Program json({{regroup_program(), "status", "--json", status}, {}, {}});
    EXPECT_EQ(table.wait(), 0);
    EXPECT_EQ(json.wait(), 0);
    for (const std::string& output :
         {rendezvous.program().output(), table.output(), json.output()}) {
        for (const char* raw : {"\x1b", "\u202e", "\u009b", "\u200b", "\nregroup serve: job b"}) {
            EXPECT_THAT(output, Not(HasSubstr(raw)));
        }
    }
    EXPECT_THAT(table.output(), HasSubstr("job \\u202enightly\\u009b2J: "));
    EXPECT_THAT(json.output(), HasSubstr(R"("job":"\u202enightly\u009b2J")"));
}

TEST_F(ServeCommand, ReaderOfTheLogThatIsStuckBlocksNoJob) {
    constexpr int kStrangers = 2000;  // Each costs a line; a pipe takes 64 KiB.
    const std::string pipe = folder() + "/log";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ASSERT_GE(reader, 0);
    const std::uint16_t port = unused_port();
    const std::string endpoint = "127.0.0.1:" + std::to_string(port);
    Program daemon(
        {{"/bin/sh", "-c",
          "exec " + regroup_program() + " serve --state=none --listen=" + endpoint + " 2>" + pipe},
         {},
         folder()});
    const auto status = [&] {
        Program asked({{regroup_program(), "status", "--endpoint=" + endpoint}, {}, {}});
        return asked.wait() == 0;
    };
    ASSERT_TRUE(status());
    for (int i = 0; i < kStrangers; ++i) {
        const Connection stranger(port);
        stranger.send(frame(R"({"type":"a word that no version of the protocol has"})"));
    }
    EXPECT_TRUE(status());
    Program job = run_probe(node(1, "1", endpoint), {"mark=up"});
    EXPECT_EQ(job.wait(), 0) << job.output();
    ::close(reader);
}

TEST_F(ServeCommand, StoreOfTorchrunLaunchersIsServedOnlyWithItsFlag) {
    const std::string key_count("\0\xCE\xF7\x85\x3C\x07", 6);  // A greeting, and NUM_KEYS.
    Rendezvous usual;
    Connection refused(usual.port());
    refused.send(key_count);
    EXPECT_TRUE(usual.program().prints("refused a store client at 127.0.0.1:"));
    EXPECT_TRUE(usual.program().prints("--serve-torchrun"));

    Rendezvous serving({"--listen=127.0.0.1:0", "--serve-torchrun"});
    Connection served(serving.port());
    served.send(key_count);
    EXPECT_EQ(served.receive(8), std::string(8, '\0'));
}

/// The first line of the answer to an HTTP request for the jobs.
std::string http_status(std::uint16_t port, const std::string& host) {
    const Connection client(port);
    client.send("GET /api/v1/jobs HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    return client.receive(12);
}

TEST_F(ServeCommand, HttpIsServedUnderTheNamesOfTheDaemon) {
    const Rendezvous usual;
    EXPECT_EQ(http_status(usual.port(), "localhost"), "HTTP/1.1 200");
    EXPECT_EQ(http_status(usual.port(), "jobs.example.org"), "HTTP/1.1 421");
    char name[256] = "";
    ::gethostname(name, sizeof name - 1);
    EXPECT_EQ(http_status(usual.port(), name), "HTTP/1.1 200");

    const Rendezvous named(
        {"--listen=127.0.0.1:0", "--http-host=a.example.org", "--http-host=jobs.example.org"});
    EXPECT_EQ(http_status(named.port(), "jobs.example.org:29400"), "HTTP/1.1 200");
    EXPECT_EQ(http_status(named.port(), "A.example.org"), "HTTP/1.1 200");
    EXPECT_EQ(http_status(named.port(), "b.example.org"), "HTTP/1.1 421");
}

TEST_F(ServeCommand, NameWithAPortIsNoHttpHost) {
    Program program({Words{regroup_program(), "serve", "--http-host=node0:80"}, {}, folder()});
    EXPECT_THAT(ended(program), exits(2, "--http-host"));
}

TEST_F(ServeCommand, LauncherWithTheDaemonServesHttpToo) {
    const std::uint16_t port = unused_port();
    Program job = run_probe(
        {"--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:" + std::to_string(port)},
        {"mark=up", "await=finish"});
    ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << job.output();
    EXPECT_EQ(http_status(port, "localhost"), "HTTP/1.1 200");
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
}

TEST_F(ServeCommand, GarbageOnThePortHarmsNobody) {
    Rendezvous rendezvous;
    Program first = run_probe(node(1, "2", rendezvous.endpoint()), {"mark=up", "await=finish"});
    std::mt19937 random(20);
    std::string noise(100000, '\0');
    for (char& byte : noise) {
        byte = static_cast<char>(random());
    }
    std::string nested(60000, '[');
    const Words greetings{
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        noise,
        "\x7F\xFF\xFF\xFF more than any frame may have",
        frame("no json"),
        frame(nested),
        frame("{}"),
        frame(R"({"type":"join"})"),
        frame(R"({"type":"report","report":{"round":1,"state":"running"}})"),
        frame(R"({"type":"leave","reason":"none"})"),
        std::string("\0\0\1", 3),  // Less than a header, and then nothing.
        std::string("\0\0\1\0{", 5),
        "\x16\x03\x01\x02",  // The beginning of TLS.
        std::string("\0\xCE\0\0", 4),
    };
    std::vector<std::unique_ptr<Connection>> connections;
    const auto babble = [&] {
        for (const std::string& greeting : greetings) {
            connections.push_back(std::make_unique<Connection>(rendezvous.port()));
            connections.back()->send(greeting);
        }
    };
    babble();
    Program second = run_probe(node(2, "2", rendezvous.endpoint()), {"mark=up", "await=finish"});
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << first.output() << second.output();
    babble();
    connections.clear();
    babble();
    release("finish");
    EXPECT_EQ(first.wait(), 0) << first.output();
    EXPECT_EQ(second.wait(), 0) << second.output();
    EXPECT_THAT(marks("up"), SizeIs(1)) << "a round was lost";
    EXPECT_THAT(first.output(), Not(HasSubstr("lost the connection")));
    EXPECT_TRUE(rendezvous.program().running()) << rendezvous.program().output();
}

}  // namespace
}  // namespace regroup::testing
