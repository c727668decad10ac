// SPDX-License-Identifier: Apache-2.0
//
// Host lists of Slurm. Each is taken or refused with a sentence, within the limits, and the names
// that it makes are a list of the same names.
#include "launcher/cluster/host_list.h"

#include "tests/fuzz/fuzz.h"

namespace regroup::fuzz_host_list {
namespace {

using namespace regroup::launcher;

std::string joined(const std::vector<std::string>& names) {
    std::string list;
    for (const std::string& name : names) {
        list.append(list.empty() ? "" : ",").append(name);
    }
    return list;
}

std::vector<std::string> seeds() {
    return {"linux[1,2]",
            "alpha,beta,gamma",
            "c1009a-s17,c1010a-s11",
            "b24-[1-3,5-9],b25-[1,4,8]",
            "nodeA,nodeB[001,003],nodeC",
            "rack[0-1]_blade[0-1]",
            "a[1-2]b[1-2]c[1-2]-ib",
            "n[08-10] n[098-101]\tlogin",
            "a[0-999999999]",
            "a[0-255]b[0-255]c[0-255]",
            "[1-3]"};
}

void test(const std::uint8_t* bytes, std::size_t count) {
    const std::string text(reinterpret_cast<const char*>(bytes), count);
    const auto names = expand_host_list(text);
    if (!names) {
        fuzz::require(names.error().code == Errc::invalid_argument && !names.error().detail.empty(),
                      "a refusal has a reason");
        fuzz::require(names.error().detail.size() < 200, "a refusal is short");
        return;
    }
    fuzz::require(!names->empty() && names->size() <= kHostsMax, "a list has its limits");
    for (const std::string& name : *names) {
        fuzz::require(!name.empty() && name.size() <= kHostNameMax, "a name has its limits");
    }
    const auto again = expand_host_list(joined(*names));
    fuzz::require(again && *again == *names, "the names of a list are a list of the same names");
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_host_list
