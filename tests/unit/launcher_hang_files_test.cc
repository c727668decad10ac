// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "launcher/hang_files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_directory.h"

namespace regroup::launcher {
namespace {

namespace fs = std::filesystem;
using Kind = HangFileName::Kind;

constexpr const char* kRecord = R"({"version": "2.10", "entries": [
    {"process_group": ["0", "default_pg"], "collective_seq_id": 1, "state": "started",
     "profiling_name": "nccl:all_reduce"}]})";

class HangFilesTest : public ::testing::Test {
   protected:
    void write(const std::string& name, const std::string& text) const {
        folder_.write(name, text);
    }
    [[nodiscard]] std::string path(const std::string& name) const {
        return (folder_ / name).string();
    }
    [[nodiscard]] HangFiles read(const std::string& path) const {
        HangFiles files;
        read_hang(path, files);
        return files;
    }

    testing::TemporaryDirectory folder_;
};

TEST_F(HangFilesTest, NameSaysWhatAFileIs) {
    struct Case {
        const char* name;
        Kind kind;
        std::uint32_t rank;
        bool is_ours;
    };
    for (const Case& one :
         {Case{"node12.json", Kind::node, 12, true}, Case{"rank3.txt", Kind::stacks, 3, true},
          Case{"rank3.4711.txt", Kind::other, 0, false},
          Case{"rank3.regroup.json", Kind::record, 3, true},
          Case{"rank3.nccl.pickle", Kind::record, 3, true},
          Case{"nccl_trace_rank_15", Kind::record, 15, false},
          Case{"record_7.json", Kind::record, 7, false},
          Case{"rank99999999999.txt", Kind::other, 0, false},
          Case{"trace_99999999999", Kind::other, 0, false},
          Case{"README.md", Kind::other, 0, false}, Case{"", Kind::other, 0, false}}) {
        const HangFileName name = read_name(one.name);
        EXPECT_EQ(name.kind, one.kind) << one.name;
        EXPECT_EQ(name.rank, one.rank) << one.name;
        EXPECT_EQ(name.is_ours, one.is_ours) << one.name;
    }
}

TEST_F(HangFilesTest, FolderHasFactsRecordsAndStacks) {
    agent::NodeFacts node;
    node.world_size = 2;
    node.ranks.resize(1);
    node.ranks[0].state = agent::ProcessState::running;
    node.ranks[0].pid = 40;
    write("node0.json", agent::write_node_facts(node));
    write("rank0.txt", "By eu-stack:\nTID 40:\n#0  0x01 poll - /c.so\n");
    write("rank0.nccl.json", kRecord);
    write("notes_1", "not a record, and not ours");
    const HangFiles files = read(folder_.path());
    EXPECT_THAT(files.complaints, IsEmpty());
    EXPECT_EQ(files.files, 3U);
    ASSERT_THAT(files.facts.ranks, SizeIs(2));
    EXPECT_THAT(files.facts.ranks[0].frames, ElementsAre("poll"));
    EXPECT_THAT(files.facts.ranks[0].records, SizeIs(1));
    EXPECT_THAT(files.facts.ranks[1].records, IsEmpty());
}

TEST_F(HangFilesTest, SingleRecordHasItsRankInTheName) {
    write("trace_rank_5", kRecord);
    const HangFiles files = read(path("trace_rank_5"));
    ASSERT_THAT(files.facts.ranks, SizeIs(1));
    EXPECT_EQ(files.facts.ranks[0].rank, 5U);
    EXPECT_THAT(files.facts.ranks[0].records, SizeIs(1));
    write("trace", kRecord);
    EXPECT_THAT(read(path("trace")).complaints, ElementsAre(HasSubstr("must end with the rank")));
}

TEST_F(HangFilesTest, BadFilesAreNamedAndTheOthersRead) {
    write("node0.json", "{");
    write("rank0.nccl.json", "{\"version\": \"2.10\", ");
    write("rank1.nccl.json", kRecord);
    write("rank2.nccl.json", "");
    fs::resize_file(path("rank2.nccl.json"), (std::uintmax_t{64} << 20U) + 1);
    ASSERT_EQ(::mkfifo(path("rank3.nccl.json").c_str(), 0600), 0);
    const HangFiles files = read(folder_.path());
    EXPECT_EQ(files.files, 1U);
    EXPECT_THAT(files.complaints,
                ElementsAre(HasSubstr("node0.json"), HasSubstr("rank0.nccl.json"),
                            HasSubstr("more than 10 MiB"), HasSubstr("rank3.nccl.json")));
}

TEST_F(HangFilesTest, MissingFolderIsNamed) {
    EXPECT_THAT(read(path("none")).complaints,
                ElementsAre(HasSubstr("there is no such file or folder")));
}

}  // namespace
}  // namespace regroup::launcher
