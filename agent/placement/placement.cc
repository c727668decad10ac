// SPDX-License-Identifier: Apache-2.0
#include "agent/placement/placement.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <system_error>
#include <utility>

#include "agent/placement/shares.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/base/text.h"

namespace regroup::agent {
namespace {

constexpr std::pair<std::string_view, NumaBinding> kBindings[] = {
    {"node", NumaBinding::node},
    {"socket", NumaBinding::socket},
    {"exclusive", NumaBinding::exclusive},
    {"core-complex", NumaBinding::core_complex},
};

std::string flag(NumaBinding binding) {
    for (const auto& [name, value] : kBindings) {
        if (value == binding) {
            return "--numa-binding " + std::string(name);
        }
    }
    return "--numa-binding";
}

std::vector<Cpu> pick(const Topology& topology, const std::function<bool(const Cpu&)>& wanted) {
    std::vector<Cpu> cpus;
    std::copy_if(topology.cpus.begin(), topology.cpus.end(), std::back_inserter(cpus), wanted);
    return cpus;
}

std::vector<Cpu> cpus_of_node(const Topology& topology, int numa_node) {
    return pick(topology, [&](const Cpu& cpu) { return cpu.numa_node == numa_node; });
}

/// The package of a node is that of its lowest CPU.
std::vector<Cpu> cpus_of_socket(const Topology& topology, int numa_node) {
    std::map<int, int> package_of;
    for (const Cpu& cpu : topology.cpus) {
        package_of.try_emplace(cpu.numa_node, cpu.package);
    }
    const int package = package_of.at(numa_node);
    return pick(topology, [&](const Cpu& cpu) { return package_of.at(cpu.numa_node) == package; });
}

std::vector<Cpu> cpus_of_core_complex(const Topology& topology, int numa_node, int position) {
    std::map<int, std::vector<Cpu>> by_cache;
    for (const Cpu& cpu : cpus_of_node(topology, numa_node)) {
        by_cache[cpu.cache].push_back(cpu);
    }
    std::vector<std::vector<Cpu>> groups;
    for (auto& [cache, cpus] : by_cache) {
        groups.push_back(std::move(cpus));
    }
    std::sort(groups.begin(), groups.end(), [](const auto& left, const auto& right) {
        return left.size() != right.size() ? left.size() > right.size()
                                           : left.front().cache < right.front().cache;
    });
    return groups[static_cast<std::size_t>(position) % groups.size()];
}

/// Requires non-empty sets of a plan, which are either the same or disjoint.
bool is_same(const Cores& left, const Cores& right) {
    return left.front().id == right.front().id;
}

/// Every gpus_per_rank-th.
std::vector<Gpu> first_gpus(const PlacementRequest& request, const Gpus& gpus) {
    std::vector<Gpu> first;
    const auto step = static_cast<std::size_t>(request.gpus_per_rank);
    for (std::size_t index = 0; index < gpus.list.size(); index += step) {
        first.push_back(gpus.list[index]);
    }
    return first;
}

/// One call of plan_placement.
class Plan {
   public:
    Plan(const PlacementRequest& request, const Topology& topology, const Gpus& gpus)
        : request_(request), topology_(topology), gpus_(first_gpus(request, gpus)) {
        if (!gpus_.empty() && !gpus.note.empty()) {
            placement_.notes.push_back(gpus.note);
        }
    }

    Result<Placement> make() {
        if (request_.rank_count < 1) {
            return Failure(Errc::invalid_argument, "there is no worker to place on this node");
        }
        if (auto done = choose_sets(); !done) {
            return done.error();
        }
        if (request_.cpus_per_rank) {
            if (auto done = divide_sets(); !done) {
                return done.error();
            }
        }
        describe();
        return std::move(placement_);
    }

   private:
    [[nodiscard]] bool uses_gpus() const {
        return static_cast<std::size_t>(request_.rank_count) <= gpus_.size();
    }

    /// The node of each GPU; without GPUs, of each rank.
    [[nodiscard]] std::vector<int> nodes_of_sites() const {
        std::vector<int> nodes;
        for (const Gpu& gpu : gpus_) {
            nodes.push_back(gpu.numa_node);
        }
        return nodes.empty() ? spread(numa_nodes_of(all_), request_.rank_count) : nodes;
    }

    Result<void> choose_sets() {
        const auto rank_count = static_cast<std::size_t>(request_.rank_count);
        if (request_.numa_binding == NumaBinding::none) {
            sets_.assign(rank_count, all_);
            return {};
        }
        if (!gpus_.empty() && !uses_gpus()) {
            return Failure(Errc::invalid_argument,
                           flag(request_.numa_binding) + " needs a GPU for each of the " +
                               counted(rank_count, "worker") + " of this node, and " +
                               counted(gpus_.size(), "GPU") + " can be seen");
        }
        const std::vector<int> nodes = nodes_of_sites();
        for (std::size_t rank = 0; rank < rank_count; ++rank) {
            auto set = choose_set(nodes, rank);
            if (!set) {
                return set.error();
            }
            sets_.push_back(*std::move(set));
        }
        return {};
    }

