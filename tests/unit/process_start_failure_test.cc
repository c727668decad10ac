// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/resource.h>

#include <gtest/gtest.h>

#include "agent/process/start_failure.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_directory.h"

namespace regroup::agent {
namespace {

namespace fs = std::filesystem;

TEST(StartFailure, ShortagesAndBusyFilesMayPass) {
    for (const int error :
         {EAGAIN, ENOMEM, EMFILE, ENFILE, ETXTBSY, ESTALE, EIO, ETIMEDOUT, EDQUOT}) {
        EXPECT_EQ(start_failure("execve", error).code, Errc::overloaded) << error;
    }
    for (const int error : {ENOENT, EACCES, ENOEXEC, EPERM, EINVAL, E2BIG, ELOOP, ENOTDIR}) {
        EXPECT_EQ(start_failure("execve", error).code, Errc::system) << error;
    }
    EXPECT_THAT(start_failure("execve", ETXTBSY).detail, HasSubstr("execve: "));
}

class ProcessLimitTest : public ::testing::Test {
   protected:
    void write(const std::string& file, const std::string& text) { folder_.write(file, text); }
    void limit(const std::string& folder, const std::string& most, const std::string& used) {
        write(folder + "/pids.max", most + "\n");
        write(folder + "/pids.current", used + "\n");
    }

    testing::TemporaryDirectory folder_;
    fs::path root_ = folder_.path();
};

TEST_F(ProcessLimitTest, FullCgroupAboveOurOwnIsNamedWithItsLimit) {
    write("proc/self/cgroup", "0::/pod/main\n");
    write("proc/self/mountinfo", "41 31 0:38 / /cg rw shared:9 - cgroup2 cgroup2 rw\n");
    limit("cg/pod/main", "max", "60");
    limit("cg/pod", "64", "64");
    EXPECT_THAT(reached_process_limit(root_), HasSubstr("/cg/pod allows 64 processes"));
    limit("cg/pod", "64", "63");
    EXPECT_EQ(reached_process_limit(root_).find("/cg/pod"), std::string::npos);
}

TEST_F(ProcessLimitTest, CgroupOfVersion1IsNamed) {
    write("proc/self/cgroup", "9:pids:/job\n3:memory:/other\n");
    write("proc/self/mountinfo", "32 31 0:32 / /cg/pids rw - cgroup cgroup rw,pids\n");
    limit("cg/pids/job", "10", "10");
    EXPECT_THAT(reached_process_limit(root_), HasSubstr("/cg/pids/job allows 10 processes"));
}

TEST_F(ProcessLimitTest, LimitOfTheUserIsNamedIfNoCgroupIsFull) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NPROC, &before), 0);
    const rlimit low{.rlim_cur = 12345, .rlim_max = before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NPROC, &low), 0);
    EXPECT_THAT(reached_process_limit(root_), HasSubstr("12345 processes and threads (ulimit -u)"));
    EXPECT_THAT(start_failure("clone", EAGAIN).detail, HasSubstr("processes"));
    ::setrlimit(RLIMIT_NPROC, &before);
}

}  // namespace
}  // namespace regroup::agent
