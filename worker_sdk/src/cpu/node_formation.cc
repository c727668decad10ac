// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/node_formation.h"

#include <regroup/error.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <map>
#include <sys/stat.h>
#include <thread>
#include <type_traits>
#include <utility>

#include "worker_sdk/src/base/checksum.h"
#include "worker_sdk/src/base/control_group.h"
#include "worker_sdk/src/cpu/futex.h"
#include "worker_sdk/src/cpu/group_formation.h"

namespace regroup::cpu {
namespace {

constexpr Duration kVerdictCheckInterval = std::chrono::milliseconds(20);
/// The others are usually about to answer.
constexpr int kLooksBeforeSleep = 20;

template <class T>
std::vector<T> gather(const Table& table, const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(table.world_size);
    table.gather({&mine, sizeof mine, DType::uint8},
                 {all.data(), all.size() * sizeof mine, DType::uint8});
    return all;
}

enum class Outcome : std::uint64_t { good, out_of_reach, no_memory };

/// An outcome with its rank. Of several, the one with the largest number is told: a rank without
/// memory is also out of reach for the others; then the first rank.
std::uint64_t number_of(Outcome outcome, std::uint32_t rank) {
    return outcome == Outcome::good ? 0 : static_cast<std::uint64_t>(outcome) << 32U | ~rank;
}

/// The reason why some ranks cannot share memory; empty if all can.
std::string problem_of(std::uint64_t number, std::size_t bytes) {
    if (number == 0) {
        return {};
    }
    const auto outcome = static_cast<Outcome>(number >> 32U);
    return "rank " + std::to_string(~static_cast<std::uint32_t>(number)) +
           (outcome == Outcome::no_memory
                ? " has no " + std::to_string(bytes) + " bytes of shared memory"
                : " cannot open the shared memory of every other rank (another container, "
                  "another user, or no /proc)");
}

/// The memory of the neighbours, as far as this rank can open it, and the outcome.
struct Opened {
    std::vector<SharedMemory> parts{};
    Outcome outcome = Outcome::good;
};

Opened open_all(const std::vector<std::uint32_t>& neighbours, std::uint32_t rank, SharedMemory own,
                const std::function<SharedMemory::Ticket(std::uint32_t)>& ticket_of) {
    Opened opened;
    for (const std::uint32_t neighbour : neighbours) {
        if (neighbour == rank) {
            // NOLINTNEXTLINE(bugprone-use-after-move): it is in the list once.
            opened.parts.push_back(std::move(own));
        } else if (auto memory = SharedMemory::open(ticket_of(neighbour))) {
            opened.parts.push_back(std::move(*memory));
        } else {
            opened.outcome = Outcome::out_of_reach;
        }
    }
    return opened;
}

/// The other ranks of this rank's node.
std::vector<Neighbour> neighbours_of(const std::vector<Peer>& peers, const NodeLayout& layout) {
    std::vector<Neighbour> others;
    for (std::uint32_t place = 0; place < layout.neighbours().size(); ++place) {
        const std::uint32_t rank = layout.neighbours()[place];
        if (place != layout.local) {
            others.push_back({.rank = rank,
                              .place = place,
                              .button = Doorbell::button_of(peers[rank].offer->doorbell)});
        }
    }
    return others;
}

/// The reason against sharing memory, as far as the offers tell: a rank that has neighbours,
/// and no memory.
std::uint64_t worst_offer(const std::vector<Peer>& peers, const NodeLayout& layout) {
    std::uint64_t worst = 0;
    for (const std::vector<std::uint32_t>& ranks : layout.nodes) {
        for (const std::uint32_t rank : ranks) {
            if (ranks.size() > 1 && peers[rank].offer->memory.bytes == 0) {
                worst = std::max(worst, number_of(Outcome::no_memory, rank));
            }
        }
    }
    return worst;
}

void say(std::atomic<std::uint32_t>& verdict, bool yes) {
    verdict = yes ? kYes : kNo;
    wake_all(verdict);
}

/// Waits for the verdict of `peer`.
bool hear(const std::atomic<std::uint32_t>& verdict, const Agreement& agreement, const Peer& peer) {
    for (int looks = 0; verdict == kUndecided && looks < kLooksBeforeSleep; ++looks) {
        std::this_thread::yield();
    }
    while (verdict == kUndecided) {
        agreement.check();
        const Duration left = agreement.deadline - SteadyClock().now();
        if (left <= Duration::zero()) {
            throw Error(Errc::deadline_exceeded, peer.name + " has not joined in");
        }
        sleep_on(verdict, kUndecided, std::min(left, kVerdictCheckInterval));
    }
    return verdict == kYes;
}

/// Combines the outcomes of all ranks.
SharedParts settle(const Table& table, const std::vector<std::uint32_t>& neighbours, Opened opened,
                   Outcome mine, std::size_t bytes) {
    SharedParts result{.parts = std::move(opened.parts),
                       .problem = problem_of(table.maximum(number_of(mine, table.rank)), bytes)};
    if (!result.problem.empty()) {
        result.parts.clear();
    } else {
        const auto own = std::find(neighbours.begin(), neighbours.end(), table.rank);
        result.parts[static_cast<std::size_t>(own - neighbours.begin())].close_ticket();
    }
    return result;
}

}  // namespace

bool is_crowded(const std::vector<Peer>& peers, std::uint32_t rank) {
    std::vector<NodeOffer> offers;
    for (const Peer& peer : peers) {
        if (peer.offer && peers[rank].offer && peer.offer->machine == peers[rank].offer->machine) {
            offers.push_back(*peer.offer);
        }
    }
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

std::uint64_t node_identity(const Context& context) {
    const std::uint64_t machine = machine_identity();
    struct stat network{};
    if (machine == 0 || ::stat("/proc/self/ns/net", &network) != 0) {
        return 0;
    }
    return checksum(std::to_string(machine) + "/" + std::to_string(network.st_ino) + "/" +
                    std::to_string(context.group_rank)) |
           1U;
}

SharedParts share_memory(const Table& table, const std::vector<std::uint32_t>& neighbours,
                         std::size_t bytes) {
    // Check before any rank allocates: the kernel overcommits memory and would kill a process
    // later.
    const bool is_hopeful = bytes <= available_memory_bytes() / neighbours.size();
    Outcome mine = is_hopeful ? Outcome::good : Outcome::no_memory;
    const bool all_hopeful = table.maximum(number_of(mine, table.rank)) == 0;
    SharedMemory own;
    try {
        if (all_hopeful) {
            own = SharedMemory::create(bytes, true);
        }
    } catch (const Error&) {
        mine = Outcome::no_memory;
    }
    const std::vector<SharedMemory::Ticket> tickets = gather(table, own.ticket());
    Opened opened = open_all(neighbours, table.rank, std::move(own),
                             [&](std::uint32_t rank) { return tickets[rank]; });
    if (mine == Outcome::good) {
        mine = opened.outcome;
    }
    return settle(table, neighbours, std::move(opened), mine, bytes);
}

std::optional<SharedNode> form_nodes(const std::vector<Peer>& peers, const NodeLayout& layout,
                                     SharedMemory own, const Agreement& agreement,
                                     std::string& problem) {
    const std::uint64_t without_memory = worst_offer(peers, layout);
    if (without_memory != 0) {
        problem = problem_of(without_memory, NodeMemory::segment_bytes());
        return std::nullopt;  // All ranks return here for the same reason.
    }
    const std::vector<std::uint32_t>& neighbours = layout.neighbours();
    const std::uint32_t rank = neighbours[layout.local];
    const bool is_alone = neighbours.size() == 1;
    NodeMemory::Board* const board = is_alone ? nullptr : &NodeMemory::board_of(own);
    Opened opened;
    SharedNode node;
    std::uint64_t worst = 0;
    if (!is_alone) {
        opened = open_all(neighbours, rank, std::move(own),
                          [&](std::uint32_t neighbour) { return peers[neighbour].offer->memory; });
        node.neighbours = neighbours_of(peers, layout);
        if (std::any_of(node.neighbours.begin(), node.neighbours.end(),
                        [](const Neighbour& neighbour) { return !neighbour.button; })) {
            opened.outcome = Outcome::out_of_reach;
        }
        say(board->opens_all, opened.outcome == Outcome::good);
        worst = number_of(opened.outcome, rank);
        for (std::size_t place = 0; worst == 0 && place < neighbours.size(); ++place) {
            const Peer& peer = peers[neighbours[place]];
            if (!hear(NodeMemory::board_of(opened.parts[place]).opens_all, agreement, peer)) {
                worst = number_of(Outcome::out_of_reach, neighbours[place]);
            }
        }
    }
    bool all_share = worst == 0;
    if (layout.nodes.size() > 1) {
        if (layout.local == 0) {
            all_share = agreement.among_nodes(all_share);
            if (board != nullptr) {
                say(board->all_share, all_share);
            }
        } else if (all_share) {
            all_share = hear(NodeMemory::board_of(opened.parts.front()).all_share, agreement,
                             peers[neighbours.front()]);
        }
    }
    if (!all_share) {
        problem = worst == 0 ? "the ranks of another node cannot"
                             : problem_of(worst, NodeMemory::segment_bytes());
        return std::nullopt;
    }
    if (!is_alone) {
        opened.parts[layout.local].close_ticket();
        node.memory =
            std::make_shared<const NodeMemory>(std::move(opened.parts), is_crowded(peers, rank));
    }
    return node;
}

}  // namespace regroup::cpu
