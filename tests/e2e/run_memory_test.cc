// SPDX-License-Identifier: Apache-2.0
//
// The memory of an idle agent with its daemon and its warden.
#include <sys/prctl.h>

#include "tests/e2e/end_to_end.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REGROUP_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define REGROUP_SANITIZED 1
#endif
#endif

namespace regroup::testing {
namespace {

using ::testing::SizeIs;

// Most of it is the program's file, which all processes of the program share.
constexpr long kLimitKilobytes = 17 * 1024;
// The part that they do not share. A quarter of it is OpenSSL's tables, relocated in both
// processes.
constexpr long kOwnLimitKilobytes = 2 * 1024;

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
#ifdef REGROUP_SANITIZED
    GTEST_SKIP() << "a build with sanitizers keeps shadow memory";
#endif
    // With transparent huge pages, the stack of a thread may be one page of 2 MiB.
    ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    const std::string endpoint = "127.0.0.1:" + std::to_string(unused_port());
    Program job = run_probe(node(1, "1:2", endpoint) + Words{"--last-call=0"}, {"mark=up", "hold"});
    ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << job.output();
    const std::vector<pid_t> agents = children_of(job.pid());
    ASSERT_THAT(agents, SizeIs(1));
    const long warden = kilobytes_of(job.pid(), "VmRSS");
    const long agent = kilobytes_of(agents.front(), "VmRSS");
    const long own = kilobytes_of(job.pid(), "RssAnon") + kilobytes_of(agents.front(), "RssAnon");
    RecordProperty("warden_kilobytes", std::to_string(warden));
    RecordProperty("agent_kilobytes", std::to_string(agent));
    EXPECT_GT(warden, 0);
    EXPECT_GT(agent, 0);
    EXPECT_LE(warden + agent, kLimitKilobytes) << "warden " << warden << ", agent " << agent;
    EXPECT_GT(own, 0);
    EXPECT_LE(own, kOwnLimitKilobytes);
}

}  // namespace
}  // namespace regroup::testing
