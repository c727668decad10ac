// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/node_formation.h"

#include <regroup/error.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <map>
#include <sys/stat.h>
#include <type_traits>
#include <utility>

#include "worker_sdk/src/base/checksum.h"
#include "worker_sdk/src/base/control_group.h"
#include "worker_sdk/src/cpu/group_formation.h"

namespace regroup::cpu {
namespace {

template <class T>
std::vector<T> gather(const Table& table, const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(table.world_size);
    table.gather({&mine, sizeof mine, DType::uint8},
                 {all.data(), all.size() * sizeof mine, DType::uint8});
    return all;
}

enum class Outcome : std::uint64_t { good, no_memory, out_of_reach };

/// The memory of all ranks, as far as this rank can open it, and the outcome.
struct Opened {
    std::vector<SharedMemory> parts{};
    Outcome outcome = Outcome::good;
};

Opened open_all(const Table& table, SharedMemory own,
                const std::vector<SharedMemory::Ticket>& tickets) {
    Opened opened;
    const auto open_some = [&](std::uint32_t first, std::uint32_t end) {
        for (std::uint32_t rank = first; rank < end; ++rank) {
            if (auto memory = SharedMemory::open(tickets[rank])) {
                opened.parts.push_back(std::move(*memory));
            } else {
                opened.outcome = Outcome::out_of_reach;
            }
        }
    };
    open_some(0, table.rank);
    opened.parts.push_back(std::move(own));
    open_some(table.rank + 1, table.world_size);
    return opened;
}

/// The reason why the ranks cannot share memory; empty if they can. A rank without memory is also
/// unreachable for the others, so the text names a rank without memory first.
std::string problem_among(const std::vector<Outcome>& outcomes, std::size_t bytes) {
    for (const Outcome worst : {Outcome::no_memory, Outcome::out_of_reach}) {
        const auto found = std::find(outcomes.begin(), outcomes.end(), worst);
        if (found != outcomes.end()) {
            return "rank " + std::to_string(found - outcomes.begin()) +
                   (worst == Outcome::no_memory
                        ? " has no " + std::to_string(bytes) + " bytes of shared memory"
                        : " cannot open the shared memory of every other rank (another "
                          "container, another user, or no /proc)");
        }
    }
    return {};
}

/// Combines the outcomes of all ranks.
SharedParts settle(const Table& table, Opened opened, Outcome mine, std::size_t bytes) {
    SharedParts result{.parts = std::move(opened.parts),
                       .problem = problem_among(gather(table, mine), bytes)};
    if (!result.problem.empty()) {
        result.parts.clear();
    } else {
        result.parts[table.rank].close_ticket();
    }
    return result;
}

/// True if the ranks of the node have fewer processors than there are ranks.
bool is_crowded(const std::vector<NodeOffer>& offers) {
    auto together = decltype(NodeOffer::processors){};
    std::uint64_t node_ranks = offers.size();
    std::map<std::uint64_t, std::uint64_t> quotas;  // by control group
    for (const NodeOffer& of_rank : offers) {
        for (std::size_t i = 0; i < together.size(); ++i) {
            together[i] |= of_rank.processors[i];
        }
        node_ranks = std::max(node_ranks, of_rank.node_ranks);
        quotas[of_rank.quota.group] = of_rank.quota.processors;
    }
    std::uint64_t count = 0;
    for (const std::uint64_t word : together) {
        count += static_cast<std::uint64_t>(std::popcount(word));
    }
    if (!quotas.contains(0)) {
        std::uint64_t allowed = 0;
        for (const auto& [group, processors] : quotas) {
            allowed += processors;
        }
        count = std::min(count, allowed);
    }
    return count < node_ranks;
}

}  // namespace

std::uint64_t node_identity(const Context& context) {
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    struct stat network{};
    if (boot.empty() || ::stat("/proc/self/ns/net", &network) != 0) {
        return 0;
    }
    return checksum(boot + "/" + std::to_string(network.st_ino) + "/" +
                    std::to_string(context.group_rank)) |
           1U;
}

SharedParts share_memory(const Table& table, std::size_t bytes) {
    // Check before any rank allocates: the kernel overcommits memory and would kill a process
    // later.
    Outcome mine =
        bytes <= available_memory_bytes() / table.world_size ? Outcome::good : Outcome::no_memory;
    const std::vector<Outcome> hopes = gather(table, mine);
    const bool hopeful =
        std::all_of(hopes.begin(), hopes.end(), [](Outcome hope) { return hope == Outcome::good; });
    SharedMemory own;
    try {
        if (hopeful) {
            own = SharedMemory::create(bytes, true);
        }
    } catch (const Error&) {
        mine = Outcome::no_memory;
    }
    const std::vector<SharedMemory::Ticket> tickets = gather(table, own.ticket());
    Opened opened = open_all(table, std::move(own), tickets);
    if (mine == Outcome::good) {
        mine = opened.outcome;
    }
    return settle(table, std::move(opened), mine, bytes);
}

std::unique_ptr<NodeCollectives> form_node(const Table& table, SharedMemory own,
                                           const std::vector<NodeOffer>& offers,
                                           std::vector<std::string> names, std::string& problem) {
    std::vector<SharedMemory::Ticket> tickets;
    std::vector<Outcome> hopes;
    for (const NodeOffer& offer : offers) {
        tickets.push_back(offer.memory);
        hopes.push_back(offer.memory.bytes > 0 ? Outcome::good : Outcome::no_memory);
    }
    problem = problem_among(hopes, NodeMemory::segment_bytes());
    if (!problem.empty()) {
        return nullptr;  // All ranks return here for the same reason.
    }
    Opened opened = open_all(table, std::move(own), tickets);
    const Outcome mine = opened.outcome;
    SharedParts shared = settle(table, std::move(opened), mine, NodeMemory::segment_bytes());
    if (shared.parts.empty()) {
        problem = shared.problem;
        return nullptr;
    }
    return std::make_unique<NodeCollectives>(
        NodeMemory(std::move(shared.parts), is_crowded(offers)), table.rank, std::move(names));
}

}  // namespace regroup::cpu
