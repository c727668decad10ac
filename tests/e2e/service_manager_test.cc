// SPDX-License-Identifier: Apache-2.0
//
// The daemon and the agent as services. The test plays systemd: it has the socket that they notify,
// and holds the port on which the daemon listens.
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

/// A socket as the one in NOTIFY_SOCKET, with the address "/PATH" or "@NAME".
class Manager {
   public:
    explicit Manager(std::string address)
        : address_(std::move(address)), fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
        sockaddr_un where{};
        where.sun_family = AF_UNIX;
        std::copy(address_.begin(), address_.end(), where.sun_path);
        if (address_.front() == '@') {
            where.sun_path[0] = '\0';
        }
        const auto bytes =
            static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
        EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&where), bytes), 0);
        const int on = 1;
        ::setsockopt(fd_, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    }
    ~Manager() { ::close(fd_); }
    Manager(const Manager&) = delete;
    Manager& operator=(const Manager&) = delete;

    [[nodiscard]] std::string variable() const { return "NOTIFY_SOCKET=" + address_; }
    /// Waits until `count` messages with that line have come. False after 20 s.
    bool gets(const std::string& line, std::size_t count = 1) {
        return eventually(
            [&] {
                receive();
                return count_of(line) >= count;
            },
            std::chrono::seconds(20));
    }
    /// How many messages have come with a line that begins so.
    [[nodiscard]] std::size_t count_of(const std::string& line) {
        receive();
        return static_cast<std::size_t>(std::ranges::count_if(
            lines_, [&](const std::string& each) { return each.starts_with(line); }));
    }
    [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }
    [[nodiscard]] const std::vector<pid_t>& senders() const { return senders_; }

   private:
    void receive() {
        std::array<char, 4096> text{};
        alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control{};
        for (;;) {
            iovec part{text.data(), text.size()};
            msghdr message{};
            message.msg_iov = &part;
            message.msg_iovlen = 1;
            message.msg_control = control.data();
            message.msg_controllen = control.size();
            const ssize_t bytes = ::recvmsg(fd_, &message, MSG_DONTWAIT);
            if (bytes < 0) {
                return;
            }
            ucred sender{};
            std::memcpy(&sender, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof sender);
            senders_.push_back(sender.pid);
            for (const std::string& line :
                 lines_of(std::string(text.data(), static_cast<std::size_t>(bytes)))) {
                lines_.push_back(line);
            }
        }
    }

    const std::string address_;
    const int fd_;
    std::vector<std::string> lines_;
    std::vector<pid_t> senders_;
};

/// `command` with these descriptors as 3 and up, as systemd starts a service.
std::unique_ptr<Program> activate(const Words& command, const std::vector<int>& sockets,
                                  const std::string& folder, const Words& environment = {}) {
    std::string script =
        "export LISTEN_PID=$$ WATCHDOG_PID=$$ LISTEN_FDS=" + std::to_string(sockets.size()) +
        " LISTEN_FDNAMES=port; exec";
    std::vector<int> inherited;
    for (std::size_t i = 0; i < sockets.size(); ++i) {
        inherited.push_back(::fcntl(sockets[i], F_DUPFD, 100));  // Without close-on-exec.
        const std::string number = std::to_string(inherited.back());
        script += " " + std::to_string(3 + i) + "<&" + number + " " + number + "<&-";
    }
    auto program = std::make_unique<Program>(
        ProgramSpec{Words{"/bin/bash", "-c", script + "; exec \"$@\"", "systemd"} + command,
                    environment, folder});
    for (const int fd : inherited) {
        ::close(fd);
    }
    return program;
}

class ServiceManager : public EndToEnd {
   protected:
    [[nodiscard]] Words serve(const Words& flags = {}) const {
        return Words{regroup_program(), "serve", "--state=" + folder() + "/state"} + flags;
    }
    Manager manager_{folder() + "/notify"};
};

