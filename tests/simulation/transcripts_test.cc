// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/simulation/story.h"
#include "tests/support/transcript.h"

namespace regroup::simulation {
namespace {

std::vector<std::string> transcripts() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(REGROUP_TRANSCRIPTS)) {
        if (entry.path().extension() == ".txt") {
            names.push_back(entry.path().stem().string());
        }
    }
    std::sort(names.begin(), names.end());
    return names;
}

class Transcript : public testing::TestWithParam<std::string> {};

TEST_P(Transcript, SimulatedRunMatchesTheTranscript) {
    Story story;
    const std::string difference =
        test::check_transcript(std::string(REGROUP_TRANSCRIPTS) + "/" + GetParam() + ".txt",
                               [&](const std::string& command) { return story.tell(command); });
    EXPECT_EQ(difference, "");
}

INSTANTIATE_TEST_SUITE_P(All, Transcript, testing::ValuesIn(transcripts()),
                         [](const auto& named) { return named.param; });

TEST(Transcripts, DifferenceIsShownWithItsLine) {
    if (std::getenv("REGROUP_REWRITE") != nullptr) {
        GTEST_SKIP() << "REGROUP_REWRITE is set, so that nothing can differ";
    }
    std::string folder = std::filesystem::path(testing::TempDir()) / "regroup-transcript-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    const std::string path = folder + "/transcript.txt";
    std::ofstream(path) << "# A story.\nhello\n----\nworld\n";
    const auto answer = [](const std::string& text) {
        return [text](const std::string&) { return std::vector<std::string>{text}; };
    };
    EXPECT_EQ(test::check_transcript(path, answer("world")), "");
    const std::string difference = test::check_transcript(path, answer("moon"));
    EXPECT_NE(difference.find("line 4\n  expected: world\n  actual:   moon"), std::string::npos);
    EXPECT_NE(test::check_transcript(path + ".missing", answer("")), "");
    std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace regroup::simulation
