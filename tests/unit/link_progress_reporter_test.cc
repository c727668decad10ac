// SPDX-License-Identifier: Apache-2.0
#include <regroup/checkpoint.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include "worker_sdk/src/link/progress_reporter.h"

namespace regroup::link {
namespace {

struct SectionScope {
    explicit SectionScope(ProgressReporter& b, std::string_view name) : reporter(b) {
        reporter.begin_section(name);
    }
    ~SectionScope() { reporter.end_section(); }
    ProgressReporter& reporter;
};

class ProgressReporterTest : public ::testing::Test {
   protected:
    /// The longest time of `name` in the page.
    std::int64_t longest_of(std::string_view name) {
        reporter.begin_section(name);
        const std::int64_t longest = page.longest;
        reporter.end_section();
        return longest;
    }

    WorkerPage page;
    ProgressReporter reporter{&page};
};

TEST_F(ProgressReporterTest, StepsAndSectionsAreNewOnce) {
    reporter.set_phase(Phase::training);
    EXPECT_EQ(page.longest, 0);
    const std::uint64_t beats = page.beats;
    reporter.committed(1);
    EXPECT_EQ(page.beats, beats + 1);
    EXPECT_EQ(page.step, 1U);
    const std::int64_t step = page.longest;
    EXPECT_GT(step, 0);

    EXPECT_EQ(longest_of("load"), 0);
    EXPECT_GT(longest_of("load"), 0);
    EXPECT_EQ(longest_of("save"), 0) << "each name has a limit of its own";
    EXPECT_GE(page.longest, step) << "the rest of the step";
    EXPECT_EQ(page.phase, Phase::training);
}

TEST_F(ProgressReporterTest, SavingACheckpointIsASectionOfItsOwn) {
    const std::string path =
        ::testing::TempDir() + "/regroup-reporter-" + std::to_string(::getpid());
    Checkpoint checkpoint;
    checkpoint.set_text("words", "long");
    const std::uint64_t beats = page.beats;
    checkpoint.save(path);
    EXPECT_EQ(page.beats, beats) << "no loop runs on this thread";
    {
        const ThreadReporter own(reporter);
        reporter.set_phase(Phase::training);
        const std::uint64_t before = page.beats;
        checkpoint.save(path);
        EXPECT_EQ(page.beats, before + 2);
        EXPECT_EQ(page.phase, Phase::training);
        EXPECT_GT(longest_of("saving a checkpoint"), 0);
        reporter.begin_section("mine");
        checkpoint.save(path);
        EXPECT_STREQ(page.section.data(), "mine") << "they do not nest";
        reporter.end_section();
        reporter.set_phase(Phase::leaving);
        checkpoint.save(path);
        EXPECT_EQ(page.phase, Phase::leaving);
    }
    std::filesystem::remove(path);
}

TEST_F(ProgressReporterTest, BytesOfACheckpointAreShownWhileItIsSavedAndLoaded) {
    using worker_link::TransferKind;
    const auto path = std::filesystem::temp_directory_path() /
                      ("regroup-reporter-transfer-" + std::to_string(::getpid()));
    Checkpoint checkpoint;
    checkpoint.set_text("weights", std::string(std::size_t{3} << 20U, 'w'));
    checkpoint.save(path);
    EXPECT_EQ(page.transfer.total, 0U) << "no loop runs on this thread";
    const ThreadReporter own(reporter);
    checkpoint.save(path);
    EXPECT_EQ(page.transfer.total, std::filesystem::file_size(path));
    EXPECT_EQ(page.transfer.done, page.transfer.total);
    EXPECT_EQ(page.transfer.kind, TransferKind::none);
    {
        const SdkTransfer outer(TransferKind::state, 100);
        SdkTransfer::add(40);
        EXPECT_EQ(page.transfer.kind, TransferKind::state);
        EXPECT_EQ(page.transfer.total, 100U);
        EXPECT_EQ(page.transfer.done, 40U);
    }
    EXPECT_EQ(page.transfer.kind, TransferKind::none);
    ASSERT_TRUE(Checkpoint::load_if_present(path));
    EXPECT_EQ(page.transfer.done, std::filesystem::file_size(path));
    std::filesystem::remove(path);
}

TEST_F(ProgressReporterTest, InterruptedSectionIsNotMeasured) {
    reporter.set_phase(Phase::training);
    try {
        const SectionScope scope(reporter, "load");
        throw std::runtime_error("a peer is lost");
    } catch (const std::runtime_error&) {
        reporter.suspend();
    }
    EXPECT_EQ(longest_of("load"), 0);
}

TEST_F(ProgressReporterTest, InterruptedStepIsNotMeasured) {
    reporter.set_phase(Phase::training);
    reporter.suspend();
    EXPECT_EQ(page.longest, 0);
    reporter.set_phase(Phase::training);
    EXPECT_EQ(page.longest, 0);
}

TEST_F(ProgressReporterTest, LongNamesAreCutAndStayDistinct) {
    reporter.set_phase(Phase::training);
    const std::string name(100, 'x');
    EXPECT_EQ(longest_of(name), 0);
    EXPECT_GT(longest_of(name), 0);
    EXPECT_EQ(longest_of(name.substr(0, 46)), 0);
}

TEST_F(ProgressReporterTest, NamesBeyondTheCapacityStayNew) {
    reporter.set_phase(Phase::training);
    for (int i = 0; i < 200; ++i) {
        EXPECT_EQ(longest_of("section " + std::to_string(i)), 0);
    }
    EXPECT_GT(longest_of("section 0"), 0);
    EXPECT_EQ(longest_of("section 199"), 0);
}

}  // namespace
}  // namespace regroup::link