TEST_F(ServiceManager, DaemonSaysThatItListensAndThatItEnds) {
    Program daemon({serve({"--listen=127.0.0.1:0"}), {manager_.variable()}, folder()});
    ASSERT_TRUE(manager_.gets("READY=1")) << daemon.output();
    EXPECT_THAT(daemon.output(), HasSubstr("listening on 127.0.0.1:"));
    EXPECT_THAT(manager_.lines(), Contains(AllOf(StartsWith("STATUS=listening on 127.0.0.1:"),
                                                 HasSubstr("0 open jobs"))));
    EXPECT_EQ(manager_.count_of("WATCHDOG"), 0U);
    EXPECT_EQ(manager_.count_of("STOPPING"), 0U);
    daemon.signal(SIGTERM);
    EXPECT_EQ(daemon.wait(), 0) << daemon.output();
    EXPECT_EQ(manager_.count_of("STOPPING=1"), 1U);
    EXPECT_THAT(manager_.lines(), Contains("STATUS=stopping on SIGTERM"));
}

TEST_F(ServiceManager, WatchdogIsAnsweredAtAnAbstractAddressWhileJobsCome) {
    Manager manager("@regroup-test-" + std::to_string(::getpid()));
    const Listener port;
    const auto daemon =
        activate(serve(), {port.fd()}, folder(), {manager.variable(), "WATCHDOG_USEC=100000"});
    ASSERT_TRUE(manager.gets("WATCHDOG=1", 3)) << daemon->output();
    EXPECT_THAT(manager.senders(), Each(daemon->pid()));
    Program job = run_probe(node(1, "1", "127.0.0.1:" + port.port()), {"mark=up", "await=finish"});
    ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << job.output();
    EXPECT_TRUE(manager.gets("STATUS=listening on 127.0.0.1:" + port.port() + "; 1 open job"));
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_TRUE(daemon->stop());
    const std::size_t before = manager.count_of("WATCHDOG=1");
    daemon->signal(SIGCONT);
    EXPECT_TRUE(manager.gets("WATCHDOG=1", before + 1));
}

TEST_F(ServiceManager, WatchdogOfAnotherProcessIsNotAnswered) {
    Program daemon({serve({"--listen=127.0.0.1:0"}),
                    {manager_.variable(), "WATCHDOG_USEC=2000", "WATCHDOG_PID=1"},
                    folder()});
    ASSERT_TRUE(manager_.gets("READY=1")) << daemon.output();
    daemon.signal(SIGTERM);
    EXPECT_EQ(daemon.wait(), 0);
    EXPECT_EQ(manager_.count_of("WATCHDOG"), 0U);
}

TEST_F(ServiceManager, DaemonServesWhereNobodyCanBeNotified) {
    for (const char* address : {"/nowhere/at/all", "name", "vsock:2:1"}) {
        Program daemon(
            {serve({"--listen=127.0.0.1:0"}), {std::string("NOTIFY_SOCKET=") + address}, folder()});
        EXPECT_TRUE(daemon.prints("systemd is not told that this daemon is ready: "))
            << daemon.output();
        EXPECT_THAT(daemon.output(), AllOf(HasSubstr("NOTIFY_SOCKET"), HasSubstr(address)));
        daemon.signal(SIGTERM);
        EXPECT_EQ(daemon.wait(), 0) << daemon.output();
    }
}

TEST_F(ServiceManager, ManagerThatReadsNothingHoldsUpNoJob) {
    // The kernel keeps a few messages for it; the watchdog would send a thousand each second.
    Program daemon(
        {serve({"--listen=127.0.0.1:0"}), {manager_.variable(), "WATCHDOG_USEC=2000"}, folder()});
    ASSERT_TRUE(daemon.prints("listening on ")) << daemon.output();
    const std::string line = lines_of(daemon.output()).back();
    Program job = run_probe(node(1, "1", line.substr(line.rfind(' ') + 1)), {"mark=up"});
    EXPECT_EQ(job.wait(std::chrono::seconds(10)), 0) << job.output();
    EXPECT_TRUE(manager_.gets("READY=1"));
    EXPECT_TRUE(manager_.gets("WATCHDOG=1", 20)) << "it is answered again";
}

TEST_F(ServiceManager, AgentSpeaksToSystemdAndItsWorkersCannot) {
    Program agent = run_probe({"--standalone", "--rdzv-id=nightly"}, {"mark=up", "await=finish"},
                              {manager_.variable(), "WATCHDOG_USEC=100000"});
    ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << agent.output();
    EXPECT_TRUE(manager_.gets("READY=1")) << agent.output();
    EXPECT_TRUE(manager_.gets("WATCHDOG=1", 2)) << agent.output();
    EXPECT_TRUE(manager_.gets("STATUS=job nightly: node ")) << agent.output();
    const Mark worker = mark("up", 1);
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) {
        EXPECT_EQ(worker.count(name), 0U) << name;
    }
    EXPECT_EQ(manager_.count_of("STOPPING"), 0U);
    release("finish");
    EXPECT_EQ(agent.wait(), 0) << agent.output();
    EXPECT_EQ(manager_.count_of("STOPPING=1"), 1U);
}

