// SPDX-License-Identifier: Apache-2.0
//
// The texts that `regroup launch-ssh` reads: host files and lists of people, lines of hosts, and on
// a host the orders of a launcher. Each is taken within the limits, or refused with a sentence.
#include "launcher/cluster/host_file.h"
#include "launcher/cluster/host_list.h"
#include "launcher/ssh/messages.h"
#include "rendezvous/protocol/framing.h"
#include "tests/fuzz/fuzz.h"

namespace regroup::fuzz_ssh_launch {
namespace {

using namespace regroup::launcher;

constexpr const char* kWord = "word";

void check_hosts(const Result<std::vector<HostEntry>>& hosts) {
    if (!hosts) {
        fuzz::require(hosts.error().code == Errc::invalid_argument, "a refusal is of the text");
        fuzz::require(!hosts.error().detail.empty() && hosts.error().detail.size() < 600,
                      "a refusal has a short reason");
        return;
    }
    fuzz::require(!hosts->empty() && hosts->size() <= kHostsMax, "a list has its limits");
    std::string list;
    for (const HostEntry& entry : *hosts) {
        // ssh would take it for a flag.
        fuzz::require(!entry.destination().starts_with('-') && !entry.host.starts_with('-'),
                      "a host is no flag");
        fuzz::require(
            entry.destination().find_first_of(" \t\n\r'\"`$;|&<>()\\") == std::string::npos,
            "a host is one plain word");
        const bool is_address = entry.host.find(':') != std::string::npos;
        list += (list.empty() ? "" : ",") + (entry.user.empty() ? "" : entry.user + "@") +
                (is_address ? "[" + entry.host + "]" : entry.host) +
                (entry.slots ? ":" + std::to_string(*entry.slots) : "");
    }
    const auto again = parse_host_list(list);
    fuzz::require(again && *again == *hosts, "hosts are read as they are written");
}

void check_report(const std::string& text) {
    const auto report = ssh::parse_line(kWord, text);
    if (!report) {
        return;
    }
    const std::string line = ssh::line_of(kWord, *report);
    fuzz::require(line.size() < (std::size_t{64} << 10), "a report is one line of bounded length");
    fuzz::require(line.find('\n') == line.size() - 1, "a report is one line");
    fuzz::require(ssh::parse_line(kWord, line.substr(0, line.size() - 1)).has_value(),
                  "a report is read as it is written");
}

void check_order(const std::string& text) {
    const auto order = ssh::decode(text);
    if (!order) {
        fuzz::require(order.error().code == Errc::invalid_argument, "a refusal is of the bytes");
        return;
    }
    const auto frame = ssh::encode(*order);
    fuzz::require(!frame || ssh::decode(frame->substr(protocol::kFrameHeaderBytes)).has_value(),
                  "an order is read as it is written");
}

std::vector<std::string> seeds() {
    std::vector<std::string> all{"a:8,ann@b:4,node[01-03,7]:2,[fd00::7]:8",
                                 "# c\nnode01 slots=10\nuser@node02 slots = 4 max_slots=4 // x\n",
                                 "donner:2\nfoo:8 user=ann\n/* a\n*/ b\n", "a\na\nb\n"};
    for (const ssh::Report& report :
         {ssh::Report(ssh::Ready{"10.0.0.1"}), ssh::Report(ssh::Refused{"no"}),
          ssh::Report(ssh::Serving{7}), ssh::Report(ssh::JobLine{"round 2", "round 2"}),
          ssh::Report(ssh::Alive{}), ssh::Report(ssh::Ended{7, 0, true, {"x", "y"}})}) {
        std::string line = ssh::line_of(kWord, report);
        line.pop_back();
        all.push_back(line);
    }
    for (const ssh::Order& order :
         {ssh::Order(ssh::Setup{"w", "a", "/", {"A=b"}, std::chrono::seconds(1)}),
          ssh::Order(ssh::Start{1, true, {"x"}, "t"}), ssh::Order(ssh::Signal{15})}) {
        all.push_back(ssh::encode(order)->substr(protocol::kFrameHeaderBytes));
    }
    return all;
}

void test(const std::uint8_t* bytes, std::size_t count) {
    const std::string text(reinterpret_cast<const char*>(bytes), count);
    check_hosts(parse_host_list(text));
    check_hosts(parse_host_file(text, "hosts"));
    check_report(text);
    check_order(text);
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_ssh_launch
