// SPDX-License-Identifier: Apache-2.0
//
// The units that are installed, under a real systemd that is process 1 of its own namespaces.
// Skipped where that cannot be.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

namespace fs = std::filesystem;

class SystemdUnits : public EndToEnd {
   public:
    ~SystemdUnits() override {
        if (!booted_) {
            return;
        }
        for (const pid_t pid : children_of(booted_->pid())) {
            ::kill(pid, SIGKILL);
        }
        booted_->wait();
        remove_group(*booted_);
    }

   protected:
    SystemdUnits() {
        ::chmod(folder().c_str(), 0777);  // For the users of the services.
        for (const auto& entry : fs::directory_iterator(REGROUP_UNITS)) {
            if (entry.path().filename().string().starts_with("regroup-")) {
                fs::copy(entry.path(), fs::path(units()) / entry.path().filename());
            }
        }
    }

    [[nodiscard]] std::string units() const {
        fs::create_directory(folder() + "/units");
        return folder() + "/units";
    }
    /// Adds lines to a unit, as `systemctl edit` does.
    void edit(const std::string& unit, const std::string& lines) const {
        fs::create_directory(units() + "/" + unit + ".d");
        std::ofstream(units() + "/" + unit + ".d/test.conf") << lines;
    }
    /// Empty, or why no systemd can be booted here.
    [[nodiscard]] std::string boot() {
        if (IS_SANITIZED) {
            return "a sanitizer needs more than the units allow";
        }
        auto booted =
            std::make_unique<Program>(ProgramSpec{{"/bin/sh", SYSTEMD_BOOT, folder(), units(),
                                                   regroup_program(), elastic_probe_program()},
                                                  {},
                                                  folder()});
        const auto answers = [&] {
            const auto inner = children_of(booted->pid());
            init_ = inner.empty() ? 0 : inner.front();
            const std::string root = "/proc/" + std::to_string(init_) + "/root";
            // This machine may have a systemd of its own; the units are only inside.
            return init_ > 0 && fs::exists(root + "/run/units/boot.target") &&
                   fs::exists(root + "/run/systemd/private");
        };
        EXPECT_TRUE(eventually([&] { return answers() || !booted->running(); }));
        if (!booted->running()) {
            EXPECT_EQ(booted->wait(), 77) << booted->output();
            remove_group(*booted);
            return booted->output();
        }
        booted_ = std::move(booted);
        return "";
    }
    /// Runs a command inside. Its output; the test fails if the command does.
    std::string inside(const Words& command) const {
        Program program({Words{"/usr/bin/nsenter", "-t", std::to_string(init_), "-a",
                               "/usr/bin/env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin"} +
                             command,
                         {},
                         folder()});
        EXPECT_EQ(program.wait(), 0) << program.output() << read_file(folder() + "/daemon.log")
                                     << read_file(folder() + "/agent.log");
        return program.output();
    }
    /// The token of the cluster for the daemon, and the one of the job for its agent.
    void make_tokens() const {
        inside({"mkdir", "/etc/regroup/jobs"});
        inside({"regroup", "token", "--generate", "--token-file=/etc/regroup/token"});
        inside({"regroup", "token", "--token-file=/etc/regroup/token", "--role=node",
                "--job=nightly", "--out=/etc/regroup/jobs/nightly.token"});
    }
    [[nodiscard]] std::string property(const std::string& unit, const std::string& name) const {
        const std::string text = inside({"systemctl", "show", "--value", "-p", name, unit});
        return text.substr(0, text.find('\n'));
    }
    [[nodiscard]] std::string log_of(const std::string& who) const {
        return read_file(folder() + "/" + who + ".log");
    }
    [[nodiscard]] bool agent_says(const std::string& text, std::size_t times = 1) const {
        return eventually([&] {
            const std::string log = log_of("agent");
            std::size_t found = 0;
            for (std::size_t at = log.find(text); at != log.npos; at = log.find(text, at + 1)) {
                ++found;
            }
            return found >= times;
        });
    }

    /// Removes the control group that the script has made, if it has got so far.
    static void remove_group(const Program& booted) {
        const std::string line = "control group ";
        const std::string output = booted.output();
        if (!output.starts_with(line)) {
            return;
        }
        const std::string group = output.substr(line.size(), output.find('\n') - line.size());
        EXPECT_TRUE(eventually([&] {
            Program removal(
                {{"/usr/bin/find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"},
                 {},
                 {}});
            removal.wait();
            return !fs::exists(group);
        })) << group;
    }

   private:
    std::unique_ptr<Program> booted_;
    pid_t init_ = 0;
};

