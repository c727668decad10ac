// SPDX-License-Identifier: Apache-2.0
//
// Endpoints where no daemon answers: a free port, another program, or a daemon that starts late.
#include <arpa/inet.h>
#include <atomic>
#include <csignal>
#include <netinet/in.h>
#include <poll.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

class RunEndpoint : public EndToEnd {
   protected:
    // A node that is not to host the daemon itself.
    static Words second_node(const std::string& port) {
        return {"--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1", "--master-port=" + port};
    }
};

/// A server that is no rendezvous daemon. It sends `greeting` to every client, and closes the
/// connection if `closes`.
class Stranger {
   public:
    Stranger(std::string greeting, bool closes)
        : greeting_(std::move(greeting)), closes_(closes), thread_([this] { serve(); }) {}
    ~Stranger() {
        over_ = true;
        thread_.join();
        for (const int connection : connections_) {
            ::close(connection);
        }
    }
    Stranger(const Stranger&) = delete;
    Stranger& operator=(const Stranger&) = delete;

    [[nodiscard]] std::string endpoint() const { return "127.0.0.1:" + listener_.port(); }

   private:
    void serve() {
        while (!over_) {
            pollfd readable{listener_.fd(), POLLIN, 0};
            if (::poll(&readable, 1, 20) <= 0) {
                continue;
            }
            const int connection = ::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC);
            ::send(connection, greeting_.data(), greeting_.size(), MSG_NOSIGNAL);
            if (closes_) {
                ::close(connection);
            } else {
                connections_.push_back(connection);
            }
        }
    }

    std::string greeting_;
    bool closes_;
    Listener listener_;
    std::vector<int> connections_;
    std::atomic<bool> over_ = false;
    std::thread thread_;  // Declared last, since it uses the other members.
};

TEST_F(RunEndpoint, AgentRetriesAnUnansweredEndpointUntilTheJoinTimeout) {
    const std::string port = std::to_string(unused_port());
    Program job = run_probe(second_node(port) + Words{"--join-timeout=3"}, {"mark=up"});
    ASSERT_TRUE(job.prints("trying again for")) << job.output();
    EXPECT_TRUE(job.running());
    EXPECT_THAT(job.output(), saying("127.0.0.1:" + port, "Connection refused"));
    EXPECT_EQ(job.wait(), 3) << job.output();
    EXPECT_THAT(lines_of(job.output()).back(), saying("--join-timeout", "127.0.0.1:" + port));
    EXPECT_THAT(marks("up"), IsEmpty());
}

TEST_F(RunEndpoint, UnresolvableNameIsReported) {
    Program job = run_probe({"--rdzv-backend=c10d", "--rdzv-endpoint=no-such-host.invalid:29400",
                             "--insecure", "--join-timeout=2"},
                            {"mark=up"});
    EXPECT_THAT(ended(job), exits(3, "no-such-host.invalid"));
    EXPECT_THAT(marks("up"), IsEmpty());
}

TEST_F(RunEndpoint, AgentJoinsADaemonThatStartsLate) {
    const std::string port = std::to_string(unused_port());
    Program second = run_probe(second_node(port), {"store"});
    ASSERT_TRUE(second.prints("trying again for")) << second.output();
    Program first = run_probe(
        {"--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", "--master-port=" + port},
        {"store"});
    EXPECT_EQ(first.wait(), 0) << first.output();
    EXPECT_THAT(ended(second), exits(0, ":1] read word of 0\n"));
}

