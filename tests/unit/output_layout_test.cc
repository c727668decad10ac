// SPDX-License-Identifier: Apache-2.0
#include "agent/output/output_layout.h"

#include "agent/output/template_text.h"
#include "tests/support/matchers.h"

namespace regroup::agent {
namespace {

using Way = StreamPlan::Way;

// Local rank 3 of 8 on the second node, after two restarts.
WorkerIdentity restarted_worker() {
    WorkerIdentity identity;
    identity.place = {.round = 7, .rank = 11, .local_rank = 3, .restart_count = 2};
    identity.role = "trainer";
    return identity;
}

WorkerOutput planned(const OutputOptions& options) {
    return plan_output(options, restarted_worker(), "10.0.0.7", "node7");
}

TEST(OutputLayout, ByRankHasAFileForEachRankAndRoundAndAPrefixWithNodeAndRank) {
    OutputOptions options;
    options.folder = "/runs/job";
    const WorkerOutput output = planned(options);
    EXPECT_EQ(output.out.path, "/runs/job/round_7/rank00011.out");
    EXPECT_EQ(output.err.path, "/runs/job/round_7/rank00011.err");
    EXPECT_EQ(output.error_file, "/runs/job/round_7/rank00011.error.json");
    EXPECT_EQ(output.out.prefix, "[10.0.0.7:11] ");
    EXPECT_TRUE(output.out.shown);
    EXPECT_EQ(worker_folder(options, restarted_worker()), "/runs/job/round_7");
}

TEST(OutputLayout, WorkerStartedAheadHasAFolderWithoutARound) {
    OutputOptions options;
    options.folder = "/runs/job";
    WorkerIdentity identity = restarted_worker();
    identity.ahead = true;
    const WorkerOutput standby = plan_output(options, identity, "n0", "node7");
    EXPECT_EQ(standby.out.path, "/runs/job/ahead/n0-local00003.out");
    EXPECT_EQ(standby.out.prefix, "[n0:standby3] ");
}

TEST(OutputLayout, OneRankReadsStdinUnlessAllDoAndOnlyItsQuestionsAreShownAtOnce) {
    using Who = StdinReader::Who;
    OutputOptions options;
    options.dialogue = true;
    const std::vector<std::pair<StdinReader, bool>> cases{{{}, false},
                                                          {{Who::rank, 11}, true},
                                                          {{Who::rank, 3}, false},
                                                          {{Who::all}, true},
                                                          {{Who::none, 11}, false}};
    for (const auto& [reader, reads] : cases) {
        options.stdin_reader = reader;
        EXPECT_EQ(planned(options).reads_stdin, reads);
        EXPECT_EQ(planned(options).out.shows_partial, reads);
        EXPECT_EQ(planned(options).err.shows_partial, reads);
    }
    options.stdin_reader = {Who::rank, 11};
    WorkerIdentity standby = restarted_worker();
    standby.ahead = true;
    EXPECT_FALSE(plan_output(options, standby, "n0", "node7").reads_stdin) << "it has no rank yet";
    options.dialogue = false;
    EXPECT_FALSE(planned(options).out.shows_partial);
}

TEST(OutputLayout, NoFolderGivesNoFile) {
    for (const OutputLayout layout : {OutputLayout::by_rank, OutputLayout::torchrun}) {
        OutputOptions options;
        options.layout = layout;
        options.redirects.all = options.tee.all = 3;
        const WorkerOutput output = planned(options);
        EXPECT_THAT(output.out.path, IsEmpty());
        EXPECT_THAT(output.error_file, IsEmpty());
        EXPECT_TRUE(output.out.shown);
    }
}

TEST(OutputLayout, TorchrunLayoutHasAFolderForEachAttemptAndLocalRank) {
    OutputOptions options;
    options.folder = "/logs/job_12345678";
    options.layout = OutputLayout::torchrun;
    options.redirects.all = StreamSpec::kErr;
    options.tee.by_local_rank = {{3, StreamSpec::kOut}};
    const WorkerOutput output = planned(options);
    EXPECT_EQ(output.out.path, "/logs/job_12345678/attempt_2/3/stdout.log");
    EXPECT_EQ(output.err.path, "/logs/job_12345678/attempt_2/3/stderr.log");
    EXPECT_EQ(output.error_file, "/logs/job_12345678/attempt_2/3/error.json");
    EXPECT_TRUE(output.out.shown);
    EXPECT_EQ(output.out.prefix, "[trainer3]:");
    EXPECT_FALSE(output.err.shown);
}

TEST(OutputLayout, StreamsWithoutAFileAreShownOrInherited) {
    OutputOptions options;
    options.folder = "/logs";
    options.layout = OutputLayout::torchrun;
    options.redirects.by_local_rank = {{0, 3}};
    EXPECT_EQ(planned(options).out.way, Way::relayed);
    EXPECT_EQ(planned(options).out.prefix, "[10.0.0.7:11] ");
    EXPECT_THAT(planned(options).out.path, IsEmpty());
    options.bare_console = true;
    EXPECT_EQ(planned(options).out.way, Way::inherited);
    options.console_ranks = std::set<std::uint32_t>{0, 1};
    EXPECT_EQ(planned(options).out.way, Way::discarded);
}

TEST(OutputLayout, NeedlesAreForTeedStreamsThatAreShown) {
    OutputOptions options;
    options.folder = "/logs";
    options.layout = OutputLayout::torchrun;
    options.tee.all = StreamSpec::kOut;
    options.redirects.all = StreamSpec::kErr;
    options.stdout_needles = options.stderr_needles = {"loss"};
    EXPECT_EQ(planned(options).out.filter_path, "/logs/attempt_2/filtered_stdout.log");
    EXPECT_THAT(planned(options).err.needles, IsEmpty());
    options.console_ranks = std::set<std::uint32_t>{0};
    EXPECT_THAT(planned(options).out.needles, IsEmpty());
}

TEST(OutputLayout, PrefixIsFilledIn) {
    OutputOptions options;
    options.line_prefix = "${role_name} ${local_rank} $rank ${hostname} ${node} ${what}:";
    EXPECT_EQ(planned(options).out.prefix, "trainer 3 11 node7 10.0.0.7 ${what}:");
}

TEST(TemplateText, SubstituteFollowsPythonsRule) {
    const std::map<std::string, std::string> values{{"local_rank", "5"}, {"_x1", "y"}};
    const auto filled = [&](const std::string& text) { return substitute(text, values); };
    EXPECT_EQ(filled("--rank=$local_rank"), "--rank=5");
    EXPECT_EQ(filled("${local_rank}${_x1}"), "5y");
    EXPECT_EQ(filled("$$local_rank $$"), "$local_rank $");
    EXPECT_EQ(filled("$$$local_rank"), "$5");
    EXPECT_EQ(filled("$local_ranks $unknown ${unknown}"), "$local_ranks $unknown ${unknown}");
    EXPECT_EQ(filled("${local_rank $ ${ $"), "${local_rank $ ${ $");
    EXPECT_EQ(filled("$1 ${1} $-"), "$1 ${1} $-");
    EXPECT_EQ(filled("$local_rank.txt"), "5.txt");
    EXPECT_EQ(filled(""), "");
}

TEST(TemplateText, BracedNamesAreFilledInAndAllElseStays) {
    const std::map<std::string, std::string> values{{"local_rank", "5"}};
    const auto filled = [&](const std::string& text) { return substitute_braced(text, values); };
    EXPECT_EQ(filled("--rank=${local_rank}/${local_rank}"), "--rank=5/5");
    EXPECT_EQ(filled("kill -9 $$"), "kill -9 $$");
    EXPECT_EQ(filled("$local_rank ${HOME} $HOME ${local_rank"),
              "$local_rank ${HOME} $HOME ${local_rank");
    EXPECT_EQ(filled("$${local_rank}$"), "$5$");
    EXPECT_EQ(filled(""), "");
}

}  // namespace
}  // namespace regroup::agent
