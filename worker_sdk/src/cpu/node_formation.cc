// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/node_formation.h"

#include <regroup/error.h>

#include <algorithm>
#include <array>
#include <bit>
#include <fstream>
#include <map>
#include <sched.h>
#include <sys/stat.h>
#include <type_traits>
#include <utility>

#include "worker_sdk/src/cpu/control_group.h"
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

/// The processors on which a rank may run, and what it knows of its node.
struct Processors {
    std::array<std::uint64_t, 16> mask{};
    std::uint64_t node_ranks = 1;
    ProcessorQuota quota{};
};

Processors processors(std::uint32_t node_ranks) {
    Processors result{.node_ranks = node_ranks, .quota = control_group_processors()};
    cpu_set_t set;
    static_assert(sizeof set == sizeof result.mask);
    // Fails on machines with more processors than fit: those are not short of any.
    if (::sched_getaffinity(0, sizeof set, &set) == 0) {
        result.mask = std::bit_cast<decltype(result.mask)>(set);
    } else {
        result.mask.fill(~std::uint64_t{0});
    }
    return result;
}

/// True if the ranks of the node have fewer processors than there are ranks.
bool is_crowded(const Table& table, std::uint32_t node_ranks) {
    Processors together{.node_ranks = table.world_size};
    std::map<std::uint64_t, std::uint64_t> quotas;  // by control group
    for (const Processors& of_rank : gather(table, processors(node_ranks))) {
        for (std::size_t i = 0; i < together.mask.size(); ++i) {
            together.mask[i] |= of_rank.mask[i];
        }
        together.node_ranks = std::max(together.node_ranks, of_rank.node_ranks);
        quotas[of_rank.quota.group] = of_rank.quota.processors;
    }
    std::uint64_t count = 0;
    for (const std::uint64_t word : together.mask) {
        count += static_cast<std::uint64_t>(std::popcount(word));
    }
    if (!quotas.contains(0)) {
        std::uint64_t allowed = 0;
        for (const auto& [group, processors] : quotas) {
            allowed += processors;
        }
        count = std::min(count, allowed);
    }
    return count < together.node_ranks;
}

}  // namespace

std::uint64_t node_identity(const Context& context) {
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    struct stat network{};
    if (boot.empty() || ::stat("/proc/self/ns/net", &network) != 0) {
        return 0;
    }
    return hash(boot + "/" + std::to_string(network.st_ino) + "/" +
                std::to_string(context.group_rank)) |
           1U;
}

SharedParts share_memory(const Table& table, std::size_t bytes, bool reserved) {
    enum class Outcome : std::uint64_t { good, no_memory, out_of_reach };
    // Asked before anybody takes any. The kernel would not say no: it would kill somebody.
    Outcome mine = bytes <= SharedMemory::available_bytes() / table.world_size ? Outcome::good
                                                                               : Outcome::no_memory;
    const std::vector<Outcome> hopes = gather(table, mine);
    const bool hopeful =
        std::all_of(hopes.begin(), hopes.end(), [](Outcome hope) { return hope == Outcome::good; });
    SharedMemory own;
    try {
        if (hopeful) {
            own = SharedMemory::create(bytes, reserved);
        }
    } catch (const Error&) {
        mine = Outcome::no_memory;
    }
    const std::vector<SharedMemory::Ticket> tickets = gather(table, own.ticket());
    SharedParts result;
    for (std::uint32_t rank = 0; rank < table.world_size; ++rank) {
        if (rank == table.rank) {
            result.parts.push_back(std::move(own));
        } else if (auto memory = SharedMemory::open(tickets[rank])) {
            result.parts.push_back(std::move(*memory));
        } else if (mine == Outcome::good) {
            mine = Outcome::out_of_reach;
        }
    }
    // A rank that has no memory is out of reach too, and is the one to name.
    const std::vector<Outcome> outcomes = gather(table, mine);
    for (const Outcome worst : {Outcome::no_memory, Outcome::out_of_reach}) {
        const auto found = std::find(outcomes.begin(), outcomes.end(), worst);
        if (found != outcomes.end() && result.problem.empty()) {
            result.problem = "rank " + std::to_string(found - outcomes.begin()) +
                             (worst == Outcome::no_memory
                                  ? " has no " + std::to_string(bytes) + " bytes of shared memory"
                                  : " cannot open the shared memory of every other rank (another "
                                    "container, another user, or no /proc)");
        }
    }
    if (!result.problem.empty()) {
        result.parts.clear();
    } else {
        result.parts[table.rank].close_ticket();
    }
    return result;
}

std::unique_ptr<NodeCollectives> form_node(const Table& table, std::uint32_t node_ranks,
                                           std::vector<std::string> names, std::string& problem) {
    SharedParts shared = share_memory(table, NodeMemory::segment_bytes(), false);
    if (shared.parts.empty()) {
        problem = shared.problem;
        return nullptr;
    }
    const bool crowded = is_crowded(table, node_ranks);
    return std::make_unique<NodeCollectives>(NodeMemory(std::move(shared.parts), crowded),
                                             table.rank, std::move(names));
}

}  // namespace regroup::cpu
