// SPDX-License-Identifier: Apache-2.0
//
// Injects every kind of fault that one machine can produce into a running job, and checks that no
// step is lost:
//
//     chaos PROGRAMS [--seed=N] [--seconds=N] [--nodes=N] [--workers=N] [--faults=KIND,...]
//           [--form=in-place|restarted|slow-end|snapshots] [--standbys=N] [--keep=DIR] [--list]
//
// The seed also decides the form of the job and the standbys, unless flags do. PROGRAMS are
// --regroup=, --worker=, --delay-proxy= and --clock-shim=. docs/testing.md describes the faults and
// assertions. Exit code: 0 if all assertions hold, 1 if not, 77 if this machine cannot run it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <unistd.h>

#include "tests/chaos/records.h"
#include "tests/chaos/run.h"
#include "tests/support/network_namespace.h"

namespace regroup::chaos {
namespace {

constexpr int kExitCannot = 77;
/// Enough for the ring algorithm, which sums long tensors between nodes.
constexpr std::size_t kFloats = 4500;

struct Options {
    ClusterPlan cluster;
    SchedulePlan schedule;
    std::optional<JobForm> form;
    std::optional<std::uint32_t> standbys;
    std::string keep;
    bool list = false;
};

std::optional<FaultKind> kind_of(const std::string& name) {
    for (std::size_t i = 0; i < kFaultKinds; ++i) {
        const auto kind = static_cast<FaultKind>(i);
        if (to_string(kind) == name) {
            return kind;
        }
    }
    return std::nullopt;
}

std::optional<JobForm> form_of(const std::string& name) {
    for (const JobForm form :
         {JobForm::in_place, JobForm::restarted, JobForm::slow_end, JobForm::snapshots}) {
        if (to_string(form) == name) {
            return form;
        }
    }
    return std::nullopt;
}

bool take_kinds(const std::string& list, std::vector<FaultKind>& kinds) {
    std::size_t begin = 0;
    while (begin <= list.size()) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        const auto kind = kind_of(list.substr(begin, end - begin));
        if (!kind) {
            std::fprintf(stderr, "chaos: no fault is called '%s'; there are:",
                         list.substr(begin, end - begin).c_str());
            for (std::size_t i = 0; i < kFaultKinds; ++i) {
                std::fprintf(stderr, " %s",
                             std::string(to_string(static_cast<FaultKind>(i))).c_str());
            }
            std::fprintf(stderr, "\n");
            return false;
        }
        kinds.push_back(*kind);
        begin = end + 1;
    }
    return true;
}

bool parse(std::span<char*> words, Options& options) {
    const auto absolute = [](const std::string& path) {
        return std::filesystem::absolute(path).string();
    };
    for (const std::string word : words) {
        const std::size_t equals = std::min(word.find('='), word.size());
        const std::string name = word.substr(0, equals);
        const std::string value = word.substr(std::min(equals + 1, word.size()));
        const std::uint64_t number = std::strtoull(value.c_str(), nullptr, 10);
        if (name == "--regroup") {
            options.cluster.regroup = absolute(value);
        } else if (name == "--worker") {
            options.cluster.worker = absolute(value);
        } else if (name == "--delay-proxy") {
            options.cluster.delay_proxy = absolute(value);
        } else if (name == "--clock-shim") {
            options.cluster.clock_shim = absolute(value);
        } else if (name == "--seed") {
            options.schedule.seed = number;
        } else if (name == "--seconds" && number > 0) {
            options.schedule.lasts = std::chrono::seconds(number);
        } else if (name == "--gap-ms" && number > 0) {
            options.schedule.gap_max = milliseconds(number);
            options.schedule.gap_min = milliseconds(number / 10);
        } else if (name == "--nodes" && number >= 3 && number <= 26) {
            options.schedule.nodes = options.cluster.nodes = static_cast<std::uint32_t>(number);
        } else if (name == "--workers" && number >= 1 && number <= 64) {
            options.cluster.workers = static_cast<std::uint32_t>(number);
        } else if (name == "--keep") {
            options.keep = absolute(value);
        } else if (name == "--form" && form_of(value)) {
            options.form = form_of(value);
        } else if (name == "--standbys") {
            options.standbys = static_cast<std::uint32_t>(number);
        } else if (name == "--list") {
            options.list = true;
        } else if (name != "--faults" || !take_kinds(value, options.schedule.kinds)) {
            std::fprintf(stderr, "chaos: what is '%s'?\n", word.c_str());
            return false;
        }
    }
    JobTraits& traits = options.cluster.traits;
    traits = draw_traits(options.schedule.seed);
    traits.form = options.form.value_or(traits.form);
    traits.standbys = options.schedule.standbys = options.standbys.value_or(traits.standbys);
    options.schedule.snapshots = traits.form == JobForm::snapshots;
    options.schedule.ahead = options.schedule.standbys > 0 && traits.form == JobForm::in_place;
    if (options.schedule.standbys + 2 > options.schedule.nodes) {
        std::fprintf(stderr, "chaos: %u nodes are too few for %u standbys\n",
                     options.schedule.nodes, options.schedule.standbys);
        return false;
    }
    return options.list ||
           (!options.cluster.regroup.empty() && !options.cluster.worker.empty() &&
            !options.cluster.delay_proxy.empty() && !options.cluster.clock_shim.empty());
}

std::string details_of(const JobTraits& traits) {
    if (traits.form != JobForm::snapshots) {
        return "";
    }
    return " (one step in " + std::to_string(traits.save_interval) + ", " +
           (traits.has_snapshot_folder ? "with a folder)" : "in memory alone)");
}

void print_schedule(const Options& options, const std::vector<Fault>& schedule) {
    std::printf(
        "chaos: seed %llu, %lld s, %u nodes x %u workers, form %s%s, %u standbys, %zu faults\n",
        static_cast<unsigned long long>(options.schedule.seed),
        static_cast<long long>(options.schedule.lasts.count() / 1000), options.schedule.nodes,
        options.cluster.workers, std::string(to_string(options.cluster.traits.form)).c_str(),
        details_of(options.cluster.traits).c_str(), options.schedule.standbys, schedule.size());
    for (const Fault& fault : schedule) {
        std::printf("  %s\n", describe(fault).c_str());
    }
}

/// Prints how long training stood still between rounds.
void print_changes(const History& history) {
    std::vector<double> pauses;
    std::int64_t last = 0;
    for (const auto& [round, seen] : history.rounds) {
        if (last != 0) {
            pauses.push_back(static_cast<double>(seen.first_at - last) / 1e6);
        }
        last = seen.last_at;
    }
    if (pauses.empty()) {
        return;
    }
    std::sort(pauses.begin(), pauses.end());
    std::printf(
        "  %zu changes of rounds, in which training stood still for %.1f ms at the median, "
        "%.1f ms at most\n\n",
        pauses.size(), pauses.at(pauses.size() / 2), pauses.back());
}

void print_result(const RunResult& result) {
    std::map<std::string, std::pair<int, int>> counts;
    for (const Deed& deed : result.deeds) {
        auto& [done, planned] = counts[std::string(to_string(deed.fault.kind))];
        done += deed.done ? 1 : 0;
        ++planned;
    }
    std::printf("\n  faults:");
    for (const auto& [name, count] : counts) {
        std::printf(" %s %d/%d", name.c_str(), count.first, count.second);
    }
    std::printf("\n  nodes came back: %zu times", result.returns);
    const History& history = result.history;
    std::printf(
        "\n  %llu steps in %zu rounds by %llu processes, %llu applications, parameters "
        "%016llx\n",
        static_cast<unsigned long long>(history.steps), history.rounds.size(),
        static_cast<unsigned long long>(history.processes),
        static_cast<unsigned long long>(history.applications),
        static_cast<unsigned long long>(history.digest));
    print_changes(history);
    for (const Verdicts::Line& line : result.verdicts.lines) {
        std::printf("  %-6s %s\n", line.wrongs.empty() ? "yes" : "NO", line.what.c_str());
        for (const std::string& wrong : line.wrongs) {
            std::printf("      - %s\n", wrong.c_str());
        }
    }
}

/// Says in a sentence what this machine lacks; empty if nothing.
std::string missing_here() {
    if (::geteuid() != 0) {
        return "network namespaces need root";
    }
    for (const char* tool : {"ip", "nft"}) {
        if (testing::find_tool(tool).empty()) {
            return std::string("the program ") + tool + " is needed (Debian: iproute2, nftables)";
        }
    }
    return "";
}

int run(Options options) {
    const std::vector<Fault> schedule = make_schedule(options.schedule);
    print_schedule(options, schedule);
    if (options.list) {
        return 0;
    }
    std::string missing = missing_here();
    testing::TemporaryDirectory scratch;
    options.cluster.folder = scratch.path();
    // Where the job goes back to an earlier step, other ranks may repeat it in another order.
    options.cluster.floats = options.schedule.snapshots ? 0 : kFloats;
    if (const auto left = leave_mount_namespace(); missing.empty() && !left) {
        missing = left.error().detail;
    }
    if (!missing.empty()) {
        std::printf("skipped: %s\n", missing.c_str());
        return kExitCannot;
    }
    const auto cluster = Cluster::build(options.cluster);
    if (!cluster) {
        std::printf("skipped: %s\n", cluster.error().detail.c_str());
        return kExitCannot;
    }
    const RunResult result = run_chaos(**cluster, options.cluster, options.schedule, schedule);
    print_result(result);
    const bool good = result.verdicts.all_right();
    if (!options.keep.empty()) {
        std::filesystem::remove_all(options.keep);
        std::filesystem::copy(scratch.path(), options.keep,
                              std::filesystem::copy_options::recursive |
                                  std::filesystem::copy_options::overwrite_existing);
        std::printf("  everything that it wrote is in %s\n", options.keep.c_str());
    }
    std::printf("\nchaos: %s; again with --seed=%llu --seconds=%lld\n",
                good ? "all is well" : "SOMETHING IS WRONG",
                static_cast<unsigned long long>(options.schedule.seed),
                static_cast<long long>(options.schedule.lasts.count() / 1000));
    return good ? 0 : 1;
}

}  // namespace
}  // namespace regroup::chaos

int main(int argc, char** argv) {
    regroup::chaos::Options options;
    options.schedule.seed = std::random_device()();
    if (!regroup::chaos::parse(std::span(argv, static_cast<std::size_t>(argc)).subspan(1),
                               options)) {
        std::fprintf(stderr,
                     "usage: chaos --regroup=F --worker=F --delay-proxy=F --clock-shim=F "
                     "[--seed=N] [--seconds=N]\n             [--nodes=N] [--workers=N] "
                     "[--faults=KIND,...] [--gap-ms=N]\n             "
                     "[--form=in-place|restarted|slow-end|snapshots] [--standbys=N] [--keep=DIR] "
                     "[--list]\n");
        return 2;
    }
    return regroup::chaos::run(options);
}