    Result<Cores> choose_set(const std::vector<int>& nodes, std::size_t rank) const {
        const int node = nodes[rank];
        const auto here = nodes.begin() + static_cast<std::ptrdiff_t>(rank);
        const int position = static_cast<int>(std::count(nodes.begin(), here, node));
        const int count = static_cast<int>(std::count(nodes.begin(), nodes.end(), node));
        const std::vector<Cpu> cpus = cpus_of_node(topology_, node);
        if (cpus.empty()) {
            return Failure(
                Errc::invalid_argument,
                flag(request_.numa_binding) + ": of NUMA node " + std::to_string(node) +
                    ", next to GPU " + std::to_string(rank) +
                    ", this process may use no CPU; widen its CPU set (taskset, cpuset)");
        }
        const Cores cores = group_cores(cpus);
        switch (request_.numa_binding) {
            case NumaBinding::socket:
                return group_cores(cpus_of_socket(topology_, node));
            case NumaBinding::core_complex:
                return group_cores(cpus_of_core_complex(topology_, node, position));
            case NumaBinding::exclusive:
                if (static_cast<int>(cores.size()) < count) {
                    return Failure(Errc::invalid_argument,
                                   flag(request_.numa_binding) + ": NUMA node " +
                                       std::to_string(node) + " has " +
                                       counted(cores.size(), "physical core") +
                                       " that this process may use, too few for " +
                                       counted(static_cast<std::size_t>(count),
                                               gpus_.empty() ? "worker" : "GPU"));
                }
                return even_run(cores, position, count);
            case NumaBinding::node:
            case NumaBinding::none:
                break;
        }
        return cores;
    }

    /// Divides each set among the ranks that share it.
    Result<void> divide_sets() {
        std::vector<bool> divided(sets_.size(), false);
        for (std::size_t first = 0; first < sets_.size(); ++first) {
            if (divided[first]) {
                continue;
            }
            const Cores set = sets_[first];
            std::vector<std::size_t> sharers;
            for (std::size_t rank = first; rank < sets_.size(); ++rank) {
                if (!divided[rank] && is_same(sets_[rank], set)) {
                    sharers.push_back(rank);
                    divided[rank] = true;
                }
            }
            if (auto done = divide(set, sharers); !done) {
                return done.error();
            }
        }
        return {};
    }

    Result<void> divide(const Cores& set, const std::vector<std::size_t>& sharers) {
        const int rank_count = static_cast<int>(sharers.size());
        const int total = static_cast<int>(set.size());
        std::vector<int> wanted = wanted_nodes(sharers);
        int core_count = request_.cpus_per_rank->core_count;
        if (core_count == 0) {
            core_count = local_share(set, wanted);
            if (core_count == 0) {
                core_count = total / rank_count;
            }
            core_count = within_quota(core_count);
        } else if (request_.cpu_quota && core_count > std::max(1, quota_share())) {
            note("--cpus-per-rank " + std::to_string(core_count) +
                 ": the workers will often wait, because " + quota_text());
        }
        if (core_count == 0) {
            give_up_cores(set, sharers);
            return {};
        }
        if (total / core_count < rank_count) {
            return Failure(
                Errc::invalid_argument,
                "--cpus-per-rank " + std::to_string(core_count) + ": " +
                    counted(static_cast<std::size_t>(rank_count), "worker") +
                    " would need more than the " + counted(set.size(), "physical core") +
                    " that this process may use" +
                    (set.size() == all_.size() ? "" : " within " + flag(request_.numa_binding)));
        }
        Dealt dealt = deal(set, rank_count, core_count, wanted);
        for (std::size_t index = 0; index < sharers.size(); ++index) {
            sets_[sharers[index]] = std::move(dealt.hands[index]);
        }
        if (!wanted.empty() && !dealt.as_wanted) {
            note(
                "--cpus-per-rank: not every worker's cores are next to its GPU, where there are "
                "too few of them");
        }
        return {};
    }

    /// The nodes of the ranks' GPUs if all are known; else empty.
    [[nodiscard]] std::vector<int> wanted_nodes(const std::vector<std::size_t>& ranks) const {
        std::vector<int> nodes;
        for (const std::size_t rank : ranks) {
            if (!uses_gpus() || !gpus_[rank].numa_node_known) {
                return {};
            }
            nodes.push_back(gpus_[rank].numa_node);
        }
        return nodes;
    }

    /// The number of cores that every rank can have on its wanted node. 0 if some rank can have
    /// none, or without wanted nodes.
    static int local_share(const Cores& set, const std::vector<int>& wanted) {
        int share = wanted.empty() ? 0 : static_cast<int>(set.size());
        for (const int node : wanted) {
            const auto ranks = std::count(wanted.begin(), wanted.end(), node);
            share = std::min(share, count_on(set, node) / static_cast<int>(ranks));
        }
        return share;
    }

