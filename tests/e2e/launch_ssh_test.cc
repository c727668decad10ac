// SPDX-License-Identifier: Apache-2.0
//
// Jobs that `regroup launch-ssh` starts through a real sshd.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <set>

#include "tests/e2e/cable.h"
#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"
#include "tests/support/ssh_server.h"

namespace regroup::testing {
namespace {

constexpr int kSshFailed = 255;
constexpr int kRequeue = 75;

std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
        ++count;
    }
    return count;
}

/// Hosts a, b and c on the loopback, and `gone`, on which no sshd listens.
class LaunchSsh : public EndToEnd {
   protected:
    static void SetUpTestSuite() {
        server_ = std::make_unique<SshServer>(
            REGROUP_SSHD,
            SshServer::Hosts{
                {"a", "127.0.0.2"}, {"b", "127.0.0.3"}, {"c", "127.0.0.4"}, {"gone", "127.0.0.9"}},
            Words{"127.0.0.2", "127.0.0.3", "127.0.0.4"});
        missing_ = server_->prepare();
        if (!missing_) {
            server_->start();
        }
    }
    static void TearDownTestSuite() { server_.reset(); }
    void SetUp() override {
        if (missing_) {
            GTEST_SKIP() << *missing_;
        }
    }

    /// `regroup launch-ssh` with these words behind the flags that all tests need. Its processes
    /// on the hosts have a variable by which processes() finds them.
    [[nodiscard]] std::unique_ptr<Program> launch(const Words& words,
                                                  const std::string& job = "one",
                                                  const Words& environment = {}) const {
        const Words common{regroup_program(),
                           "launch-ssh",
                           "--ssh=" + server_->client(),
                           "--log-dir=/dev/null",
                           "-x",
                           "LAUNCH_SSH_JOB=" + folder() + job,
                           "-x",
                           "PROBE_DIR=" + folder()};
        return std::make_unique<Program>(
            ProgramSpec{common + words, Words{"HOME=" + folder()} + environment, folder()});
    }
    [[nodiscard]] std::vector<pid_t> processes(const std::string& job = "one") const {
        return pids_with_variable("LAUNCH_SSH_JOB", folder() + job);
    }
    [[nodiscard]] bool all_gone(const std::string& job = "one") const {
        return eventually([&] { return processes(job).empty(); });
    }
    /// The agents of these workers, and their wardens.
    [[nodiscard]] static std::set<pid_t> agents_of(const std::vector<pid_t>& workers) {
        std::set<pid_t> agents;
        for (const pid_t worker : workers) {
            const pid_t agent = parent_of(worker);
            // A worker's own child has the variable, too.
            if (std::ranges::find(workers, agent) == workers.end()) {
                agents.insert({agent, parent_of(agent)});
            }
        }
        return agents;
    }
    static pid_t parent_of(pid_t pid) {
        const std::string status = read_file("/proc/" + std::to_string(pid) + "/status");
        const std::size_t at = status.find("\nPPid:");
        return at == std::string::npos ? 0 : std::stoi(status.substr(at + 6));
    }
    /// Waits until `count` ranks have made a file of this name.
    [[nodiscard]] bool are_there(const std::string& name, int count) const {
        return eventually([&] {
            for (int rank = 0; rank < count; ++rank) {
                if (!std::filesystem::exists(folder() + "/" + name + std::to_string(rank))) {
                    return false;
                }
            }
            return true;
        });
    }
    /// A program that starts another one, which sleeps, and then makes a file of this name and the
    /// rank.
    static Words sleeper(const std::string& name = "up") {
        return {"sh", "-c", "sleep 100 & : >" + name + "$RANK; wait"};
    }

    static std::unique_ptr<SshServer> server_;
    static std::optional<std::string> missing_;
};

std::unique_ptr<SshServer> LaunchSsh::server_;
std::optional<std::string> LaunchSsh::missing_;