TEST_F(RunEndpoint, RendezvousDaemonIsNotNamedAsAStrangerOnThePort) {
    for (const bool dies : {false, true}) {
        SCOPED_TRACE(dies ? "which has died" : "which is there");
        Rendezvous rendezvous;
        Program job = run_probe({"--rdzv-backend=c10d", "--rdzv-endpoint=" + rendezvous.endpoint(),
                                 "--nnodes=2", "--join-timeout=3"},
                                {"mark=up"});
        ASSERT_TRUE(job.prints("waiting: ")) << job.output();
        if (dies) {
            rendezvous.program().signal(SIGKILL);
        }
        EXPECT_EQ(job.wait(), 3) << job.output();
        EXPECT_THAT(lines_of(job.output()).back(), HasSubstr("--join-timeout"));
        EXPECT_THAT(job.output(), Not(HasSubstr("is taken by")));
    }
}

/// A port of 127.0.0.1 that is in use without a listener: the local end of an outgoing connection.
class UsedPort {
   public:
    UsedPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t bytes = sizeof address;
        EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), bytes), 0);
        EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
        endpoint_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    }
    ~UsedPort() { release(); }
    UsedPort(const UsedPort&) = delete;
    UsedPort& operator=(const UsedPort&) = delete;

    void release() {
        if (fd_ >= 0) {
            ::close(std::exchange(fd_, -1));
        }
    }
    [[nodiscard]] const std::string& endpoint() const { return endpoint_; }

   private:
    int fd_;
    std::string endpoint_;
};

constexpr const char* kHostsLate = "this process starts one";

TEST_F(RunEndpoint, OneLauncherServesAPortThatBecomesFree) {
    UsedPort port;
    Program first = run_probe(node(0, "2", port.endpoint()), {"store"});
    Program second = run_probe(node(1, "2", port.endpoint()), {"store"});
    ASSERT_TRUE(first.prints("trying again for")) << first.output();
    ASSERT_TRUE(second.prints("trying again for")) << second.output();
    port.release();
    EXPECT_EQ(first.wait(), 0) << first.output();
    EXPECT_EQ(second.wait(), 0) << second.output();
    const auto hosts = [](const Program& program) {
        return program.output().find(kHostsLate) != std::string::npos;
    };
    EXPECT_NE(hosts(first), hosts(second)) << first.output() << second.output();
}

TEST_F(RunEndpoint, PortThatStaysInUseIsNamedAtTheJoinTimeout) {
    const UsedPort port;
    Program job = run_probe({"--rdzv-backend=c10d", "--rdzv-endpoint=" + port.endpoint(),
                             "--nnodes=1:2", "--join-timeout=2"},
                            {"mark=up"});
    EXPECT_EQ(job.wait(), 3) << job.output();
    EXPECT_THAT(lines_of(job.output()).back(),
                HasSubstr("no rendezvous was reached within 2.0 s (--join-timeout)"));
    EXPECT_THAT(marks("up"), IsEmpty());
}

TEST_F(RunEndpoint, WaitingNodeServesTheRendezvousOnceItsDaemonIsGone) {
    Rendezvous rendezvous;
    Program first = run_probe(node(0, "2", rendezvous.endpoint()), {"store"});
    ASSERT_TRUE(first.prints("waiting: ")) << first.output();
    rendezvous.program().signal(SIGKILL);
    ASSERT_TRUE(first.prints(kHostsLate)) << first.output();
    Program second = run_probe(node(1, "2", rendezvous.endpoint()), {"store"});
    EXPECT_EQ(first.wait(), 0) << first.output();
    EXPECT_EQ(second.wait(), 0) << second.output();
}

struct Manner {
    std::string name;
    std::string greeting;
    bool closes = false;
};

std::ostream& operator<<(std::ostream& out, const Manner& manner) {
    return out << manner.name;
}

class RunEndpointOfAStranger : public RunEndpoint, public ::testing::WithParamInterface<Manner> {};

