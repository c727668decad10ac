// SPDX-License-Identifier: Apache-2.0
//
// Messages between ranks: offers of node memory, standings, and signatures of collectives.
#include "tests/fuzz/fuzz.h"
#include "worker_sdk/src/cpu/node_offer.h"
#include "worker_sdk/src/cpu/wire.h"
#include "worker_sdk/src/group/standing.h"

namespace regroup::fuzz_worker_wire {
namespace {

using namespace regroup::cpu;

/// A wire struct that arrives in pieces.
template <WireStruct T>
T take(fuzz::Input& input) {
    Partial<T> partial;
    while (!partial.complete()) {
        const auto space = partial.space();
        const std::string_view piece = input.bytes(std::min<std::size_t>(space.size(), 7));
        std::memcpy(space.data(), piece.data(), piece.size());
        partial.filled(piece.empty() ? space.size() : piece.size());
    }
    return partial.value();
}

void check_offer(std::string_view text) {
    if (const auto offer = NodeOffer::parse(text)) {
        const auto again = NodeOffer::parse(offer->text());
        fuzz::require(again && again->text() == offer->text(), "an offer is read as it is written");
        (void)offer->shares();
    }
}

std::vector<std::string> seeds() {
    Standing standing;
    standing.version = 3;
    standing.called = 17;
    standing.latest.number = 17;
    standing.latest.kind = OperationKind::all_reduce;
    const auto bytes = bytes_of(standing);
    return {'\0' + NodeOffer{}.text(),
            "\x01\x02" + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
}

void test(const std::uint8_t* bytes, std::size_t count) {
    fuzz::Input input(bytes, count);
    if (input.byte() == 0) {
        check_offer(input.bytes(count));
        return;
    }
    constexpr std::uint32_t kRanks = 4;
    const std::uint32_t others[] = {1, 2, 3};
    Standings standings;
    Instant now{};
    while (!input.empty()) {
        const std::uint32_t rank = input.byte() % kRanks;
        const auto standing = take<Standing>(input);
        now += std::chrono::milliseconds(input.byte());
        if (standings.note(rank, standing, now)) {
            fuzz::require(standings.latest_of(rank) == standing.latest, "the newest one counts");
        }
        (void)describe(standing);
        const Signature& latest = standings.latest_of((rank + 1) % kRanks);
        if (differ(standing.latest, latest)) {
            (void)disagreement("rank 1", standing.latest, "rank 2", describe(latest));
        }
        GroupFailure failure;
        failure.expired = {.number = standing.called, .limit = std::chrono::seconds(1)};
        (void)standings.have_answered(others, now);
        (void)standings.explain(std::move(failure), now, others,
                                [](std::uint32_t other) { return std::to_string(other); });
    }
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_worker_wire