TEST_F(LaunchSsh, ThreeHostsTrainTogether) {
    std::ofstream text(folder() + "/text");
    for (int i = 0; i < 500; ++i) {
        text << "the rank waits. ";
    }
    text.close();
    const auto job = launch({"--hosts=a:2,b,c", byte_lm_program(), "--data", "text", "--steps",
                             "20", "--log-every", "10", "--hidden", "16"});
    EXPECT_EQ(job->wait(), 0) << job->output() << server_->log();
    EXPECT_THAT(job->output(),
                saying("starts on 3 host(s); a runs the daemon at 127.0.0.2:",
                       "[a] regroup: round 1: ranks 0-1 of 4 on node a",
                       "[b] regroup: round 1: rank 2 of 4 on node b",
                       "[c] regroup: round 1: rank 3 of 4 on node c", "[a:0] step 20/20"));
    EXPECT_TRUE(all_gone());
}

TEST_F(LaunchSsh, LineAboutTheJobIsPrintedOnceAndNotForEachHost) {
    const auto job = launch({"--hosts=a,b,c", "--max-restarts=1", elastic_probe_program()});
    const auto first = await_marks("up", 3);
    ASSERT_THAT(first, SizeIs(3)) << job->output();
    ::kill(pid_of(first.at(2)), SIGKILL);
    ASSERT_THAT(await_marks("up", 3, 2), SizeIs(3)) << job->output();
    release("finish");
    EXPECT_EQ(job->wait(), 0) << job->output();
    const std::string output = job->output();
    for (const char* line :
         {"round 1 begins: 3 nodes joined", "round 2 begins: rank 2 on c was ", "recovered in"}) {
        EXPECT_EQ(count_of(output, line), 1U) << line << "\n" << output;
    }
    EXPECT_EQ(count_of(output, "] regroup: round 2: rank"), 3U) << output;
    EXPECT_EQ(count_of(output, "] regroup: stopping round 1"), 0U) << output;
}

TEST_F(LaunchSsh, ArgumentsAndVariablesArriveIntact) {
    const Words nasty{"a b", "it's",       "\"$HOME\"", "`id`;#", "\\",
                      "",    "two\nlines", "\xff\xfe",  "*"};
    std::string all;
    for (const std::string& word : nasty) {
        all += word + "|";
    }
    const auto job = launch(
        Words{"--hosts=a,b", "-x", "NASTY=" + all, "-x", "NOT_SET_HERE=", "-x", "OWN", "--", "sh",
              "-c",
              "{ printf '%s|' \"$@\"; printf '%s' \"$NASTY$OWN$NCCL_X-$SECRET_X\"; } >got$RANK",
              "sh"} +
            nasty,
        "one", {"OWN=o'w\"n", "NCCL_X=x y", "SECRET_X=s"});
    EXPECT_EQ(job->wait(), 0) << job->output();
    for (const char* rank : {"0", "1"}) {
        EXPECT_EQ(read_file(folder() + "/got" + rank), all + all + "o'w\"nx y-");
    }
}

TEST_F(LaunchSsh, HostThatRefusesIsLeftOutIfEnoughAnswer) {
    const auto job = launch({"--hosts=gone,a,b", "--nnodes=2:3", "true"});
    EXPECT_EQ(job->wait(), 0) << job->output();
    EXPECT_EQ(count_of(job->output(), "gone"), 1U) << job->output();
    EXPECT_THAT(job->output(), saying("host gone cannot take part: ssh: connect to host",
                                      "on 2 host(s); a runs the daemon"));
}

TEST_F(LaunchSsh, HostThatRefusesEndsAJobThatNeedsIt) {
    const auto job = launch({"--hosts=a,gone,b", "sh", "-c", ": >ran"});
    EXPECT_THAT(ended(*job), exits(kSshFailed, "2 of 3 hosts can take part, and the job needs 3"));
    EXPECT_TRUE(all_gone());
    EXPECT_FALSE(std::filesystem::exists(folder() + "/ran"));
}

TEST_F(LaunchSsh, MissingPartsOnAHostAreNamed) {
    auto job = launch({"--hosts=a", "--regroup=/absent/regroup", "true"});
    EXPECT_THAT(ended(*job),
                exits(kSshFailed, "host a cannot take part", "/absent/regroup", "--regroup names"));
    job = launch({"--hosts=a,b", "--workdir=/absent/folder", "true"});
    EXPECT_THAT(ended(*job), exits(kSshFailed, "cannot enter the folder /absent/folder"));
    job = launch({"--hosts=a,b,c", "/absent/train"});
    EXPECT_THAT(ended(*job), exits(kUsage, "cannot run '/absent/train'"));
    EXPECT_TRUE(all_gone());
}

