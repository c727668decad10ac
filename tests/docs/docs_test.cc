// SPDX-License-Identifier: Apache-2.0
// Compiles, configures or parses every code block of the documentation, and checks with bad samples
// that each check can fail.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>

#include <gtest/gtest.h>

#include "tests/docs/blocks.h"
#include "tests/docs/checks.h"
#include "tests/docs/shell.h"
#include "tests/support/matchers.h"
#include "tests/support/program.h"

namespace regroup::docs {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWholeProgram = "examples/elastic/elastic_sharded.cc";

using regroup::testing::TemporaryDirectory;

std::string read_file(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

std::string join(const Findings& lines) {
    std::string text;
    for (const std::string& line : lines) {
        text += "\n" + line;
    }
    return text;
}

/// Files of a folder with this extension, from the root of the tree.
std::vector<std::string> files_of(const std::string& folder, const std::string& extension) {
    std::vector<std::string> pages;
    for (const auto& entry : fs::directory_iterator(fs::path(REGROUP_SOURCE_DIR) / folder)) {
        if (entry.path().extension() == extension) {
            pages.push_back(folder + "/" + entry.path().filename().string());
        }
    }
    std::ranges::sort(pages);
    return pages;
}

/// The blocks of all pages and headers.
Blocks read_documentation() {
    Blocks all;
    const auto add = [&](const std::string& page, auto parse) {
        const std::string text = read_file(fs::path(REGROUP_SOURCE_DIR) / page);
        EXPECT_FALSE(text.empty()) << page;
        Blocks found = parse(page, text);
        std::ranges::move(found.blocks, std::back_inserter(all.blocks));
        std::ranges::move(found.findings, std::back_inserter(all.findings));
    };
    std::vector<std::string> pages = {"README.md", "CONTRIBUTING.md"};
    for (const char* folder : {"docs", "examples"}) {
        std::ranges::move(files_of(folder, ".md"), std::back_inserter(pages));
    }
    for (const std::string& page : pages) {
        add(page, blocks_of_page);
    }
    for (const std::string& header : files_of("worker_sdk/include/regroup", ".h")) {
        add(header, blocks_of_header);
    }
    return all;
}

const Blocks& documentation() {
    static const Blocks all = read_documentation();
    return all;
}

std::vector<Block> blocks_in(const std::string& language) {
    std::vector<Block> blocks;
    std::ranges::copy_if(documentation().blocks, std::back_inserter(blocks),
                         [&](const Block& block) { return block.language == language; });
    return blocks;
}

// ---- The documentation.

TEST(Documentation, EveryBlockHasAKnownLanguage) {
    EXPECT_THAT(documentation().findings, IsEmpty()) << join(documentation().findings);
    const Findings findings = check_fences(documentation().blocks);
    EXPECT_TRUE(findings.empty()) << join(findings);
    std::map<std::string, int> counts;
    for (const Block& block : documentation().blocks) {
        ++counts[block.language];
    }
    for (const auto& [language, count] : counts) {
        std::cout << count << " " << language << "\n";
    }
    for (const char* language : {"cpp", "c", "cmake", "sh", "console", "text"}) {
        EXPECT_GT(counts[language], 0) << "no block was read as " << language;
    }
}

TEST(Documentation, CppBlocksCompile) {
    const Findings findings = check_cpp(blocks_in("cpp"));
    EXPECT_TRUE(findings.empty()) << join(findings);
}

// Others run it: run_sharded_test.
TEST(Documentation, WholeProgramOfTheElasticGuideIsTheExample) {
    std::string program = read_file(fs::path(REGROUP_SOURCE_DIR) / kWholeProgram);
    program.erase(0, program.find("#include"));
    const std::vector<Block> blocks = blocks_in("cpp");
    EXPECT_TRUE(std::ranges::any_of(blocks,
                                    [&](const Block& block) {
                                        return block.page == "docs/elastic.md" &&
                                               block.text == program;
                                    }))
        << "docs/elastic.md has no block that equals " << kWholeProgram;
}

TEST(Documentation, CBlocksCompile) {
    const Findings findings = check_c(blocks_in("c"));
    EXPECT_TRUE(findings.empty()) << join(findings);
}

TEST(Documentation, CMakeBlocksConfigure) {
    if (!REGROUP_INSTALLS) {
        GTEST_SKIP() << "REGROUP_INSTALL is off";
    }
    const TemporaryDirectory prefix;
    Findings findings = install(prefix.path());
    ASSERT_TRUE(findings.empty()) << join(findings);
    findings = check_cmake(blocks_in("cmake"), prefix.path());
    EXPECT_TRUE(findings.empty()) << join(findings);
}

TEST(Documentation, ShellBlocksHaveTheSyntaxOfBash) {
    for (const char* language : {"sh", "console"}) {
        const Findings findings = check_syntax(blocks_in(language));
        EXPECT_TRUE(findings.empty()) << join(findings);
    }
}

TEST(Documentation, CommandsAreAcceptedByTheRealParsers) {
    for (const char* language : {"sh", "console"}) {
        const Findings findings = check_commands(blocks_in(language));
        EXPECT_TRUE(findings.empty()) << join(findings);
    }
}

TEST(Documentation, PythonBlocksCompile) {
    if (!has_python()) {
        GTEST_SKIP() << "no python3";
    }
    const Findings findings = check_python(blocks_in("python"));
    EXPECT_TRUE(findings.empty()) << join(findings);
}

TEST(Documentation, YamlBlocksParse) {
    if (!has_yaml()) {
        GTEST_SKIP() << "no python3 with PyYAML";
    }
    const Findings findings = check_yaml(blocks_in("yaml"));
    EXPECT_TRUE(findings.empty()) << join(findings);
}

TEST(Documentation, JsonAndIniBlocksParse) {
    Findings findings = check_json(blocks_in("json"));
    EXPECT_TRUE(findings.empty()) << join(findings);
    findings = check_ini(blocks_in("ini"));
    EXPECT_TRUE(findings.empty()) << join(findings);
}

// ---- The checks, with bad samples.

Block sample(const std::string& language, const std::string& text) {
    return {"docs/sample.md", 7, language, {}, text};
}

TEST(Checks, BlocksWithoutAKnownFenceAreFound) {
    const auto check = [](const std::string& page) {
        Blocks found = blocks_of_page("docs/sample.md", page);
        std::ranges::move(check_fences(found.blocks), std::back_inserter(found.findings));
        return found.findings;
    };
    EXPECT_THAT(check("Text\n\n```\nx\n```\n"),
                ElementsAre(HasSubstr("docs/sample.md:4: the code block has no language")));
    EXPECT_THAT(check("```brainfuck\n+\n```\n"), ElementsAre(HasSubstr("'brainfuck'")));
    EXPECT_THAT(check("```cpp quickly\n;\n```\n"), ElementsAre(HasSubstr("'quickly'")));
    EXPECT_THAT(check("```text\nx\n"), ElementsAre(HasSubstr(":2: the code block has no end")));
    EXPECT_THAT(check("Text\n\n    make test\n"), ElementsAre(HasSubstr(":3: an indented")));
    EXPECT_THAT(check("~~~\nx\n~~~\n"), ::testing::SizeIs(2));
    EXPECT_THAT(check("```console\noutput\n```\n"), ElementsAre(HasSubstr("has commands")));
    EXPECT_THAT(check("```text\nx\n$ make\n```\n"), ElementsAre(HasSubstr(":3: a block with")));
    EXPECT_THAT(check("- item\n\n    its text\n\n  ```json\n  {}\n  ```\n"), IsEmpty());
}

TEST(Checks, ExamplesInCommentsOfHeadersAreRead) {
    const std::string text =
        "// Not an example:\n//  - indented\n\n    ///     int a;\n    ///\n    ///         b();\n"
        "    ///\n    /// Text.\nint x;  ///<     not one\n";
    const Blocks found = blocks_of_header("worker_sdk/include/regroup/x.h", text);
    ASSERT_EQ(found.blocks.size(), 1U);
    EXPECT_EQ(found.blocks[0].text, "int a;\n\n    b();\n");
    EXPECT_EQ(found.blocks[0].where(), "worker_sdk/include/regroup/x.h:4: ");
    EXPECT_EQ(found.blocks[0].language, "cpp");
}

TEST(Checks, WrongCodeIsFoundWithPageAndLine) {
    EXPECT_THAT(check_cpp({sample("cpp", "group->barrier().wait();\ngroup->flush();\n")}),
                ElementsAre(HasSubstr("docs/sample.md:8:")));
    EXPECT_THAT(
        check_cpp({sample("cpp", "#include <regroup/error.h>\nint main() {\n    x();\n}\n")}),
        ElementsAre(HasSubstr("docs/sample.md:9:")));
    EXPECT_THAT(check_c({sample("c", "int i = 0;\nregroup_context_free(i, i);\n")}),
                ElementsAre(HasSubstr("docs/sample.md:8:")));
    EXPECT_THAT(
        check_cmake({sample("cmake", "project(x LANGUAGES CXX)\nfind_package(regruop REQUIRED)\n")},
                    "/nowhere"),
        ElementsAre(HasSubstr("docs/sample.md:7: ")));
    EXPECT_THAT(check_json({sample("json", "{\"a\": 1}\n{\"a\": }\n")}),
                ElementsAre(HasSubstr("docs/sample.md:8: ")));
    EXPECT_THAT(check_ini({sample("ini", "[Service]\nExecStart = a \\\n  b\nRestart\n")}),
                ElementsAre(HasSubstr("docs/sample.md:10: ")));
    EXPECT_THAT(check_syntax({sample("sh", "if true; then\n")}),
                ElementsAre(HasSubstr("docs/sample.md:7: ")));
    if (has_python()) {
        EXPECT_THAT(check_python({sample("python", "x = 1\nif x\n")}),
                    ElementsAre(HasSubstr("line 8")));
    }
    if (has_yaml()) {
        EXPECT_THAT(check_yaml({sample("yaml", "a: [1\nb: 2\n")}),
                    ElementsAre(HasSubstr("line 8")));
    }
}

TEST(Checks, CommandsOfEveryFormAreRead) {
    const auto words = [](const std::string& script) {
        std::string text;
        for (const Command& command : commands_of_script(script)) {
            text += std::to_string(command.offset) + ":";
            for (const std::string& word : command.words) {
                text += " <" + word + ">";
            }
            text += "\n";
        }
        return text;
    };
    EXPECT_EQ(words("A=1 make \\\n  test  # comment\ncd x && ls | head -1 &\n"),
              "0: <make> <test>\n2: <cd> <x>\n2: <ls>\n2: <head> <-1>\n");
    EXPECT_EQ(words("a 'b c' \"d $(e f) g\" 2> /dev/null >x < y\n"),
              "0: <e> <f>\n0: <a> <b c> <d $(e f) g>\n");
    EXPECT_EQ(words("cat > x.sh <<'END'\n#!/bin/sh\necho a\nEND\nif b; then c; fi\n"),
              "0: <cat>\n2: <echo> <a>\n4: <b>\n4: <c>\n");
    EXPECT_EQ(commands_of_console("$ a \\\n  b\noutput\nnode0$ c\n"), "a \\\n  b\n\nc\n");
}

TEST(Checks, WrongCommandsAreFoundWithPageAndLine) {
    const struct {
        const char* command;
        const char* finding;
    } samples[] = {
        {"regroup run --nproc-per-nod3=2 ./train", "--nproc-per-nod3"},
        {"sudo srun -N2 regroup run --nnodes=none ./train", "--nnodes"},
        {"X=1 torchrun --standalone --nproc_per_gpu=2 x.py", "--nproc_per_gpu"},
        {"regroup run --nproc-per-node=2 elastic --stepz=1", "--stepz"},
        {"regroup serve --sate=/tmp/x", "--sate"},
        {"regroup serve --store-dialect=klingon", "--store-dialect"},
        {"regroup drain --wait --reason='a b'", "needs the NODE"},
        {"regroup drain node1 --wait-timeout=soon", "--wait-timeout"},
        {"regroup status --jsn", "--jsn"},
        {"regroup stop now", "takes no 'now'"},
        {"regroup replay", "needs a FILE"},
        {"regroup explain --josn runs/job/hang-round1", "--josn"},
        {"regroup rnu", "rnu"},
        {"make tets", "no target tets"},
        {"make chaos MINUTE=1", "$(MINUTE)"},
        {"cmake --preset relaese", "relaese"},
        {"cmake --build --preset release --target regruop", "regruop"},
        {"cmake --preset release -DREGROUP_CUDDA=ON", "REGROUP_CUDDA"},
        {"ctest --preset release -L e3e", "selects no test"},
        {"ctest --preset release -R no_such_test", "selects no test"},
        {"build/release/tests/unit/no_test", "no target builds"},
        {"build/fast/launcher/regroup version", "no preset"},
        {"sh cmake/set-up.sh", "there is no cmake/set-up.sh"},
        {"c++ x.cc $(pkg-config --libs regroup-d)", "regroup-d"},
        {"regruop run ./train", "no check knows the command"},
    };
    for (const auto& [command, finding] : samples) {
        EXPECT_THAT(
            check_commands({sample("sh", std::string("cd /\n") + command + "\n")}),
            ElementsAre(::testing::AllOf(HasSubstr("docs/sample.md:8: "), HasSubstr(finding))))
            << command;
    }
}

}  // namespace
}  // namespace regroup::docs
