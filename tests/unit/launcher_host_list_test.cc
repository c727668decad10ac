// SPDX-License-Identifier: Apache-2.0

#include "launcher/cluster/host_list.h"
#include "tests/support/matchers.h"

namespace regroup::launcher {
namespace {

std::string expanded(const std::string& list) {
    const Result<std::vector<std::string>> names = expand_host_list(list);
    if (!names) {
        return names.error().detail;
    }
    std::string text;
    for (const std::string& name : *names) {
        text.append(text.empty() ? "" : " ").append(name);
    }
    return text;
}

std::string refusal_of(const std::string& list) {
    const Result<std::vector<std::string>> names = expand_host_list(list);
    if (names) {
        return "no error, but " + std::to_string(names->size()) + " hosts";
    }
    EXPECT_EQ(names.error().code, Errc::invalid_argument);
    EXPECT_THAT(names.error().detail, Not(HasSubstr("\n")));
    return names.error().detail;
}

struct Sample {
    const char* list;
    const char* names;
};

// Expected names: those that `scontrol show hostnames` of Slurm 22.05.8 prints, except for the
// suffixes behind the last bracket, which later versions take.
TEST(HostList, IsExpandedAsBySlurm) {
    const Sample samples[] = {
        {"node7", "node7"},
        {"linux[1,2]", "linux1 linux2"},
        {"alpha,beta,gamma", "alpha beta gamma"},
        {"gpu-dy-g4dnxlarge-[1-4]",
         "gpu-dy-g4dnxlarge-1 gpu-dy-g4dnxlarge-2 gpu-dy-g4dnxlarge-3 gpu-dy-g4dnxlarge-4"},
        {"c1009a-s17,c1010a-s11", "c1009a-s17 c1010a-s11"},
        {"b24-[1-3,5-9],b25-[1,4,8]",
         "b24-1 b24-2 b24-3 b24-5 b24-6 b24-7 b24-8 b24-9 b25-1 b25-4 b25-8"},
        {"nodeA,nodeB[001,003],nodeC", "nodeA nodeB001 nodeB003 nodeC"},
        {"ml-16-node-[001-002,004],ml-17-node-[001-003]",
         "ml-16-node-001 ml-16-node-002 ml-16-node-004 ml-17-node-001 ml-17-node-002 "
         "ml-17-node-003"},
        {"rack[0-1]_blade[0-1]", "rack0_blade0 rack0_blade1 rack1_blade0 rack1_blade1"},
        {"c427-032,c429-002", "c427-032 c429-002"},
        {"host-[001-002]", "host-001 host-002"},
        {"[1-3]", "1 2 3"},
        {"n[18]", "n18"},
        {"n[1-2],n[1-2]", "n1 n2 n1 n2"},
    };
    for (const Sample& sample : samples) {
        EXPECT_EQ(expanded(sample.list), sample.names) << sample.list;
    }
}

TEST(HostList, FirstNumberOfARangeGivesTheWidth) {
    EXPECT_EQ(expanded("n[8-10]"), "n8 n9 n10");
    EXPECT_EQ(expanded("n[08-10]"), "n08 n09 n10");
    EXPECT_EQ(expanded("n[098-101]"), "n098 n099 n100 n101");
    EXPECT_EQ(expanded("n[1,02-03,4]"), "n1 n02 n03 n4");
    EXPECT_EQ(expanded("n[9-0010]"), "n9 n10");
}

TEST(HostList, LastBracketCountsFastestAndTheOneBeforeItSlowest) {
    EXPECT_EQ(expanded("a[1-2]b[1-2]c[1-2]"),
              "a1b1c1 a1b1c2 a2b1c1 a2b1c2 a1b2c1 a1b2c2 a2b2c1 a2b2c2");
    EXPECT_EQ(expanded("a[1-2]b[1-2]c[1-2]d[1-2]"),
              "a1b1c1d1 a1b1c1d2 a2b1c1d1 a2b1c1d2 a1b2c1d1 a1b2c1d2 a2b2c1d1 a2b2c1d2 "
              "a1b1c2d1 a1b1c2d2 a2b1c2d1 a2b1c2d2 a1b2c2d1 a1b2c2d2 a2b2c2d1 a2b2c2d2");
}

TEST(HostList, TextMayFollowTheLastBracket) {
    EXPECT_EQ(expanded("n[1-2]-ib"), "n1-ib n2-ib");
    EXPECT_EQ(expanded("n[1-2]-ib[0-1].cluster,login"),
              "n1-ib0.cluster n1-ib1.cluster n2-ib0.cluster n2-ib1.cluster login");
}

TEST(HostList, CommasAndBlanksSeparateItems) {
    EXPECT_EQ(expanded("a b\tc\nd,e"), "a b c d e");
    EXPECT_EQ(expanded(",a,, b ,"), "a b");
}

TEST(HostList, RefusalNamesThePlaceAndTheMistake) {
    const Sample samples[] = {
        {"", "the host list is empty"},
        {" ,", "the host list is empty"},
        {"a,n[4-1]", "host list, character 5: the range \"4-1\" ends before it begins"},
        {"n[]", "host list, character 3: \"\" is no number, and no range such as 1-4"},
        {"n[1,]", "host list, character 5: \"\" is no number, and no range such as 1-4"},
        {"n[-1]", "host list, character 3: \"-1\" is no number, and no range such as 1-4"},
        {"n[1-]", "host list, character 3: \"1-\" is no number, and no range such as 1-4"},
        {"n[1-2-3]", "host list, character 3: \"1-2-3\" is no number, and no range such as 1-4"},
        {"n[1 ,2]", "host list, character 3: \"1 \" is no number, and no range such as 1-4"},
        {"n[+1]", "host list, character 3: \"+1\" is no number, and no range such as 1-4"},
        {"n[0x1]", "host list, character 3: \"0x1\" is no number, and no range such as 1-4"},
        {"n[000x333]",
         "host list, character 3: \"000x333\" is no number, and no range such as 1-4"},
        {"n[1234567890123456789]",
         "host list, character 3: \"1234567890123456789\" is no number, and no range such as 1-4"},
        {"n[1-2", "host list, character 2: this [ is not closed"},
        {"n[1-2]m[3", "host list, character 8: this [ is not closed"},
        {"n[[1-2]]", "host list, character 2: this [ is not closed"},
        {"n[1-2]]", "host list, character 7: this ] closes no bracket"},
        {"a n1]", "host list, character 5: this ] closes no bracket"},
        {"a\x01", "host list, character 2: a control character"},
    };
    for (const Sample& sample : samples) {
        EXPECT_EQ(refusal_of(sample.list), sample.names) << sample.list;
    }
}

TEST(HostList, ShortTextThatMeansTooManyHostsIsRefused) {
    EXPECT_EQ(refusal_of("a[0-999999999]"),
              "host list, character 3: with \"0-999999999\" the list has more than 65536 hosts");
    EXPECT_THAT(refusal_of("a[0-255]b[0-255]c[0-1]"), HasSubstr("character 19: with \"0-1\""));
    EXPECT_THAT(refusal_of("a[0-65535],b"), HasSubstr("character 12: the list has more than"));
    EXPECT_THAT(refusal_of("a[0-65535],b[1]"), HasSubstr("more than 65536 hosts"));
    EXPECT_THAT(refusal_of("a[0-65534,7,8]"), HasSubstr("character 13: with \"8\""));
    const Result<std::vector<std::string>> most = expand_host_list("a[0-255]b[0-255]");
    ASSERT_TRUE(most) << most.error().detail;
    EXPECT_THAT(*most, SizeIs(65536));
    EXPECT_EQ(most->back(), "a255b255");
}

TEST(HostList, NameOfMoreThan255BytesIsRefused) {
    EXPECT_EQ(expanded(std::string(255, 'n')), std::string(255, 'n'));
    EXPECT_THAT(refusal_of("a," + std::string(254, 'n') + "[9-10]"),
                AllOf(HasSubstr("character 3:"), HasSubstr("more than 255 bytes")));
}

TEST(HostList, RefusalIsShortForALongList) {
    const std::string digits(5000, '7');
    EXPECT_LT(refusal_of("n[" + digits + "]").size(), 200U);
}

}  // namespace
}  // namespace regroup::launcher
