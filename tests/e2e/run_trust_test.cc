// SPDX-License-Identifier: Apache-2.0
//
// Two hosts with a token or with certificates: who may join, look and stop.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/e2e/cable.h"
#include "tests/e2e/end_to_end.h"
#include "tests/support/certificates.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

class TokenCommand : public EndToEnd {
   protected:
    /// The exit code of `regroup token FLAGS`, and what it printed.
    [[nodiscard]] std::pair<int, std::string> token(const Words& flags) const {
        Program program({Words{regroup_program(), "token"} + flags, {}, folder()});
        const int code = program.wait().value_or(-1);
        return {code, program.output()};
    }
    [[nodiscard]] std::string file(const std::string& name) const { return folder() + "/" + name; }
    [[nodiscard]] std::string content(const std::string& name) const {
        std::ifstream stream(file(name));
        std::string line;
        std::getline(stream, line);
        return line;
    }
};

TEST_F(TokenCommand, GeneratedFileIsForItsOwnerAndNotReplaced) {
    const auto [code, said] = token({"--generate", "--token-file=" + file("a/token")});
    EXPECT_EQ(code, 0) << said;
    struct stat info{};
    ASSERT_EQ(::stat(file("a/token").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0600U);
    const std::string text = content("a/token");
    EXPECT_THAT(text, ::testing::StartsWith("regroup1.full."));
    EXPECT_THAT(said, Not(HasSubstr(text.substr(24))));  // The key.
    EXPECT_EQ(token({"--generate", "--token-file=" + file("a/token")}).first, kUsage);
    EXPECT_EQ(content("a/token"), text);
}

TEST_F(TokenCommand, NarrowerTokensComeFromTheFullOneOnly) {
    ASSERT_EQ(token({"--generate", "--token-file=" + file("full")}).first, 0);
    ASSERT_EQ(
        token({"--token-file=" + file("full"), "--role=observer", "--out=" + file("watch")}).first,
        0);
    EXPECT_THAT(content("watch"), ::testing::StartsWith("regroup1.observer."));
    const auto [code, said] =
        token({"--token-file=" + file("full"), "--role=node", "--job=nightly"});
    EXPECT_EQ(code, 0);
    EXPECT_THAT(said, AllOf(HasSubstr("regroup1.node."), HasSubstr(".nightly")));
    EXPECT_EQ(token({"--token-file=" + file("watch"), "--role=node"}).first, kUsage);
}

TEST_F(TokenCommand, MistakesAreNamed) {
    EXPECT_THAT(token({"--token-file=" + file("absent")}).second, HasSubstr("--generate"));
    EXPECT_EQ(token({"--job=nightly"}).first, kUsage);
    EXPECT_EQ(token({"--generate", "--role=node"}).first, kUsage);
    std::ofstream(file("wide")) << "regroup1\n";
    ::chmod(file("wide").c_str(), 0644);
    EXPECT_THAT(token({"--token-file=" + file("wide")}).second,
                HasSubstr("chmod 600 " + file("wide")));
}

/// A daemon on host 0 with a token, and programs on both.
class RunTrust : public EndToEnd {
   protected:
    void SetUp() override {
        if (const auto missing = cable_.lay()) {
            GTEST_SKIP() << *missing;
        }
        make_token({"--generate", "--token-file=" + file("full")});
        for (const char* role : {"observer", "operator", "node"}) {
            make_token({"--token-file=" + file("full"), "--role=" + std::string(role),
                        "--out=" + file(role)});
        }
        make_token({"--token-file=" + file("full"), "--role=node", "--job=another",
                    "--out=" + file("other_job")});
        make_token({"--generate", "--token-file=" + file("stranger")});
    }

    void make_token(const Words& flags) const {
        Program program({Words{regroup_program(), "token"} + flags, {}, ""});
        ASSERT_EQ(program.wait(), 0) << program.output();
    }
    [[nodiscard]] std::string file(const std::string& name) const { return folder() + "/" + name; }
    [[nodiscard]] Words token(const std::string& name) const {
        return {"--token-file=" + file(name)};
    }

    [[nodiscard]] std::unique_ptr<Program> start(std::size_t index, const Words& command) const {
        return std::make_unique<Program>(
            ProgramSpec{cable_.inside(index, index == 0 ? "node-a" : "node-b", command),
                        {"PROBE_DIR=" + folder()},
                        folder()});
    }
    [[nodiscard]] std::unique_ptr<Program> serve(const Words& flags) const {
        auto daemon =
            start(0, Words{regroup_program(), "serve", "--listen=10.77.0.1:29400", "--state=none"} +
                         flags);
        EXPECT_TRUE(daemon->prints("listening on")) << daemon->output();
        return daemon;
    }
    [[nodiscard]] std::unique_ptr<Program> node(std::size_t index, const Words& flags) const {
        return start(index, Words{regroup_program(), "run", "--nnodes=2", "--rdzv-backend=c10d",
                                  "--rdzv-endpoint=10.77.0.1:29400", "--rdzv-id=nightly",
                                  "--max-restarts=2", "--max-node-losses=2"} +
                                flags + Words{elastic_probe_program()});
    }
    /// The exit code and the output of an operator's command on host 1.
    [[nodiscard]] std::pair<int, std::string> operate(const Words& words) const {
        const auto program = start(1, Words{regroup_program()} + words +
                                          Words{"--endpoint=10.77.0.1:29400", "--timeout=2"});
        const int code = program->wait().value_or(-1);
        return {code, program->output()};
    }

    Cable cable_;
};

TEST_F(RunTrust, RolesSayWhatEachTokenMayDo) {
    const auto daemon = serve(token("full"));
    const auto first = node(0, token("full"));
    const auto second = node(1, token("node"));
    const auto up = await_marks("up", 2);
    ASSERT_THAT(up, SizeIs(2)) << first->output() << second->output();
    for (const char* name : {"full", "observer", "operator", "node"}) {
        const auto [code, said] = operate(Words{"status"} + token(name));
        EXPECT_EQ(code, 0) << name << said;
        EXPECT_THAT(said, HasSubstr("nightly"));
    }
    EXPECT_THAT(operate(Words{"status"} + token("other_job")).second, Not(HasSubstr("nightly")));
    for (const char* name : {"observer", "node", "other_job", "stranger"}) {
        EXPECT_NE(operate(Words{"stop", "--job=nightly"} + token(name)).first, 0) << name;
    }
    EXPECT_NE(operate({"status", "--insecure"}).first, 0);
    EXPECT_NE(operate({"status"}).first, 0);
    for (const char* name : {"observer", "operator", "other_job"}) {
        const auto intruder = node(1, token(name) + Words{"--join-timeout=2"});
        EXPECT_NE(intruder->wait(), 0) << name << intruder->output();
    }
    EXPECT_TRUE(first->running());
    EXPECT_EQ(operate(Words{"stop", "--job=nightly"} + token("operator")).first, 0);
    EXPECT_NE(first->wait(), 0);
    EXPECT_NE(second->wait(), 0);
    EXPECT_THAT(daemon->output(), HasSubstr("(operator)) from 10.77.0.2:"));
    EXPECT_THAT(last_marks("up"), SizeIs(2));  // One round, whatever the others tried.
}

TEST_F(RunTrust, WardenProvesItselfWhenItTellsOfItsAgentsDeath) {
    const auto daemon = serve(token("full"));
    const auto first = node(0, token("full"));
    const auto second = node(1, token("node"));
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << first->output() << second->output();
    const std::vector<pid_t> agents = children_of(second->pid());
    ASSERT_THAT(agents, SizeIs(1));
    ::kill(agents[0], SIGKILL);
    EXPECT_TRUE(first->prints("its agent was killed")) << first->output();
}

TEST_F(RunTrust, NobodyIsLetInWithoutCredentials) {
    const auto refused = start(0, {regroup_program(), "serve"});
    EXPECT_EQ(refused->wait(), kUsage) << refused->output();
    const auto node_alone = node(1, {});
    EXPECT_THAT(ended(*node_alone), exits(kUsage, "--insecure"));
}

TEST_F(RunTrust, WorkersGetNoTokenInTheirEnvironment) {
    std::ifstream stream(file("full"));
    std::string text;
    std::getline(stream, text);
    const std::string key = text.substr(text.rfind('.') + 1);
    ASSERT_THAT(key, SizeIs(64));
    const auto job =
        start(0, {regroup_program(), "run", "--rdzv-backend=c10d",
                  "--rdzv-endpoint=10.77.0.1:29400", token("full").front(), "--no-python",
                  "/bin/sh", "-c", "cat /proc/self/environ | tr '\\0' '\\n'"});
    EXPECT_THAT(ended(*job), exits(0, "RANK=", Not(HasSubstr(key))));
}

TEST_F(RunTrust, CertificatesOfOneAuthorityReplaceTheToken) {
    if (::access("/usr/bin/openssl", X_OK) != 0) {
        GTEST_SKIP() << "the program openssl is needed";
    }
    const CertificateMaker site(folder());
    site.issue("daemon", {"/CN=daemon", "IP:10.77.0.1"});
    site.issue("node", {"/CN=node-b", "IP:10.77.0.2"});
    site.issue("watch", {"/OU=observer/CN=watch", "IP:10.77.0.2"});
    const CertificateMaker elsewhere(folder(), "elsewhere");
    elsewhere.issue("rogue", {"/OU=full/CN=rogue", "IP:10.77.0.2"});
    const auto flags = [&](const std::string& name) {
        return Words{"--tls-cert=" + site.path(name + ".crt"),
                     "--tls-key=" + site.path(name + ".key"), "--tls-ca=" + site.path("ca.crt")};
    };
    const auto daemon = serve(flags("daemon"));
    const auto first = node(0, flags("node"));
    const auto second = node(1, flags("node"));
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << first->output() << second->output();
    EXPECT_EQ(operate(Words{"status"} + flags("watch")).first, 0);
    EXPECT_NE(operate(Words{"stop"} + flags("watch")).first, 0);
    EXPECT_NE(operate(Words{"status"} + flags("rogue")).first, 0);
    EXPECT_NE(operate(Words{"status"} + token("full")).first, 0);
    release("finish");
    EXPECT_EQ(first->wait(), 0) << first->output();
    EXPECT_EQ(second->wait(), 0) << second->output();
}

}  // namespace
}  // namespace regroup::testing
