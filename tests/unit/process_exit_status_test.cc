// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "agent/process/exit_status.h"

namespace regroup::agent {
namespace {

siginfo_t child_info(int code, int status) {
    siginfo_t info{};
    info.si_code = code;
    info.si_status = status;
    return info;
}

TEST(ExitStatusTest, EveryCodeAndEverySignalHasItsOwnText) {
    std::set<std::string> descriptions;
    for (int code = 0; code < 256; ++code) {
        const ExitStatus status = ExitStatus::from_siginfo(child_info(CLD_EXITED, code));
        EXPECT_EQ(status, ExitStatus::exited(code));
        EXPECT_EQ(status.exit_code, code);
        EXPECT_EQ(status.signal, 0);
        EXPECT_EQ(status.success(), code == 0);
        descriptions.insert(status.describe());
    }
    for (int number = 1; number <= 64; ++number) {
        for (const bool core : {false, true}) {
            const ExitStatus status =
                ExitStatus::from_siginfo(child_info(core ? CLD_DUMPED : CLD_KILLED, number));
            EXPECT_EQ(status, ExitStatus::signalled(number, core));
            EXPECT_EQ(status.exit_code, -1);
            EXPECT_EQ(status.signal, number);
            EXPECT_EQ(status.core_dumped, core);
            EXPECT_FALSE(status.success());
            descriptions.insert(status.describe());
        }
    }
    EXPECT_EQ(descriptions.size(), 256U + 64U * 2U);
}

TEST(ExitStatusTest, DescriptionNamesCodeOrSignal) {
    EXPECT_EQ(ExitStatus::exited(9).describe(), "exited with code 9");
    EXPECT_EQ(ExitStatus::signalled(SIGKILL, false).describe(), "was ended by SIGKILL");
    EXPECT_EQ(ExitStatus::signalled(SIGSEGV, true).describe(),
              "was ended by SIGSEGV (core dumped)");
    EXPECT_EQ(ExitStatus::signalled(40, false).describe(), "was ended by signal 40");
}

}  // namespace
}  // namespace regroup::agent
