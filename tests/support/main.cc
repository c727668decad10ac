// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

// ctest takes this exit code for "skipped" (SKIP_RETURN_CODE).
constexpr int kSkipped = 77;

// Why cases were skipped, each reason once.
std::set<std::string> reasons(const ::testing::UnitTest& run) {
    std::set<std::string> result;
    for (int s = 0; s < run.total_test_suite_count(); ++s) {
        const auto& suite = *run.GetTestSuite(s);
        for (int i = 0; i < suite.total_test_count(); ++i) {
            const auto& outcome = *suite.GetTestInfo(i)->result();
            for (int part = 0; part < outcome.total_part_count(); ++part) {
                if (outcome.GetTestPartResult(part).skipped()) {
                    const std::string reason = outcome.GetTestPartResult(part).message();
                    result.insert(reason.substr(0, reason.find('\n')));
                }
            }
        }
    }
    return result;
}

}  // namespace

int main(int argc, char** argv) {
    ::testing::InitGoogleMock(&argc, argv);
    const int failed = RUN_ALL_TESTS();
    const auto& run = *::testing::UnitTest::GetInstance();
    if (failed != 0 || run.successful_test_count() > 0 || GTEST_FLAG_GET(list_tests)) {
        return failed;
    }
    std::cout << "skipped: ";
    const std::set<std::string> why = reasons(run);
    for (const std::string& reason : why) {
        std::cout << (reason == *why.begin() ? "" : "; ") << reason;
    }
    std::cout << (why.empty() ? "there is no case to run here\n" : "\n");
    return kSkipped;
}
