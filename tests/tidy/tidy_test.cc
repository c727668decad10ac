// SPDX-License-Identifier: Apache-2.0
// Checks the whole tree against the rules of rules.cc, and the rules against bad samples.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tidy/layers.h"
#include "tests/tidy/rules.h"

namespace regroup::tidy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kLicence = "// SPDX-License-Identifier: Apache-2.0\n";

std::string read_file(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<SourceFile> read_tree() {
    namespace fs = std::filesystem;
    const fs::path root = REGROUP_SOURCE_DIR;
    std::vector<SourceFile> files;
    const auto read = [&](const fs::path& path) {
        std::string text = read_file(path);
        std::string name = path.lexically_relative(root).generic_string();
        // A picture has no text, but links lead to it.
        if (text.find('\0') != text.npos) {
            text.clear();
        }
        // Inputs of fuzz targets are any bytes.
        if (!name.starts_with("tests/fuzz/corpus/")) {
            files.emplace_back(std::move(name), std::move(text));
        }
    };
    for (const auto& entry : fs::directory_iterator(root)) {
        if (entry.is_regular_file()) {
            read(entry.path());
        }
    }
    for (const char* folder : {".ci", "agent", "cmake", "docs", "examples", "launcher",
                               "rendezvous", "tests", "worker_sdk"}) {
        if (!fs::is_directory(root / folder)) {
            continue;
        }
        for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
            if (entry.is_regular_file()) {
                read(entry.path());
            }
        }
    }
    std::sort(files.begin(), files.end(),
              [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
    return files;
}

std::string join(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) {
        text += "\n" + line;
    }
    return text;
}

TEST(Tree, EveryFileKeepsTheRules) {
    std::vector<std::string> findings;
    for (const SourceFile& file : read_tree()) {
        for (const std::string& finding : check_file(file)) {
            findings.push_back(finding);
        }
        for (const std::string& note : note_outliers(file)) {
            std::cout << "note: " << note << "\n";
        }
    }
    EXPECT_TRUE(findings.empty()) << join(findings);
}

/// A text that names every source that is compiled: CMake's list, and the sources that it joined.
std::string read_compiled() {
    namespace fs = std::filesystem;
    const fs::path folder = REGROUP_BINARY_DIR;
    const std::string commands = read_file(folder / "compile_commands.json");
    std::string text = commands;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        // A joined source of an earlier configuration may still lie there.
        if (entry.path().parent_path().filename() == "Unity" &&
            commands.find(entry.path().string()) != commands.npos) {
            text += read_file(entry.path());
        }
    }
    return text;
}

TEST(Tree, EverySourceIsBuiltAndEveryLinkLeadsSomewhere) {
    const auto findings = check_tree(read_tree(), read_compiled());
    EXPECT_TRUE(findings.empty()) << join(findings);
}

TEST(Tree, DesignDocumentShowsTheActualLayers) {
    const std::string page =
        read_file(std::filesystem::path(REGROUP_SOURCE_DIR) / "docs/design.md");
    EXPECT_TRUE(page.find(layer_table()) != page.npos) << "docs/design.md must hold this table:\n"
                                                       << layer_table();
}

std::vector<std::string> check(const std::string& path, const std::string& text) {
    return check_file(SourceFile(path, kLicence + text));
}

