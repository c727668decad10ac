// SPDX-License-Identifier: Apache-2.0
#include <regroup/failure.h>

#include <gtest/gtest.h>

namespace regroup {
namespace {

TEST(ReportFatal, ExitCodeShowsTheKind) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(report_fatal(FatalKind::user_error, "there is no data set"),
                ::testing::ExitedWithCode(78), "trying again cannot help.*there is no data set");
    EXPECT_EXIT(report_fatal(FatalKind::retry, "the storage is away"),
                ::testing::ExitedWithCode(75), "to be tried again.*the storage is away");
    EXPECT_EXIT(report_fatal(FatalKind::bad_node, "a GPU fell off the bus"),
                ::testing::ExitedWithCode(76), "this node is bad.*a GPU fell off the bus");
}

}  // namespace
}  // namespace regroup
