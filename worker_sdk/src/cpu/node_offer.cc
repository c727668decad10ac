// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/node_offer.h"

#include <regroup/error.h>

#include <bit>
#include <fstream>
#include <mutex>
#include <sched.h>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/base/checksum.h"
#include "worker_sdk/src/base/control_group.h"
#include "worker_sdk/src/base/text.h"
#include "worker_sdk/src/cpu/node_memory.h"
#include "worker_sdk/src/cpu/wire.h"

namespace regroup::cpu {
namespace {

static_assert(WireStruct<NodeOffer>);

std::array<std::uint64_t, 16> own_processors() {
    std::array<std::uint64_t, 16> mask{};
    cpu_set_t set;
    static_assert(sizeof set == sizeof mask);
    // Fails on machines with more processors than `set` holds; such machines have enough.
    if (::sched_getaffinity(0, sizeof set, &set) == 0) {
        mask = std::bit_cast<decltype(mask)>(set);
    } else {
        mask.fill(~std::uint64_t{0});
    }
    return mask;
}

/// The memory that is available, or was up to ten seconds ago.
std::size_t recently_available_bytes() {
    constexpr Duration kRecent = std::chrono::seconds(10);
    static std::mutex mutex;
    static Instant read_at{};
    static std::size_t bytes = 0;
    const std::lock_guard lock(mutex);
    const Instant now = SteadyClock().now();
    if (bytes == 0 || now - read_at > kRecent) {
        bytes = available_memory_bytes();
        read_at = now;
    }
    return bytes;
}

}  // namespace

std::string NodeOffer::text() const {
    return hex_of(bytes_of(*this));
}

std::optional<NodeOffer> NodeOffer::parse(std::string_view text) {
    std::array<std::byte, sizeof(NodeOffer)> bytes{};
    return parse_hex(text, bytes) ? std::optional(std::bit_cast<NodeOffer>(bytes)) : std::nullopt;
}

std::uint64_t machine_identity() {
    static const std::uint64_t identity = [] {
        std::string boot;
        std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
        return boot.empty() ? 0 : checksum(boot) | 1U;
    }();
    return identity;
}

NodeOffer make_offer(std::uint32_t node_ranks) {
    // A group that forms again after a loss must not read a dozen files of the kernel.
    static const ProcessorQuota quota = control_group_processors();
    return {.machine = machine_identity(),
            .processors = own_processors(),
            .node_ranks = node_ranks,
            .quota = quota};
}

NodeShare make_share(std::uint32_t sharers, std::uint32_t node_ranks) {
    NodeShare share{.memory = {}, .doorbell = {}, .offer = make_offer(node_ranks)};
    share.offer.doorbell = share.doorbell.ticket();
    // The kernel overcommits memory and would kill a process when the memory is touched.
    if (NodeMemory::segment_bytes() > recently_available_bytes() / sharers) {
        return share;
    }
    try {
        share.memory = SharedMemory::create(NodeMemory::segment_bytes(), false);
        share.offer.memory = share.memory.ticket();
    } catch (const Error&) {
        // As if there were no room: the offer tells the other ranks.
    }
    return share;
}

}  // namespace regroup::cpu
