// SPDX-License-Identifier: Apache-2.0
//
// The memory of an idle agent with its daemon and its warden.
#include <sys/prctl.h>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"
#include "tests/support/sanitizer.h"

namespace regroup::testing {
namespace {

// The memory that the two processes do not share. A quarter of it is OpenSSL's tables, relocated in
// both. The rest of what they hold is the program's file, once for all processes; how much of that
// counts as theirs depends on what the kernel has in memory around the pages that they use.
constexpr long kOwnLimitKilobytes = 2 * 1024;
// Of the program's file and the libraries, for each.
constexpr long kFilesLimitKilobytes = 12 * 1024;

long kilobytes_of(pid_t pid, const std::string& field) {
    for (const std::string& line :
         lines_of(read_file("/proc/" + std::to_string(pid) + "/status"))) {
        if (line.starts_with(field + ":")) {
            return std::atol(line.c_str() + field.size() + 1);
        }
    }
    return -1;
}

class RunMemory : public EndToEnd {};

TEST_F(RunMemory, IdleAgentWithItsDaemonAndWardenIsSmall) {
    if (has_sanitizer()) {
        GTEST_SKIP() << "a build with sanitizers keeps shadow memory";
    }
    // With transparent huge pages, the stack of a thread may be one page of 2 MiB.
    ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    const std::string endpoint = "127.0.0.1:" + std::to_string(unused_port());
    Program job = run_probe(node(1, "1:2", endpoint) + Words{"--last-call=0"}, {"mark=up", "hold"});
    ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << job.output();
    const std::vector<pid_t> agents = children_of(job.pid());
    ASSERT_THAT(agents, SizeIs(1));
    long own = 0;
    for (const pid_t pid : {job.pid(), agents.front()}) {
        const long anonymous = kilobytes_of(pid, "RssAnon");
        const long files = kilobytes_of(pid, "RssFile");
        EXPECT_GT(anonymous, 0);
        EXPECT_LE(files, kFilesLimitKilobytes);
        own += anonymous;
    }
    RecordProperty("own_kilobytes", std::to_string(own));
    EXPECT_LE(own, kOwnLimitKilobytes);
}

}  // namespace
}  // namespace regroup::testing