TEST_F(LaunchSsh, ExitCodesAreThoseOfTheFirstFailure) {
    for (const auto& [script, code] : {std::pair("exit 7", 7), std::pair("kill -SEGV $$", 128 + 11),
                                       std::pair("exit 255", 255)}) {
        const auto job = launch(
            {"--hosts=a,b", "sh", "-c", "test $RANK = 0 || " + std::string(script) + "; sleep 60"});
        EXPECT_EQ(job->wait(), code) << job->output();
        EXPECT_EQ(job->ended_by(), 0);
        EXPECT_EQ(count_of(job->output(), "Root Cause"), 1U) << job->output();
        EXPECT_THAT(job->output(), Not(HasSubstr("the connection to host")));
    }
    EXPECT_TRUE(all_gone());
}

TEST_F(LaunchSsh, KilledLauncherLeavesNothingAndTouchesNoOtherJob) {
    const auto other = launch(Words{"--hosts=a,b"} + sleeper("other"), "other");
    const auto job = launch(Words{"--hosts=a,b,c"} + sleeper());
    ASSERT_TRUE(are_there("up", 3) && are_there("other", 2)) << job->output() << other->output();
    const std::vector<pid_t> workers_of_other = processes("other");
    const std::set<pid_t> agents = agents_of(processes());
    ASSERT_THAT(agents, SizeIs(2 * 3));
    job->signal(SIGKILL);
    EXPECT_TRUE(all_gone());
    EXPECT_TRUE(eventually([&] { return std::ranges::none_of(agents, is_alive); }));
    EXPECT_TRUE(other->running()) << other->output();
    EXPECT_THAT(processes("other"), SizeIs(workers_of_other.size()));
    other->signal(SIGTERM);
    EXPECT_EQ(other->wait(), 128 + SIGTERM);
    EXPECT_TRUE(all_gone("other"));
}

TEST_F(LaunchSsh, InterruptEndsAllNodes) {
    const auto job = launch(Words{"--hosts=a,b,c"} + sleeper());
    ASSERT_TRUE(are_there("up", 3)) << job->output();
    job->signal(SIGINT);
    EXPECT_EQ(job->wait(), 128 + SIGINT) << job->output();
    EXPECT_EQ(job->ended_by(), SIGINT);
    EXPECT_THAT(job->output(), Not(HasSubstr("the connection to host")));
    EXPECT_TRUE(all_gone());
}

TEST_F(LaunchSsh, InterruptWhileConnectingEndsAtOnce) {
    // This client never gets an answer.
    std::ofstream(folder() + "/silent") << "#!/bin/sh\n: >connecting0\nexec sleep 100\n";
    std::filesystem::permissions(folder() + "/silent", std::filesystem::perms::owner_all);
    Program silent(
        {{regroup_program(), "launch-ssh", "--ssh=" + folder() + "/silent", "--hosts=a", "true"},
         {},
         folder()});
    ASSERT_TRUE(are_there("connecting", 1));
    silent.signal(SIGINT);
    EXPECT_EQ(silent.wait(), 128 + SIGINT) << silent.output();
    EXPECT_TRUE(eventually([&] { return silent.family().empty(); }));
}

TEST_F(LaunchSsh, ElasticWorkersLeaveWithTheirStateAtASignal) {
    const auto job = launch({"--hosts=a,b", elastic_probe_program(), "beat"});
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder() + "/step"); }))
        << job->output();
    job->signal(SIGTERM);
    EXPECT_EQ(job->wait(), kRequeue) << job->output();
    EXPECT_THAT(last_marks("left"), SizeIs(2));
    EXPECT_TRUE(all_gone());
}