/// Connections that wait at a socket until they are accepted.
std::size_t waiting_at(int fd) {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes), 0);
    return info.tcpi_unacked;
}

TEST_F(ServiceManager, AgentsWaitAtTheKeptPortWhileTheDaemonIsKilledAndStartedAgain) {
    const Listener port;
    const std::string endpoint = "127.0.0.1:" + port.port();
    const auto start = [&](unsigned number) {
        return std::make_unique<Program>(ProgramSpec{Words{regroup_program(), "run"} +
                                                         node(number, "2:2", endpoint) +
                                                         Words{elastic_probe_program(), "beat"},
                                                     {"PROBE_DIR=" + folder()},
                                                     folder()});
    };
    // Agents that come before the daemon wait as well.
    const auto first = start(1);
    ASSERT_TRUE(eventually([&] { return waiting_at(port.fd()) == 1; })) << first->output();
    auto daemon = activate(serve(), {port.fd()}, folder());
    ASSERT_TRUE(daemon->prints("listening on " + endpoint)) << daemon->output();
    const auto second = start(2);
    const auto workers = await_marks("up", 2);
    ASSERT_THAT(workers, SizeIs(2)) << first->output() << second->output();

    daemon->signal(SIGKILL);
    daemon->wait();
    ASSERT_TRUE(eventually([&] { return waiting_at(port.fd()) == 2; }))
        << first->output() << second->output();
    daemon = activate(serve(), {port.fd()}, folder());
    ASSERT_TRUE(daemon->prints("job job: taken up again from the journal, round 1"))
        << daemon->output();
    for (Program* agent : {first.get(), second.get()}) {
        EXPECT_TRUE(agent->prints("the daemon is back at " + endpoint)) << agent->output();
        EXPECT_THAT(agent->output(), Not(HasSubstr("refused"))) << agent->output();
    }
    release("finish");
    EXPECT_EQ(first->wait(), 0) << first->output();
    EXPECT_EQ(second->wait(), 0) << second->output();
    EXPECT_THAT(marks("up"), SizeIs(1)) << "a round was lost with the daemon";
    for (const auto& [rank, mark] : last_marks("done")) {
        EXPECT_EQ(pid_of(mark), pid_of(workers.at(rank))) << "rank " << rank;
    }
}

TEST_F(ServiceManager, PassedSocketsThatCannotServeAreNamedWithTheLineToChange) {
    const Listener one;
    const Listener two;
    const int packets = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int silent = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int local = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto says = [&](const Words& flags, const std::vector<int>& sockets,
                          const std::string& text) {
        const auto daemon = activate(serve(flags), sockets, folder());
        EXPECT_THAT(ended(*daemon), exits(2, text));
    };
    says({}, {one.fd(), two.fd()}, "2 sockets, and the daemon listens on one");
    says({}, {packets}, "the socket unit needs ListenStream=");
    says({}, {local}, "the socket unit needs ListenStream=");
    says({}, {silent}, "the socket unit needs Accept=no");
    says({"--listen=:29400"}, {one.fd()},
         "--listen :29400 and a socket of systemd, 127.0.0.1:" + one.port());
    for (const int fd : {packets, silent, local}) {
        ::close(fd);
    }
}

TEST_F(ServiceManager, SocketsForAnotherProcessAreLeftAlone) {
    Program daemon({serve({"--listen=127.0.0.1:0"}), {"LISTEN_PID=1", "LISTEN_FDS=2"}, folder()});
    EXPECT_TRUE(daemon.prints("listening on 127.0.0.1:")) << daemon.output();
}

TEST_F(ServiceManager, SocketOfAllAddressesTakesAToken) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::listen(fd, 1), 0);  // The kernel chooses a port of all addresses.
    const auto daemon = activate(serve(), {fd}, folder(), {"HOME=" + folder()});
    EXPECT_THAT(ended(*daemon), exits(2, "the socket of systemd, *:", "regroup token --generate"));
    ::close(fd);
}

}  // namespace
}  // namespace regroup::testing
