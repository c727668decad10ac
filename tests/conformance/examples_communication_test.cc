// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "tests/conformance/examples_harness.h"
#include "tests/support/matchers.h"

namespace regroup {
namespace {

using testing::Outcome;
using testing::Program;
using testing::Words;

class CommunicationExamples : public testing::Examples {};

/// Programs without commands, and commands.
Words every_example() {
    Words all{EXAMPLE_NAMES};
    std::erase_if(all, [](const std::string& name) {
        return name == "communication" || name == "gradients" || name == "scoring" ||
               name == "training";
    });
    all.insert(all.end(), {"communication collectives", "communication point_to_point",
                           "communication sub_groups", "communication parameter_server",
                           "gradients linear_check", "gradients average", "scoring evaluate",
                           "scoring predict", "training trainer", "training partitioner",
                           "training checkpoint"});
    return all;
}

TEST_F(CommunicationExamples, EachExplainsItselfAndNamesAWrongFlag) {
    const std::string unlike = ": unknown flag --unlike-any-other; --help lists them\n";
    for (const std::string& name : every_example()) {
        const Outcome help = run_alone(name, {"--help"});
        EXPECT_EQ(help.exit_code, 0);
        EXPECT_THAT(help.output, StartsWith(name + ": "));
        for (const auto& [flag, complaint] : std::map<std::string, std::string>{
                 {"--helq", ": unknown flag --helq; did you mean --help?\n"},
                 {"--unlike-any-other", unlike},
                 {"--help=yes", ": --help takes no value\n"}}) {
            const Outcome wrong = run_alone(name, {flag});
            EXPECT_EQ(wrong.exit_code, 2);
            EXPECT_EQ(wrong.output, name + complaint);
        }
        const Outcome stray = run_alone(name, {"1", "2", "3"});
        EXPECT_EQ(stray.exit_code, 2);
        EXPECT_THAT(stray.output, HasSubstr("' belongs to no flag; --help lists them\n"));
    }
}

TEST_F(CommunicationExamples, ProgramWithCommandsListsThem) {
    const Outcome help = run_alone("scoring", {"--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_EQ(help.output,
              "usage: scoring COMMAND FLAGS...; each command explains itself: --help\n\n"
              "  evaluate                 the same digits for every number of ranks\n"
              "  predict                  predictions in the order of the data set\n");
    const Outcome none = run_alone("scoring");
    EXPECT_EQ(none.exit_code, 2);
    EXPECT_EQ(none.output, help.output);
    const Outcome unknown = run_alone("scoring", {"evaluat"});
    EXPECT_EQ(unknown.exit_code, 2);
    EXPECT_EQ(unknown.output, "scoring: there is no command 'evaluat'\n" + help.output);
}

TEST_F(CommunicationExamples, FlagsComeInEverySpelling) {
    for (const Words& words : {Words{"--throw-in", "0"}, Words{"--throw_in", "0"},
                               Words{"--throw-in=0"}, Words{"--throw_in=0"}}) {
        EXPECT_THAT(run_alone("spawn", words).output, HasSubstr("threw: no such layer"));
    }
    EXPECT_EQ(run_alone("spawn", {"--nprocs"}).output, "spawn: --nprocs needs a value\n");
    EXPECT_EQ(run_alone("spawn", {"--nproc", "2"}).output,
              "spawn: unknown flag --nproc; did you mean --nprocs?\n");
    EXPECT_EQ(run_alone("spawn", {"--nprocs", "2x"}).output,
              "spawn: --nprocs takes a number from 1 to 1024, not '2x'\n");
    EXPECT_EQ(run_alone("training trainer", {"--learning-rate", "nan"}).output,
              "training trainer: --learning-rate takes a number from 0 to 1e+06, not 'nan'\n");
}

TEST_F(CommunicationExamples, HandStartedProcessesMeetThroughFourVariables) {
    EXPECT_EQ(run_alone("hand_started").output, "rank 0 of 1, alone: 1 + ... + 1 = 1\n");
    const std::string port = std::to_string(testing::unused_port());
    const auto variables = [&](const std::string& rank) {
        return Words{"RANK=" + rank, "WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1",
                     "MASTER_PORT=" + port};
    };
    const std::string program = testing::example_program("hand_started");
    // The master last: the others wait for it.
    Program second({{program}, variables("1"), ""});
    Program third({{program}, variables("2"), ""});
    Program first({{program}, variables("0"), ""});
    for (Program* const each : {&first, &second, &third}) {
        EXPECT_EQ(each->wait(), 0) << each->output();
        EXPECT_THAT(each->output(),
                    HasSubstr(" of 3, master 127.0.0.1:" + port + ": 1 + ... + 3 = 6\n"));
    }
}

TEST_F(CommunicationExamples, HandStartedProcessNamesTheMissingVariable) {
    const Outcome outcome = run_alone("hand_started", {}, {"RANK=0", "WORLD_SIZE=2"});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(outcome.output,
              "hand_started: the environment has RANK, WORLD_SIZE but not MASTER_ADDR, "
              "MASTER_PORT; set all of them, or none for a world of one\n");
    const Outcome lonely = run_alone("hand_started", {"--timeout-s", "1"},
                                     {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                                      "MASTER_PORT=" + std::to_string(testing::unused_port())});
    EXPECT_EQ(lonely.exit_code, 1);
    EXPECT_THAT(lonely.output, HasSubstr("of 2 ranks these have not come within 1.0 s: 1\n"));
}

TEST_F(CommunicationExamples, SpawnStartsItsOwnRanksAndRaisesTheFirstError) {
    const Outcome good = run_alone("spawn", {"--nprocs", "3"});
    EXPECT_EQ(good.exit_code, 0);
    for (const char* index : {"0", "1", "2"}) {
        EXPECT_THAT(good.output, HasSubstr("process " + std::string(index) + " is rank " + index +
                                           " of 3; the ranks add up to 3\n"));
    }
    EXPECT_THAT(good.output, HasSubstr("all processes have succeeded\n"));
    const Outcome thrown = run_alone("spawn", {"--nprocs", "3", "--throw-in", "1"});
    EXPECT_EQ(thrown.exit_code, 1);
    EXPECT_THAT(thrown.lines_of_rank.at(0).back(),
                MatchesRegex("spawn: spawned process 1 \\(pid [0-9]+\\) threw: no such layer: "
                             "'attention.9'"));
    const Outcome killed = run_alone("spawn", {"--nprocs", "4", "--kill-in", "2"});
    EXPECT_EQ(killed.exit_code, 1);
    EXPECT_THAT(killed.lines_of_rank.at(0).back(),
                MatchesRegex("spawn: spawned process 2 \\(pid [0-9]+\\) was ended by SIGKILL"));
}

TEST_F(CommunicationExamples, PointToPointMessagesArrive) {
    for (const std::uint32_t rank_count : {2U, 4U}) {
        const Outcome outcome = launch(rank_count, "communication point_to_point");
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        EXPECT_EQ(outcome.after(1, "blocking: rank 1 has "), "1");
        EXPECT_EQ(outcome.after(1, "immediate: rank 1 has "), "2, and computed 7.4855 meanwhile");
        EXPECT_EQ(outcome.after(1, "tags: rank 1 has "), "labels 7 8 9 and weights 0.25 0.5");
        for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
            EXPECT_EQ(outcome.after(rank, "ring: rank " + std::to_string(rank) +
                                              " has seen ranks that add up to "),
                      std::to_string(rank_count * (rank_count - 1) / 2));
        }
    }
    EXPECT_EQ(run_alone("communication point_to_point").exit_code, 2);
}

TEST_F(CommunicationExamples, ClusterCheckNamesBadRanksAndSlowLinks) {
    const Outcome good = launch(3, "cluster_check", {"--megabytes", "1", "--slow", "0"});
    EXPECT_EQ(good.exit_code, 0) << good.output;
    EXPECT_THAT(good.lines_of_rank.at(0),
                ElementsAre(MatchesRegex("3 ranks checked; the median link: [0-9.]+ GB/s within a "
                                         "node")));
    const Outcome bad =
        launch(3, "cluster_check", {"--megabytes", "1", "--slow", "0", "--pretend-fault", "1"});
    EXPECT_EQ(bad.exit_code, 76) << bad.output;
    EXPECT_THAT(bad.lines_of_rank.at(0),
                ElementsAre("rank 1 (node 0) computes wrongly: 1 elements of the product",
                            "data changes on the way from rank 1 (node 0) to rank 2 (node 0): 1 "
                            "words of 8 bytes",
                            HasSubstr("3 ranks checked")));
    // Some link is slower than one and a half times the median.
    const Outcome slow = launch(3, "cluster_check", {"--megabytes", "1", "--slow", "1.5"});
    EXPECT_EQ(slow.exit_code, 76) << slow.output;
    EXPECT_THAT(slow.lines_of_rank.at(0).front(),
                MatchesRegex("the link from rank . \\(node 0\\) to rank . \\(node 0\\) is slow: "
                             "[0-9.]+ GB/s, the median is [0-9.]+ GB/s"));
}

TEST_F(CommunicationExamples, CollectivesShowWhatTheyDo) {
    const Outcome outcome = launch(3, "communication collectives");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(
        outcome.lines_of_rank.at(0),
        ElementsAre(
            "broadcast              [7 8] [7 8] [7 8]",
            "all_reduce sum         [6 -6] [6 -6] [6 -6]",
            "all_reduce product     [6 -6] [6 -6] [6 -6]",
            "all_reduce min         [1 -3] [1 -3] [1 -3]",
            "all_reduce max         [3 -1] [3 -1] [3 -1]",
            "all_reduce avg         [2 -2] [2 -2] [2 -2]",
            "reduce sum             [6 -6] [2 -2] [3 -3]",
            "reduce product         [6 -6] [2 -2] [3 -3]",
            "reduce min             [1 -3] [2 -2] [3 -3]",
            "reduce max             [3 -1] [2 -2] [3 -3]",
            "reduce avg             [2 -2] [2 -2] [3 -3]",
            "all_gather             [1 2 3] [1 2 3] [1 2 3]",
            "gather                 [1 2 3] [0 0 0] [0 0 0]", "scatter                [1] [2] [3]",
            "reduce_scatter sum     [60] [63] [66]", "reduce_scatter product [6000] [7161] [8448]",
            "reduce_scatter min     [10] [11] [12]", "reduce_scatter max     [30] [31] [32]",
            "reduce_scatter avg     [20] [21] [22]",
            "all_to_all             [10 20 30] [11 21 31] [12 22 32]", "barrier passed"));
    EXPECT_EQ(run_alone("communication collectives").exit_code, 0);
}

TEST_F(CommunicationExamples, MissingGpusEndTheProgramWithASentence) {
    // Wherever this runs, the process sees no GPU.
    const Outcome outcome =
        run_alone("communication collectives", {"--backend", "nccl"}, {"CUDA_VISIBLE_DEVICES="});
    EXPECT_EQ(outcome.exit_code, 1);
    ASSERT_EQ(outcome.lines_of_rank.at(0).size(), 1U) << outcome.output;
    EXPECT_THAT(outcome.output,
                MatchesRegex("communication collectives: .*(no \"nccl\" back end|libnccl.so.2|"
                             "no NVIDIA driver|no GPU).*\n"));
}

TEST_F(CommunicationExamples, UnknownBackEndIsNamed) {
    const Outcome outcome = run_alone("communication collectives", {"--backend", "ncl"});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.output,
                StartsWith("communication collectives: \"ncl\" is no back end; there is "));
}

TEST_F(CommunicationExamples, SubGroupsServeTheirMembersAlone) {
    const Outcome outcome = launch(4, "communication sub_groups");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(outcome.after(0, "pair: "), "rank 0 adds up 1");
    EXPECT_EQ(outcome.after(1, "pair: "), "rank 1 adds up 1");
    EXPECT_THAT(outcome.after(2, "pair: rank 2 is refused: "), HasSubstr("is not in group"));
    EXPECT_THAT(outcome.after(3, "pair: rank 3 is refused: "), HasSubstr("ranks 0, 1"));
    EXPECT_EQ(outcome.after(2, "even: "), "rank 2 is rank 1 of 2, and adds up 2");
    EXPECT_EQ(outcome.after(3, "odd: "), "rank 3 is rank 1 of 2, and adds up 4");
}

TEST_F(CommunicationExamples, SynchronousParameterServersArePlainSgdToTheBit) {
    for (const std::uint32_t server_count : {1U, 2U, 3U}) {
        const Outcome outcome = launch(4, "communication parameter_server",
                                       {"--servers", std::to_string(server_count)});
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        const std::uint32_t worker = server_count;
        EXPECT_EQ(outcome.after(worker, "largest difference from plain SGD: "), "0");
        const std::string losses =
            outcome.after(worker, "sync, " + std::to_string(server_count) + " servers, " +
                                      std::to_string(4 - server_count) + " workers: loss ");
        EXPECT_THAT(losses, MatchesRegex("2\\.[0-9]+ before, 0\\.00[0-9]+ after 200 steps"));
    }
}

TEST_F(CommunicationExamples, AsynchronousParameterServersLearnToo) {
    const Outcome outcome =
        launch(4, "communication parameter_server", {"--servers=2", "--mode=async"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.after(2, "async, 2 servers, 2 workers: loss "),
                MatchesRegex("2\\.[0-9]+ before, 0\\.00[0-9]+ after 200 steps"));
}

TEST_F(CommunicationExamples, ParameterServersRefuseImpossibleRoles) {
    EXPECT_EQ(run_alone("communication parameter_server").exit_code, 2);
    const Outcome mode = launch(2, "communication parameter_server", {"--mode", "fast"});
    EXPECT_EQ(mode.exit_code, 2);
    EXPECT_THAT(mode.output, HasSubstr("--mode is sync or async, not 'fast'"));
    EXPECT_THAT(run_alone("communication parameter_server", {"--servers", "30"}).output,
                HasSubstr("--servers: there are only 21 parameters to share"));
}

}  // namespace
}  // namespace regroup