TEST(Rules, IncludesFollowTheLayers) {
    const struct {
        const char* path;
        const char* good;
        const char* bad;
    } samples[] = {
        {"rendezvous/base/log.cc", "<vector>", "\"rendezvous/core/messages.h\""},
        {"rendezvous/core/rendezvous_core.cc", "\"rendezvous/base/clock.h\"", "<unordered_map>"},
        {"rendezvous/core/messages.h", "<map>", "<boost/asio.hpp>"},
        {"rendezvous/protocol/codec.cc", "<nlohmann/json.hpp>", "\"rendezvous/core/core.h\""},
        {"rendezvous/text/words.cc", "\"rendezvous/core/cause.h\"", "<unistd.h>"},
        {"rendezvous/net/tcp.h", "<boost/asio/ip/tcp.hpp>", "\"rendezvous/protocol/codec.h\""},
        {"rendezvous/store/store_core.h", "<map>", "<sys/socket.h>"},
        {"rendezvous/store/store_client.cc", "<sys/socket.h>", "<boost/asio.hpp>"},
        {"rendezvous/store_server/store_server.cc", "<boost/asio.hpp>", "\"agent/agent.h\""},
        {"worker_sdk/src/group/work.cc", "\"worker_sdk/src/base/round_scope.h\"",
         "\"worker_sdk/src/cpu/mesh.h\""},
        {"worker_sdk/src/cuda/cast.h", "<cuda_runtime_api.h>", "\"worker_sdk/src/nccl/lane.h\""},
        {"agent/core/agent_core.cc", "\"rendezvous/core/messages.h\"", "<thread>"},
        {"worker_sdk/src/store/store.cc", "<unistd.h>",
         "\"rendezvous/store_server/store_server.h\""},
        {"agent/process/spawn.cc", "<sys/wait.h>", "\"rendezvous/protocol/codec.h\""},
        {"agent/agent.cc", "\"rendezvous/client/control_client.h\"", "\"launcher/options.h\""},
        {"launcher/main.cc", "\"agent/agent.h\"", "\"worker_sdk/src/group/work.h\""},
        {"worker_sdk/include/regroup/store.h", "<regroup/errc.h>", "\"rendezvous/base/result.h\""},
        {"worker_sdk/include/regroup/c_api.h", "<stdint.h>", "<cstdint>"},
        {"worker_sdk/src/store/store.cc", "\"rendezvous/store/store_client.h\"",
         "<nlohmann/json.hpp>"},
        {"examples/byte_lm/byte_lm.cc", "<Eigen/Core>", "\"worker_sdk/src/group/work.h\""},
    };
    for (const auto& sample : samples) {
        const std::string include = "#include ";
        EXPECT_THAT(check(sample.path, include + sample.good + "\n"), IsEmpty());
        EXPECT_THAT(check(sample.path, include + sample.bad + "\n"),
                    ElementsAre(HasSubstr(":2: the layer")));
    }
    EXPECT_THAT(check("gui/window.cc", ""), ElementsAre(HasSubstr("no layer knows")));
}

TEST(Rules, BannedWordsAreFoundInCodeAndOnlyThere) {
    const struct {
        const char* path;
        const char* bad;
    } samples[] = {
        {"agent/agent.cc", "auto now = std::chrono::steady_clock::now();\n"},
        {"rendezvous/core/x.cc", "auto now = clock.now(), later = Clock::now();\n"},
        {"launcher/main.cc", "waitpid(pid, &status, 0);\n"},
        {"agent/agent.cc", "#include <boost/process/v2.hpp>\n"},
        {"tests/unit/x_test.cc", "std::this_thread::sleep_for(1s);\n"},
        {"agent/agent.cc", "const char* home = std::getenv(\"HOME\");\n"},
        {"agent/agent.cc", "throw std::runtime_error(text);\n"},
        {"launcher/main.cc", "try {\n} catch (...) {\n}\n"},
        {"agent/agent.h", "using namespace std;\n"},
        {"worker_sdk/src/group/work.cc", "co_await work;\n"},
    };
    for (const auto& sample : samples) {
        EXPECT_FALSE(check(sample.path, sample.bad).empty()) << sample.bad;
    }
    EXPECT_THAT(check("agent/agent.cc", "// waitpid is for others\nlog(\"sleep \\\" getenv\");\n"),
                IsEmpty());
    EXPECT_THAT(check("agent/agent.cc", "const auto x = R\"(getenv \" ')\"; int y = 1'000;\n"),
                IsEmpty());
    EXPECT_THAT(check("agent/agent.cc", "const int my_getenv = 1'0; f('\"'); getenv();\n"),
                ElementsAre(HasSubstr("launcher")));
}

