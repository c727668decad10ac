// SPDX-License-Identifier: Apache-2.0
//
// A round hangs, its agents save what they know, and `regroup explain` says why.
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"
#include "tests/support/sanitizer.h"

namespace regroup::testing {
namespace {

using Json = nlohmann::json;

// Two records of PyTorch's NCCL back end, pickled: all_reduce #1 is complete, and in the first one
// #2 has begun.
constexpr std::string_view kWaits =
    "80027d710028580700000076657273696f6e71015804000000322e31307102580900000070675f636f6e6669"
    "6771037d710458010000003071057d71062858040000006e616d65710768055804000000646573637108580a"
    "00000064656661756c745f70677109580500000072616e6b73710a58060000005b302c20315d710b75735807"
    "000000656e7472696573710c5d710d287d710e28580d00000070726f636573735f67726f7570710f68056809"
    "8671105811000000636f6c6c6563746976655f7365715f696471114b01580a0000007032705f7365715f6964"
    "71124b00580e00000070726f66696c696e675f6e616d657113580f0000006e63636c3a616c6c5f7265647563"
    "657114580b000000696e7075745f73697a657371155d71165d71174b056161580c000000696e7075745f6474"
    "7970657371185d71195805000000466c6f6174711a6158050000007374617465711b5809000000636f6d706c"
    "65746564711c580700000072657469726564711d88580600000069735f703270711e8958060000006672616d"
    "6573711f5d71207d71212868075804000000737465707122580800000066696c656e616d6571235808000000"
    "747261696e2e7079712458040000006c696e6571254b077561757d712628680f681068114b0268124b006813"
    "681468155d71275d71284b05616168185d7129681a61681b580700000073746172746564712a681d89681e89"
    "681f5d712b7d712c28680768226823682468254b0775617565752e";
constexpr std::string_view kIsElsewhere =
    "80027d710028580700000076657273696f6e71015804000000322e31307102580900000070675f636f6e6669"
    "6771037d710458010000003071057d71062858040000006e616d65710768055804000000646573637108580a"
    "00000064656661756c745f70677109580500000072616e6b73710a58060000005b302c20315d710b75735807"
    "000000656e7472696573710c5d710d7d710e28580d00000070726f636573735f67726f7570710f6805680986"
    "71105811000000636f6c6c6563746976655f7365715f696471114b01580a0000007032705f7365715f696471"
    "124b00580e00000070726f66696c696e675f6e616d657113580f0000006e63636c3a616c6c5f726564756365"
    "7114580b000000696e7075745f73697a657371155d71165d71174b056161580c000000696e7075745f647479"
    "70657371185d71195805000000466c6f6174711a6158050000007374617465711b5809000000636f6d706c65"
    "746564711c580700000072657469726564711d88580600000069735f703270711e8958060000006672616d65"
    "73711f5d71207d71212868075804000000737465707122580800000066696c656e616d657123580800000074"
    "7261696e2e7079712458040000006c696e6571254b0775617561752e";

std::string bytes_of(std::string_view hex) {
    std::string bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
        bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
    }
    return bytes;
}

class RunExplain : public EndToEnd {
   protected:
    [[nodiscard]] Words flags(unsigned ranks, unsigned silence_s = 1) const {
        return {"--standalone",
                "--nproc-per-node=" + std::to_string(ranks),
                "--max-restarts=0",
                "--hang-timeout=" + std::to_string(silence_s),
                "--log-dir=" + folder() + "/runs",
                "--rdzv-id=job"};
    }
    [[nodiscard]] std::string hang() const { return folder() + "/runs/job/hang-round1"; }

