// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/cable.h"

#include <filesystem>
#include <unistd.h>

namespace regroup::testing {
namespace {

std::string find_tool(const std::string& name) {
    for (const char* place : {"/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"}) {
        if (std::filesystem::exists(place + name)) {
            return place + name;
        }
    }
    return "";
}

}  // namespace

Cable::Cable(bool ipv6)
    : ipv6_(ipv6),
      base_("regroup-test-" + std::to_string(::getpid())),
      names_{base_ + "-a", base_ + "-b"} {}

Cable::~Cable() {
    for (const std::string& name : names_) {
        if (std::filesystem::exists("/run/netns/" + name)) {
            ip({"netns", "delete", name});
        }
    }
}

std::optional<std::string> Cable::lay() {
    if (::geteuid() != 0) {
        return "network namespaces need root";
    }
    if (find_tool("ip").empty() || find_tool("unshare").empty()) {
        return "the programs ip (iproute2) and unshare (util-linux) are needed";
    }
    for (const std::string& name : names_) {
        if (!ip({"netns", "add", name})) {
            return "network namespaces cannot be made here: " + said_;
        }
    }
    if (!ip({"netns", "exec", names_[0], "true"})) {
        return "no program can be run in a network namespace here: " + said_;
    }
    if (!ip({"link", "add", "cable0", "netns", names_[0], "type", "veth", "peer", "name", "cable0",
             "netns", names_[1]})) {
        return "virtual network cables cannot be made here: " + said_;
    }
    for (int i = 0; i < 2; ++i) {
        const std::string& name = names_[static_cast<std::size_t>(i)];
        const std::string number = std::to_string(i + 1);
        if (ipv6_) {
            // nodad: duplicate address detection takes a second.
            ip({"-n", name, "address", "add", "fd77::" + number + "/64", "dev", "cable0", "nodad"});
        } else {
            ip({"-n", name, "address", "add", "10.77.0." + number + "/24", "dev", "cable0"});
        }
        ip({"-n", name, "link", "set", "lo", "up"});
        if (ipv6_) {
            ip({"-n", name, "-4", "address", "flush", "dev", "lo"});
        }
        ip({"-n", name, "link", "set", "cable0", "up"});
    }
    return std::nullopt;
}

void Cable::pull() {
    ip({"-n", names_[1], "link", "set", "cable0", "down"});
}

void Cable::plug() {
    ip({"-n", names_[1], "link", "set", "cable0", "up"});
}

Words Cable::inside(std::size_t index, const std::string& host, const Words& command) const {
    return Words{find_tool("ip"),
                 "netns",
                 "exec",
                 names_[index],
                 find_tool("unshare"),
                 "--uts",
                 "/bin/sh",
                 "-c",
                 "hostname " + host + " && exec \"$0\" \"$@\""} +
           command;
}

bool Cable::ip(const Words& words) {
    Program program({Words{find_tool("ip")} + words, {}, ""});
    const bool done = program.wait() == 0;
    said_ = program.output();
    return done;
}

}  // namespace regroup::testing