TEST(Rules, TextOfEveryKindIsClean) {
    for (const std::string text : {"// TODO: later\n", "a\tb\n", "// blank at the end \n",
                                   "// no line feed", "// see /home/me/notes\n"}) {
        EXPECT_EQ(check("agent/agent.cc", text).size(), 1U) << text;
    }
    EXPECT_THAT(check_file(SourceFile("Makefile", "test:\n\ttrue\n")), IsEmpty());
    EXPECT_THAT(check_file(SourceFile("agent/agent.h", "#pragma once\n")),
                ElementsAre(HasSubstr("SPDX")));
}

TEST(Rules, AStatementWithAnAwaitHasNoBraceAndNoConditional) {
    for (const char* bad : {
             "void f() {\n    co_await join(Join{1});\n}\n",
             "void f() {\n    co_await join(\n        {.a = 1});\n}\n",
             "void f() {\n    co_await run([&] { return 1; });\n}\n",
             "void f() {\n    co_return Pair{a(), co_await b()};\n}\n",
             "void f() {\n    Pair p = {B{}, co_await b()};\n}\n",
             "void f() {\n    auto x = c ? co_await a() : b;\n}\n",
         }) {
        EXPECT_EQ(check("agent/agent.cc", bad).size(), 1U) << bad;
    }
    EXPECT_THAT(check("agent/agent.cc",
                      "awaitable<void> f() {\n"
                      "    const Join join{1, Node{}};\n"
                      "    if (auto done = co_await g(join); done) {\n        return {};\n    }\n"
                      "    while (co_await h()) {\n        co_await i();\n    }\n"
                      "    for (const Node& node : nodes) {\n        co_await k(node);\n    }\n"
                      "}\n"),
                IsEmpty());
}

TEST(Rules, ACoroutineLambdaCapturesNothing) {
    EXPECT_EQ(check("agent/agent.cc",
                    "spawn([this]() -> boost::asio::awaitable<void> {\n    co_return;\n});\n")
                  .size(),
              1U);
    EXPECT_THAT(check("agent/agent.cc",
                      "spawn([]() -> awaitable<void> { co_return; });\n"
                      "std::array<int, 2> a; a[1] = 2; auto [b, c] = a;\n"
                      "on_exit([this] { stop(); });\n"),
                IsEmpty());
}

TEST(Rules, SourcesInNoTargetAndDeadLinksAreFound) {
    const std::vector<SourceFile> files = {
        SourceFile("agent/agent.cc", ""),
        SourceFile("agent/forgotten.cc", ""),
        SourceFile("docs/design.md",
                   "[agent](../agent/agent.cc#top) [folder](../agent/)\n"
                   "[web](https://example.org) [gone](gone.md) [up](#terms)\n"),
    };
    EXPECT_THAT(check_tree(files, R"({"file": "/src/agent/agent.cc"})"),
                ElementsAre(HasSubstr("forgotten.cc"), HasSubstr("docs/design.md:2")));
}

TEST(Rules, OutliersAreNoted) {
    std::string body;
    for (int line = 0; line < 80; ++line) {
        body += "    call();\n";
    }
    const SourceFile file("agent/agent.cc", "int main() {\n" + body + "}\nvoid f() {\n}\n");
    EXPECT_THAT(note_outliers(file), ElementsAre(HasSubstr(":1: a function of 82 lines")));
}

TEST(Rules, WideClassesAreRefused) {
    std::string body =
        "   public:\n    using Type = int;\n    struct Part {\n        int a = 0;\n    };\n";
    for (int member = 0; member < 40; ++member) {
        body += "    void call(int number,\n              int other);\n";
    }
    const auto found = [&](const std::string& more) {
        return check_file(
            SourceFile("agent/agent.h",
                       "// SPDX-License-Identifier: Apache-2.0\n#pragma once\n\nclass Agent {\n" +
                           body + more + "};\n"));
    };
    EXPECT_THAT(found(""), IsEmpty());
    EXPECT_THAT(found("    int more_ = 0;\n"), ElementsAre(HasSubstr(":4: a class of 41 members")));
}

}  // namespace
}  // namespace regroup::tidy