    [[nodiscard]] std::string explain(const Words& arguments) const {
        Program program(ProgramSpec{Words{regroup_program(), "explain"} + arguments, {}, folder()});
        EXPECT_EQ(program.wait(), 0) << program.output();
        return program.output();
    }
    [[nodiscard]] Json explained() const {
        const std::string text = explain({"--json", hang()});
        Json json = Json::parse(text, nullptr, false);
        EXPECT_FALSE(json.is_discarded()) << text;
        return json.is_object() ? json : Json::object();
    }
};

TEST_F(RunExplain, RankThatStaysInItsOwnCodeIsNamed) {
    Program job = run_probe(flags(3, 3), {"join", "barrier", "barrier", "rank=1?hold", "barrier"});
    EXPECT_THAT(ended(job),
                exits(128 + 9, "which ranks wait for which: regroup explain " + hang()));

    const Json json = explained();
    EXPECT_EQ(json.at("version"), 1);
    EXPECT_EQ(json.at("job"), "job");
    EXPECT_EQ(json.at("round"), 1);
    EXPECT_EQ(json.at("world_size"), 3);
    EXPECT_EQ(json.at("verdict"), "not_entered");
    EXPECT_EQ(json.at("culprits"), Json::parse("[1]"));
    ASSERT_EQ(json.at("collectives").size(), 1U) << json;
    const Json& stuck = json.at("collectives").at(0);
    EXPECT_EQ(stuck.at("recorder"), "sdk");
    EXPECT_EQ(stuck.at("operation"), "barrier");
    EXPECT_EQ(stuck.at("number"), 3);
    EXPECT_EQ(stuck.at("members"), Json::parse("[0, 1, 2]"));
    EXPECT_EQ(stuck.at("entered"), Json::parse("[0, 2]"));
    EXPECT_EQ(stuck.at("not_entered"), Json::parse("[1]"));
    for (const Json& rank : json.at("ranks")) {
        EXPECT_EQ(rank.at("state"), "running");
        EXPECT_EQ(rank.at("recorders"), Json::parse(R"(["agent", "sdk"])"));
    }
    // A file of the folder stands for the folder.
    EXPECT_THAT(explain({hang() + "/rank0.txt"}), HasSubstr("Rank 1 has not entered it."));
}

TEST_F(RunExplain, ProcessOfPyTorchIsAskedByItsPipe) {
    // The script does what PyTorch's NCCL back end does: it makes a FIFO, and writes its record
    // when something is in it. An older record is there already.
    std::ofstream(folder() + "/record0", std::ios::binary) << bytes_of(kWaits);
    std::ofstream(folder() + "/record1", std::ios::binary) << bytes_of(kIsElsewhere);
    std::ofstream(folder() + "/dump_0") << "an older record.";
    const std::string script =
        "mkfifo pipe_$RANK.pipe; exec 3<>pipe_$RANK.pipe; read bell <&3; "
        "cp record$RANK dump_$RANK; exec sleep 100";
    Program job = run(flags(2) + Words{"/bin/sh", "-c", script},
                      {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE=" + folder() + "/pipe_",
                       "TORCH_FR_DUMP_TEMP_FILE=" + folder() + "/dump_"});
    EXPECT_EQ(job.wait(), 128 + 9) << job.output();

    const Json json = explained();
    EXPECT_EQ(json.at("verdict"), "not_entered");
    EXPECT_EQ(json.at("culprits"), Json::parse("[1]"));
    ASSERT_EQ(json.at("collectives").size(), 1U) << json;
    const Json& stuck = json.at("collectives").at(0);
    EXPECT_EQ(stuck.at("recorder"), "pytorch");
    EXPECT_EQ(stuck.at("backend"), "nccl");
    EXPECT_EQ(stuck.at("number"), 2);
    EXPECT_EQ(stuck.at("entered"), Json::parse("[0]"));
    EXPECT_EQ(stuck.at("frames"), Json::parse("[\"step (train.py:7)\"]"));
}

TEST_F(RunExplain, PipeThatNobodyAnswersHoldsUpNothingForLong) {
    const std::string script = "mkfifo pipe_$RANK.pipe; exec 3<>pipe_$RANK.pipe; exec sleep 100";
    Program job = run(flags(1) + Words{"/bin/sh", "-c", script},
                      {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE=" + folder() + "/pipe_",
                       "TORCH_FR_DUMP_TEMP_FILE=" + folder() + "/dump_"});
    EXPECT_THAT(ended(job),
                exits(128 + 9, "not all workers have written their flight records in time"));
    EXPECT_EQ(explained().at("verdict"), "nothing");
}

/// The text 2^n times, in at least so many bytes.
std::string repeated(std::string text, std::size_t bytes) {
    text.reserve(2 * bytes);
    while (text.size() < bytes) {
        text += text;
    }
    return text;
}

TEST_F(RunExplain, RecordThatWouldTakeMuchMemoryOrTimeIsRefused) {
    if (has_sanitizer()) {
        GTEST_SKIP() << "a build with sanitizers reserves terabytes of addresses";
    }
    // In a pickle, "q\x01" stores a value and "h\x01" names it again.
    const std::string pickle = "\x80\x02";
    const std::string version = R"({"version":"1","entries":[)";
    const std::string text =
        "X" + std::string("\x40\x42\x0f\x00", 4) + std::string(1'000'000, 't') + "q\x01";
    const std::string entries = "}(X" + std::string("\x07\0\0\0", 4) + "entries](";
    std::string groups = version;
    for (int i = 0; groups.size() < 8'000'000; ++i) {
        groups += "{\"pg_id\":" + std::to_string(i) + "},";
    }
    const Words records{
        std::string(11'000'000, ' '),  // NOLINT(bugprone-string-constructor): on purpose
        R"({"version":")" + repeated(R"(\")", 8'000'000) + R"("})",
        "[" + repeated("0,", 8'000'000) + "0]",
        "[" + repeated("{},", 8'000'000) + "0]",
        std::string(8'000'000, '['),
        version + R"({"frames":[)" + repeated("{},", 8'000'000) + "{}]}]}",
        version +
            repeated(R"({"profiling_name":")" + std::string(140'000, 'n') + R"("},)", 8'500'000) +
            "{}]}",
        groups + "{}]}",
        pickle + std::string(8'000'000, ']'),
        pickle + repeated("]0", 8'000'000),
        pickle + std::string(8'000'000, '('),
        pickle + repeated("N\x94", 8'000'000),
        pickle + "]" + repeated("Na", 8'000'000),
        pickle + "Nr\xff\xff\xff\xff.",
        pickle + "](" + std::string(250'000, 'N') + repeated("(te", 8'000'000),
        pickle + "](" + text + repeated("h\x01", 200'000) + "e.",
        pickle + entries + "](" + std::string(100'000, 'N') + "eq\x01" +
            repeated("h\x01", 200'000) + "eu.",
    };
    for (const std::string& record : records) {
        std::ofstream(folder() + "/rank_0", std::ios::binary) << record;
        // Addresses in kB: the file, its values, and 40 MB of the program with its libraries.
        const std::string limited = "ulimit -v 90000; ulimit -t 5; exec \"$@\"";
        Program program(ProgramSpec{
            {"/bin/sh", "-c", limited, "sh", regroup_program(), "explain", folder() + "/rank_0"},
            {},
            folder()});
        EXPECT_EQ(program.wait(), 2) << record.substr(0, 40) << program.output();
        EXPECT_THAT(program.output(), HasSubstr("rank_0: ")) << record.substr(0, 40);
    }
}

TEST_F(RunExplain, FolderWithoutAHangIsRefused) {
    for (const std::string& path : {folder(), folder() + "/none"}) {
        Program program(ProgramSpec{{regroup_program(), "explain", path}, {}, folder()});
        EXPECT_THAT(ended(program), exits(2, path));
    }
}

}  // namespace
}  // namespace regroup::testing
