// SPDX-License-Identifier: Apache-2.0
//
// The values of flags, lists of endpoints among them. Each is taken or refused with a sentence, and
// what an endpoint prints is read again.
#include "launcher/flag_values.h"

#include <set>

#include "launcher/run_plan.h"
#include "rendezvous/client/endpoint.h"
#include "tests/fuzz/fuzz.h"

namespace regroup::fuzz_flag_values {
namespace {

using namespace regroup::launcher;

void check_endpoints(const std::string& text) {
    const auto endpoints = rendezvous::parse_endpoints(text, 29400, "--rdzv-endpoint");
    if (!endpoints) {
        fuzz::require(!endpoints.error().detail.empty(), "a refusal has a reason");
        return;
    }
    fuzz::require(!endpoints->empty(), "a list of endpoints has one");
    for (const rendezvous::Endpoint& endpoint : *endpoints) {
        fuzz::require(!endpoint.host.empty(), "an endpoint has a host");
        const auto again = rendezvous::parse_endpoints(endpoint.text(), 29400, "--rdzv-endpoint");
        fuzz::require(again && again->size() == 1 && again->front() == endpoint,
                      "an endpoint is read as it is printed");
    }
}

std::vector<std::string> seeds() {
    // NOLINTBEGIN(bugprone-suspicious-missing-comma): a digit would belong to the number before it.
    return {std::string("\0a:29400,b,[::1]:1,2001:db8::7", 30),
            "\x01"
            "1.5",
            "\x02"
            "trainer",
            "\x03"
            "2:4",
            "\x04"
            "0:1,1:3",
            "\x05"
            "0,2,5",
            "\x06"
            "a,b,,c",
            "\x07"
            "SIGTERM,SIGINT",
            "\x08"
            "100M",
            "\x09"
            "1.13",
            "\x0A"
            "12",
            "\x0B"
            "[::1]:29400"};
    // NOLINTEND(bugprone-suspicious-missing-comma)
}

/// The first byte: which flag.
void test(const std::uint8_t* bytes, std::size_t count) {
    fuzz::Input input(bytes, count);
    const std::uint64_t flag = input.below(12);
    const std::string text(input.bytes(count));
    Duration duration{};
    std::string word;
    std::uint32_t min = 0;
    std::uint32_t max = 0;
    agent::StreamSpec streams;
    std::optional<std::set<std::uint32_t>> ranks;
    std::vector<std::string> words;
    std::vector<int> signals;
    std::uint64_t size = 0;
    store::Dialect dialect{};
    switch (flag) {
        case 0:
            check_endpoints(text);
            break;
        case 1:
            if (seconds_into(duration)(text).empty()) {
                fuzz::require(duration >= Duration::zero(), "a time is not negative");
            }
            break;
        case 2:
            (void)name_into(word)(text);
            break;
        case 3:
            if (node_range_into(min, max)(text).empty()) {
                fuzz::require(min >= 1 && min <= max, "a range is one");
            }
            break;
        case 4:
            (void)streams_into(streams)(text);
            break;
        case 5:
            (void)local_ranks_into(ranks)(text);
            break;
        case 6:
            (void)needles_into(words)(text);
            break;
        case 7:
            (void)signals_into(signals, word)(text);
            break;
        case 8:
            (void)bytes_into(size)(text);
            break;
        case 9:
            (void)dialect_into(dialect)(text);
            break;
        case 10:
            if (number_into<std::uint32_t>(min, 1, 100)(text).empty()) {
                fuzz::require(min >= 1 && min <= 100, "a number is within its limits");
            }
            break;
        default:
            if (const auto endpoint = rendezvous::Endpoint::parse(text)) {
                fuzz::require(rendezvous::Endpoint::parse(endpoint->text()) == endpoint,
                              "an endpoint is read as it is printed");
            }
    }
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_flag_values