TEST_F(LaunchSsh, SecondSignalKillsWorkersThatIgnoreTheFirst) {
    const auto job = launch({"--hosts=a,b", "--shutdown-timeout=3600", "sh", "-c",
                             "trap : TERM; : >up$RANK; while :; do sleep 1; done"});
    ASSERT_TRUE(are_there("up", 2)) << job->output();
    job->signal(SIGTERM);
    ASSERT_TRUE(job->prints("[a] regroup: SIGTERM") && job->prints("[b] regroup: SIGTERM"))
        << job->output();
    EXPECT_TRUE(job->running());
    // A signal that follows at once counts as the same one.
    EXPECT_TRUE(eventually([&] {
        job->signal(SIGTERM);
        return !job->running();
    })) << job->output();
    EXPECT_TRUE(all_gone());
}

TEST_F(LaunchSsh, LauncherThatWasStoppedStillLearnsTheEnd) {
    // More output than the connection holds, in pieces of which the node drops none.
    const auto job = launch({"--hosts=a", "sh", "-c",
                             "echo $PPID >agent; : >up0; while ! test -e go; do sleep 0.1; done; "
                             "i=0; while test $i -lt 30; do i=$((i+1)); seq 10000; sleep 0.03; "
                             "done"});
    ASSERT_TRUE(are_there("up", 1)) << job->output();
    const pid_t agent = std::stoi(read_file(folder() + "/agent"));
    job->signal(SIGSTOP);
    release("go");
    EXPECT_FALSE(eventually([&] { return !is_alive(agent); }, std::chrono::seconds(6)));
    job->signal(SIGCONT);
    EXPECT_EQ(job->wait(), 0) << job->output().substr(0, 2000);
    EXPECT_THAT(job->output(), Not(HasSubstr("the connection to host")));
}

TEST_F(LaunchSsh, JobGoesOnWithoutAHostWhoseConnectionBreaks) {
    const auto job = launch({"--hosts=a,b", "--nnodes=1:2", "--max-node-losses=1",
                             "--max-restarts=1", elastic_probe_program()});
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << job->output();
    // The clients are in the order of the list.
    const std::vector<pid_t> clients = children_of(job->pid());
    ASSERT_THAT(clients, SizeIs(2));
    ::kill(clients.back(), SIGKILL);
    ASSERT_TRUE(job->prints("the connection to host b ended before its node")) << job->output();
    ASSERT_THAT(await_marks("up", 1, 2), SizeIs(1)) << job->output();
    release("finish");
    EXPECT_EQ(job->wait(), 0) << job->output();
    EXPECT_TRUE(all_gone());
}

TEST_F(LaunchSsh, HostThatIsSilentAtTheEndIsNotWaitedForWithoutLimit) {
    const auto job = launch(
        {"--hosts=a,b", "--shutdown-timeout=1", "--prepare-timeout=1", elastic_probe_program()});
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << job->output();
    const std::vector<pid_t> clients = children_of(job->pid());
    ASSERT_THAT(clients, SizeIs(2));
    ::kill(clients.back(), SIGSTOP);  // It cannot pass on what its node says.
    release("finish");
    EXPECT_EQ(job->wait(), 0) << job->output();
    EXPECT_TRUE(all_gone());
}

TEST_F(LaunchSsh, JobThatNeedsAHostEndsWhenItsConnectionBreaks) {
    const auto job = launch(Words{"--hosts=a,b"} + sleeper());
    ASSERT_TRUE(are_there("up", 2)) << job->output();
    const std::vector<pid_t> clients = children_of(job->pid());
    ASSERT_THAT(clients, SizeIs(2));
    ::kill(clients.back(), SIGKILL);
    EXPECT_THAT(ended(*job), exits(128 + SIGTERM, "the job cannot go on without host b"));
    EXPECT_TRUE(all_gone());
}

TEST_F(LaunchSsh, LinesOfAllHostsStayWhole) {
    const auto job = launch({"--hosts=a:2,b:2,c:2", "sh", "-c",
                             "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo line $i "
                             "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx end; done"});
    EXPECT_EQ(job->wait(), 0) << job->output();
    const std::regex whole("\\[[abc]:[0-5]\\] line [0-9]+ x{49} end");
    std::size_t count = 0;
    for (const std::string& line : lines_of(job->output())) {
        count += std::regex_match(line, whole) ? 1U : 0U;
        EXPECT_TRUE(line.find("xxx") == line.npos || std::regex_match(line, whole)) << line;
    }
    EXPECT_EQ(count, 6U * 300U);
}