TEST_F(SystemdUnits, JobGoesOnWhileSystemdStartsADaemonAgainThatWasKilledOrHangs) {
    edit("regroup-serve.service",
         "[Service]\nWatchdogSec=1\nStandardError=append:" + folder() + "/daemon.log\n");
    edit("regroup-agent@.service",
         "[Service]\nUser=daemon\nStandardError=append:" + folder() + "/agent.log\n");
    if (const std::string why = boot(); !why.empty()) {
        GTEST_SKIP() << why;
    }
    make_tokens();
    inside({"systemctl", "start", "regroup-serve.service"});
    EXPECT_THAT(property("regroup-serve.service", "StatusText"),
                HasSubstr("listening on *:29400; 0 open jobs"));
    EXPECT_THAT(log_of("daemon"), HasSubstr("jobs are kept in /var/lib/regroup"));

    inside({"sh", "-c",
            "echo 'PET_RDZV_ENDPOINT=127.0.0.1:29400\nPET_NPROC_PER_NODE=2\nPROBE_DIR=" + folder() +
                "\nCOMMAND=elastic_probe beat' >/etc/regroup/jobs/nightly.env"});
    inside({"systemctl", "start", "regroup-agent@nightly.service"});
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << log_of("agent") << log_of("daemon");
    EXPECT_THAT(inside({"regroup", "status"}), HasSubstr("job nightly: training, round 1"));
    // All that a worker finds there opens this job only.
    EXPECT_EQ(inside({"ls", "/run/credentials/regroup-agent@nightly.service"}), "token\n");
    inside({"cmp", "/etc/regroup/jobs/nightly.token",
            "/run/credentials/regroup-agent@nightly.service/token"});

    inside({"systemctl", "kill", "--signal=KILL", "regroup-serve.service"});
    ASSERT_TRUE(agent_says("the daemon is back at 127.0.0.1:29400")) << log_of("agent");
    inside({"systemctl", "kill", "--signal=STOP", "regroup-serve.service"});
    ASSERT_TRUE(agent_says("the daemon is back at 127.0.0.1:29400", 2)) << log_of("agent");
    EXPECT_EQ(property("regroup-serve.service", "NRestarts"), "2");
    EXPECT_THAT(marks("up"), SizeIs(1)) << "a round was lost with the daemon";
    EXPECT_THAT(log_of("agent"), Not(HasSubstr("refused")));

    inside({"systemctl", "stop", "regroup-agent@nightly.service"});
    EXPECT_THAT(marks("left")[1], SizeIs(2)) << log_of("agent");
    EXPECT_EQ(property("regroup-agent@nightly.service", "Result"), "success");
    inside({"systemctl", "stop", "regroup-serve.socket"});
    EXPECT_EQ(property("regroup-serve.service", "ActiveState"), "inactive");
    EXPECT_EQ(property("regroup-serve.service", "Result"), "success") << log_of("daemon");
}

TEST_F(SystemdUnits, AgentThatIsKilledIsStartedAgainAndOneWhoseJobFailedIsNot) {
    edit("regroup-serve.service", "[Service]\nStandardError=append:" + folder() + "/daemon.log\n");
    edit("regroup-agent@.service",
         "[Service]\nUser=daemon\nStandardError=append:" + folder() + "/agent.log\n");
    if (const std::string why = boot(); !why.empty()) {
        GTEST_SKIP() << why;
    }
    inside({"sh", "-c", "! systemctl start regroup-serve.service 2>/dev/null"});
    EXPECT_EQ(property("regroup-serve.service", "ActiveState"), "failed") << "there is no token";
    make_tokens();
    inside({"sh", "-c",
            "echo 'PET_RDZV_ENDPOINT=127.0.0.1:29400\nPROBE_DIR=" + folder() +
                "\nCOMMAND=elastic_probe throw' >/etc/regroup/jobs/nightly.env"});
    // Nobody has started the daemon: the first agent that connects does.
    inside({"systemctl", "start", "regroup-serve.socket", "regroup-agent@nightly.service"});
    ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << log_of("agent") << log_of("daemon");
    inside(
        {"systemctl", "kill", "--signal=KILL", "--kill-who=main", "regroup-agent@nightly.service"});
    ASSERT_THAT(await_marks("up", 1, 2), SizeIs(1)) << log_of("agent") << log_of("daemon");
    EXPECT_EQ(property("regroup-agent@nightly.service", "NRestarts"), "1");

    release("core");
    release("throw");
    ASSERT_TRUE(eventually([&] {
        return property("regroup-agent@nightly.service", "ActiveState") == "failed";
    })) << log_of("agent");
    EXPECT_EQ(property("regroup-agent@nightly.service", "NRestarts"), "1");
}

TEST_F(SystemdUnits, UnitsHaveNoMistakesAndTheDaemonsIsHardened) {
    const std::string tool = "/usr/bin/systemd-analyze";
    if (!fs::exists(tool)) {
        GTEST_SKIP() << "there is no " << tool;
    }
    // Where it is not installed, systemd does not find the program.
    for (const char* unit : {"regroup-serve.service", "regroup-agent@.service"}) {
        const std::string path = units() + "/" + unit;
        std::string text = read_file(path);
        text.replace(text.find("ExecStart=") + 10, 7, regroup_program());
        std::ofstream(path) << text;
    }
    Program verify({{tool, "verify", "--man=no", units() + "/regroup-serve.socket",
                     units() + "/regroup-serve.service", units() + "/regroup-agent@.service"},
                    {},
                    folder()});
    EXPECT_THAT(ended(verify), exits(0, IsEmpty()));
    // The exposure is from 0 to 10; the threshold is ten times that.
    Program security({{tool, "security", "--no-pager", "--offline=true", "--threshold=20",
                       units() + "/regroup-serve.service"},
                      {},
                      folder()});
    EXPECT_EQ(security.wait(), 0) << security.output();
}

}  // namespace
}  // namespace regroup::testing