    /// The cores of which a rank can make use under the quota; 0 if there are more ranks than CPUs.
    [[nodiscard]] int quota_share() const {
        constexpr double kMost = 1 << 24;
        const double cpus = std::ceil(request_.cpu_quota.value_or(kMost));
        return static_cast<int>(std::clamp(cpus, 1.0, kMost)) / request_.rank_count;
    }

    /// Of "auto".
    int within_quota(int core_count) {
        const int share = quota_share();
        if (share >= 1 && share < core_count) {
            note("--cpus-per-rank auto: " + counted(static_cast<std::size_t>(share), "core") +
                 " for each worker, because " + quota_text());
        }
        return std::min(core_count, share);
    }

    [[nodiscard]] std::string quota_text() const {
        return "the CPU quota of the cgroup allows " + cpus_text(*request_.cpu_quota) + " of " +
               counted(topology_.cpus.size(), "CPU");
    }

    void give_up_cores(const Cores& set, const std::vector<std::size_t>& sharers) {
        const bool by_quota = set.size() >= sharers.size();
        note("--cpus-per-rank auto: " + counted(sharers.size(), "worker") +
             (by_quota ? "" : " on " + counted(set.size(), "physical core")) +
             " get no cores of their own, and one thread each" +
             (by_quota ? ", because " + quota_text() : ""));
        if (request_.numa_binding == NumaBinding::none) {
            unbound_ = true;
        }
    }

    void note(std::string sentence) {
        auto& notes = placement_.notes;
        if (std::find(notes.begin(), notes.end(), sentence) == notes.end()) {
            notes.push_back(std::move(sentence));
        }
    }

    void describe() {
        unbound_ =
            unbound_ || (request_.numa_binding == NumaBinding::none && !request_.cpus_per_rank);
        for (std::size_t rank = 0; rank < sets_.size(); ++rank) {
            const Cores& set = sets_[rank];
            RankPlacement& placed = placement_.ranks.emplace_back();
            placed.local_rank = static_cast<int>(rank);
            if (uses_gpus()) {
                const std::size_t index = rank * static_cast<std::size_t>(request_.gpus_per_rank);
                placed.gpu = std::to_string(index) + " (" + gpus_[rank].address + ")";
            }
            const auto sharers = std::count_if(sets_.begin(), sets_.end(), [&](const Cores& other) {
                return is_same(other, set);
            });
            placed.thread_count = std::max(
                1,
                std::min(static_cast<int>(set.size()) / static_cast<int>(sharers), quota_share()));
            if (unbound_) {
                continue;
            }
            placed.numa_nodes = numa_nodes_of(set);
            for (const Core& core : set) {
                placed.cpus.insert(placed.cpus.end(), core.cpus.begin(), core.cpus.end());
            }
            std::sort(placed.cpus.begin(), placed.cpus.end());
        }
    }

    const PlacementRequest& request_;
    const Topology& topology_;
    const std::vector<Gpu> gpus_;  ///< One for each rank that could have its own.
    const Cores all_ = group_cores(topology_.cpus);
    std::vector<Cores> sets_;  ///< By local rank.
    bool unbound_ = false;
    Placement placement_;
};

}  // namespace

std::optional<NumaBinding> numa_binding_named(std::string_view name) noexcept {
    const auto* const found =
        std::ranges::find(kBindings, name, [](const auto& b) { return b.first; });
    return found == std::end(kBindings) ? std::nullopt : std::optional(found->second);
}

Result<Placement> plan_placement(const PlacementRequest& request, const Topology& topology,
                                 const Gpus& gpus) {
    ENSURE(!topology.cpus.empty() && request.gpus_per_rank >= 1);
    return Plan(request, topology, gpus).make();
}

std::string cpus_text(double cpus) {
    const auto tenths = static_cast<std::uint64_t>(std::max(1.0, std::round(cpus * 10)));
    return std::to_string(tenths / 10) +
           (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10));
}

std::string format_cpu_list(const std::vector<int>& cpus) {
    std::string text;
    for (std::size_t at = 0; at < cpus.size();) {
        std::size_t last = at;
        while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) {
            ++last;
        }
        text += (text.empty() ? "" : ",") + std::to_string(cpus[at]);
        if (last > at) {
            text += "-" + std::to_string(cpus[last]);
        }
        at = last + 1;
    }
    return text;
}

std::string binding_report(const Placement& placement) {
    std::string text;
    for (const RankPlacement& rank : placement.ranks) {
        text += "local rank " + std::to_string(rank.local_rank) + ": ";
        text += rank.gpu.empty() ? "" : "GPU " + rank.gpu + ", ";
        if (rank.cpus.empty()) {
            text += "not bound";
        } else {
            text += rank.numa_nodes.size() == 1 ? "NUMA node " : "NUMA nodes ";
            text += format_cpu_list(rank.numa_nodes);
            text += rank.cpus.size() == 1 ? ", CPU " : ", CPUs ";
            text += format_cpu_list(rank.cpus);
        }
        text += ", " + counted(static_cast<std::size_t>(rank.thread_count), "thread") + "\n";
    }
    for (const std::string& note : placement.notes) {
        text += "note: " + note + "\n";
    }
    return text;
}

}  // namespace regroup::agent