TEST_F(LaunchSsh, HostFileGivesHostsAndWorkers) {
    std::ofstream(folder() + "/hosts") << "# two\na slots=2\nb slots=1 max_slots=2\n";
    auto job = launch({"--hostfile=hosts", "sh", "-c", "echo $LOCAL_WORLD_SIZE >n$RANK"});
    EXPECT_EQ(job->wait(), 0) << job->output();
    EXPECT_EQ(
        read_file(folder() + "/n0") + read_file(folder() + "/n1") + read_file(folder() + "/n2"),
        "2\n2\n1\n");
    job = launch({"--hostfile=absent", "true"});
    EXPECT_THAT(ended(*job), exits(kUsage, "--hostfile: cannot read absent: No such file"));
}

/// Two hosts with networks of their own. No file with a token is anywhere.
class LaunchSshTrust : public EndToEnd {
   protected:
    void SetUp() override {
        auto missing = cable_.lay();
        missing = missing ? missing : server_.prepare();
        if (missing) {
            GTEST_SKIP() << *missing;
        }
        for (const std::size_t index : {0U, 1U}) {
            server_.start(index, [&](const Words& command) {
                return cable_.inside(index, index == 0 ? "node-a" : "node-b", command);
            });
        }
    }
    [[nodiscard]] std::unique_ptr<Program> on_first(const Words& command) const {
        return std::make_unique<Program>(
            ProgramSpec{cable_.inside(0, "login", command), {"HOME=" + folder()}, folder()});
    }

    Cable cable_;
    SshServer server_{
        REGROUP_SSHD, {{"a", "10.77.0.1"}, {"b", "10.77.0.2"}}, {"10.77.0.1", "10.77.0.2"}};
};

TEST_F(LaunchSshTrust, JobHasATokenThatNoFileHolds) {
    const auto job =
        on_first({regroup_program(), "launch-ssh", "--ssh=" + server_.client(), "--hosts=a,b",
                  "--log-dir=/dev/null", "-x", "PROBE_DIR=" + folder(), elastic_probe_program()});
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << job->output() << server_.log();
    std::smatch match;
    const std::string said = job->output();
    ASSERT_TRUE(std::regex_search(said, match, std::regex("the daemon at (10\\.77\\.0\\.1:\\d+)")))
        << said;
    Program stranger({cable_.inside(1, "node-b",
                                    {regroup_program(), "status", "--endpoint=" + match[1].str(),
                                     "--timeout=2"}),
                      {"HOME=" + folder()},
                      folder()});
    EXPECT_NE(stranger.wait(), 0) << stranger.output();
    for (const auto& [round, mark] : marks("up")) {
        (void)round;
        for (const auto& [rank, facts] : mark) {
            (void)rank;
            const std::string environment =
                read_file("/proc/" + std::to_string(pid_of(facts)) + "/environ");
            EXPECT_THAT(environment, Not(HasSubstr("regroup1.")));
        }
    }
    release("finish");
    EXPECT_EQ(job->wait(), 0) << job->output();
}

TEST_F(LaunchSshTrust, QuietNodeNoticesThatItsLauncherIsCutOff) {
    // A connection on which nobody confirms anything ends after a second instead of 15 minutes.
    Program limit(
        {cable_.inside(1, "node-b", {"sh", "-c", "echo 2 >/proc/sys/net/ipv4/tcp_retries2"}),
         {},
         folder()});
    ASSERT_EQ(limit.wait(), 0) << limit.output();
    const auto job = on_first({regroup_program(), "launch-ssh", "--ssh=" + server_.client(),
                               "--hosts=b", "--log-dir=/dev/null", "-x", "CUT_OFF=" + folder(),
                               "sh", "-c", ": >up; exec sleep 100"});
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder() + "/up"); }))
        << job->output();
    const auto processes = [&] { return pids_with_variable("CUT_OFF", folder()); };
    EXPECT_THAT(processes(), Not(SizeIs(0)));
    cable_.pull();
    EXPECT_TRUE(eventually([&] { return processes().empty(); }));
}

}  // namespace
}  // namespace regroup::testing