TEST_P(RunEndpointOfAStranger, AgentGivesUpAtTheJoinTimeoutAndNamesTheStranger) {
    const Stranger stranger(GetParam().greeting, GetParam().closes);
    Program job = run_probe({"--rdzv-backend=c10d", "--rdzv-endpoint=" + stranger.endpoint(),
                             "--heartbeat-timeout=0.5", "--join-timeout=3"},
                            {"mark=up"});
    EXPECT_EQ(job.wait(), 3) << job.output();
    // The stranger is also named before the end.
    const Words lines = lines_of(job.output());
    ASSERT_GE(lines.size(), 2U) << job.output();
    EXPECT_THAT(lines.front(), HasSubstr(stranger.endpoint()));
    EXPECT_THAT(lines.back(), HasSubstr(stranger.endpoint()));
    // The process that holds a port of this host is known, and the message names it.
    EXPECT_THAT(lines.back(), HasSubstr("pid " + std::to_string(::getpid())));
    EXPECT_THAT(marks("up"), IsEmpty());
}

// The verdict of a daemon, as a frame.
std::string verdict_frame(const std::string& outcome) {
    const std::string payload =
        R"({"type":"closed","exit_code":0,"reason":"x","author":"x","outcome":")" + outcome + "\"}";
    return std::string("\0\0\0", 3) + static_cast<char>(payload.size()) + payload;
}

TEST_F(RunEndpoint, SecondLauncherOfAJobOfOneNodeIsRefusedWithTheWaysOut) {
    const std::string endpoint = "127.0.0.1:" + std::to_string(unused_port());
    const Words flags{"--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint};
    Program first = run_probe(flags, {"mark=first", "await=finish"});
    ASSERT_THAT(await_marks("first", 1), SizeIs(1)) << first.output();
    for (const Words& steps : {Words{"mark=second"}, Words{"mark=first", "await=finish"}}) {
        Program second = run_probe(flags + Words{"--nproc-per-node=2"}, steps);
        EXPECT_THAT(ended(second), exits(2, "--rdzv-id", "--standalone", "is taken by pid "));
    }
    EXPECT_THAT(marks("second"), IsEmpty());
    Program out = run_probe(flags + Words{"--rdzv-id=another"}, {"mark=second"});
    EXPECT_EQ(out.wait(), 0) << out.output();
    EXPECT_THAT(marks("second"), SizeIs(1)) << "the way out works";
    release("finish");
    EXPECT_EQ(first.wait(), 0) << first.output();
}

TEST_F(RunEndpoint, VerdictOfAFailedJobIsNoSuccessWhateverItsCode) {
    const Stranger stranger(verdict_frame("failed"), false);
    Program job = run_probe(
        {"--rdzv-backend=c10d", "--rdzv-endpoint=" + stranger.endpoint(), "--join-timeout=3"},
        {"mark=up"});
    EXPECT_EQ(job.wait(), 1) << job.output();
}

TEST_F(RunEndpoint, VerdictOfAnotherUserIsNoVerdict) {
    constexpr uid_t kOther = 12345;
    ::setfsuid(kOther);  // The owner of new sockets.
    const bool is_other = ::setfsuid(::geteuid()) == kOther;
    if (!is_other) {
        GTEST_SKIP() << "only root can listen as another user";
    }
    ::setfsuid(kOther);
    const Stranger stranger(verdict_frame("succeeded"), false);
    ::setfsuid(::geteuid());
    Program job = run_probe(
        {"--rdzv-backend=c10d", "--rdzv-endpoint=" + stranger.endpoint(), "--join-timeout=2"},
        {"mark=up"});
    EXPECT_THAT(ended(job),
                exits(3, "user 12345 serves that port", Not(HasSubstr("nothing was run here"))));
    EXPECT_THAT(marks("up"), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Manners, RunEndpointOfAStranger,
    ::testing::Values(Manner{"HangsUp", "", true}, Manner{"IsSilent", "", false},
                      Manner{"SpeaksHttp", "HTTP/1.1 400 Bad Request\r\n\r\n", true},
                      Manner{"TalksOn", std::string(100000, 'x'), false}),
    [](const auto& named) { return named.param.name; });

}  // namespace
}  // namespace regroup::testing
