// SPDX-License-Identifier: Apache-2.0
//
// Host lists and host files as other launchers have them.

#include "launcher/cluster/host_file.h"
#include "tests/support/matchers.h"

namespace regroup::launcher {
namespace {

/// "ann@a:8 b" for these hosts.
std::string text_of(const Result<std::vector<HostEntry>>& hosts) {
    if (!hosts) {
        EXPECT_EQ(hosts.error().code, Errc::invalid_argument);
        EXPECT_THAT(hosts.error().detail, Not(HasSubstr("\n")));
        return "error: " + hosts.error().detail;
    }
    std::string text;
    for (const HostEntry& entry : *hosts) {
        text += (text.empty() ? "" : " ") + entry.destination() +
                (entry.slots ? ":" + std::to_string(*entry.slots) : "");
    }
    return text;
}

TEST(HostList, ItemsHaveUsersCountsAndBrackets) {
    const std::vector<std::pair<std::string, std::string>> table{
        {"a", "a"},
        {"a:8,b:4,c", "a:8 b:4 c"},
        {"ann@a:8,b", "ann@a:8 b"},
        {"ann@corp.example@a", "ann@corp.example@a"},
        {" a:8 , b ", "a:8 b"},
        {"10.0.0.7:2", "10.0.0.7:2"},
        {"node[1-3,7]:8,login", "node1:8 node2:8 node3:8 node7:8 login"},
        {"ann@gpu[08-10]", "ann@gpu08 ann@gpu09 ann@gpu10"},
        {"fd00::7", "fd00::7"},
        {"[fd00::7]:8,ann@[fd00::8]", "fd00::7:8 ann@fd00::8"},
        {"fe80::1%eth0", "fe80::1%eth0"},
    };
    for (const auto& [list, expected] : table) {
        EXPECT_EQ(text_of(parse_host_list(list)), expected) << list;
    }
}

TEST(HostList, MistakesAreNamed) {
    const std::vector<std::pair<std::string, std::string>> table{
        {"", "empty"},
        {"a,,b", "missing between two commas"},
        {"a b", "'a b'"},
        {"a:", "no number of workers"},
        {"a:0", "'0'"},
        {"a:x", "'x'"},
        {"a:-1", "'-1'"},
        {"a:99999999999", "number of workers"},
        {":8", "the host is missing"},
        {"@a", "no user name"},
        {"-oProxyCommand=x", "no host name"},
        {"a@-oProxyCommand=x", "no host name"},
        {"-l@a", "no user name"},
        {"a;reboot", "no host name"},
        {"$(reboot)", "no host name"},
        {"a,b,a", "twice"},
        {"n[1-3],n2", "twice"},
        {"[fd00::7:8", "not closed"},
        {"[fd00::7]8", "after the bracket"},
        {"node[1-", "is not closed"},
        {std::string(300, 'a'), "255 bytes"},
    };
    for (const auto& [list, expected] : table) {
        EXPECT_THAT(text_of(parse_host_list(list)),
                    AllOf(::testing::StartsWith("error: "), HasSubstr(expected)))
            << list;
    }
}

TEST(HostFile, FormOfOpenMpi) {
    EXPECT_EQ(text_of(parse_host_file("# the cluster\n"
                                      "node01 slots=10   # eight real ones\n"
                                      "\n"
                                      "\tuser@node02 slots = 4 max_slots=4\r\n"
                                      "node03 // no count\n"
                                      "/* node04 slots=1\n"
                                      "   node05 */ node06 max-slots=2\n"
                                      "node07 username=ann slots=1",
                                      "hosts")),
              "node01:10 user@node02:4 node03 node06:2 ann@node07:1");
}

TEST(HostFile, FormOfHydra) {
    EXPECT_EQ(text_of(parse_host_file("donner:2\nfoo:8 user=ann # b\nshakti\n", "hosts")),
              "donner:2 ann@foo:8 shakti");
}

TEST(HostFile, FormOfDeepSpeed) {
    EXPECT_EQ(text_of(parse_host_file("worker-1 slots=4\nworker-2 slots=4\n", "hosts")),
              "worker-1:4 worker-2:4");
}

TEST(HostFile, RepeatedPlainLinesCountAsInPbs) {
    EXPECT_EQ(text_of(parse_host_file("a\na\nb\na\n", "nodes")), "a:3 b");
}

TEST(HostFile, MistakesAreNamedWithTheirLine) {
    const std::vector<std::pair<std::string, std::string>> table{
        {"", "hosts names no host"},
        {"# only this\n", "hosts names no host"},
        {"a slots=4\n\na slots=4\n", "hosts, line 3: 'a' stands there twice, first in line 1"},
        {"a\na slots=4\n", "line 2: 'a' stands there twice"},
        {"a slots=4\na\n", "line 2: 'a' stands there twice"},
        {"a\nann@a\n", "line 2: 'a' stands there twice"},
        {"a slots=four\n", "line 1: 'four' is no number"},
        {"a slots=\n", "line 1: '' is no number"},
        {"a slots=8 max_slots=4\n", "slots=8 is above max_slots=4"},
        {"a:8 slots=8\n", "given twice"},
        {"ann@a user=bob\n", "the user is given twice"},
        {"a gpus=4\n", "line 1: 'gpus=4' is unknown; known are slots=N"},
        {"a b\n", "line 1: 'b' is unknown"},
        {"+n2 slots=4\n", "'+n2' is no host name"},
        {"a user=-oX\n", "no user name"},
        {std::string("\0\0\0", 3), "line 1"},
    };
    for (const auto& [text, expected] : table) {
        EXPECT_THAT(text_of(parse_host_file(text, "hosts")),
                    AllOf(::testing::StartsWith("error: "), HasSubstr(expected)))
            << text;
    }
    EXPECT_THAT(text_of(parse_host_file(std::string(kHostFileBytesMax + 1, 'a'), "hosts")),
                HasSubstr("larger than 4 MiB"));
}

TEST(HostFile, FileOfAWindowsEditorIsRead) {
    const auto hosts = parse_host_file(
        "\xEF\xBB\xBF"
        "a slots=2\r\n\r\nb\r\n",
        "hosts");
    ASSERT_TRUE(hosts) << hosts.error().detail;
    ASSERT_EQ(hosts->size(), 2U);
    EXPECT_EQ(hosts->front().host, "a");
}

}  // namespace
}  // namespace regroup::launcher
