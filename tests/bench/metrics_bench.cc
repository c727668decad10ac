// SPDX-License-Identifier: Apache-2.0
//
// The cost of a scrape of the daemon's metrics, without HTTP:
//
//     metrics_bench [NODES...]
//
// For each size: a job of so many nodes, by itself and with the metrics of each node. Samples and
// bytes of the text, and the CPU time of the thread for the job's status, for the text, and for the
// JSON that the page and `regroup status` show (at most 1 MiB). The daemon renders at most every
// 250 ms, however many clients ask. Last, what a message costs for the histogram of silences.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <time.h>
#include <utility>
#include <vector>

#include "rendezvous/core/rendezvous_core.h"
#include "rendezvous/view/job_history.h"
#include "rendezvous/view/job_view.h"
#include "rendezvous/view/metrics_text.h"
#include "tests/bench/report.h"

namespace regroup::bench {
namespace {

using namespace rendezvous;

constexpr int kRepetitions = 21;
constexpr int kRecoveries = 5;

double cpu_us() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

/// A core whose round has `size` nodes.
RendezvousCore core_of(std::size_t size, Instant now) {
    JobPolicy policy;
    policy.nodes_min = policy.nodes_max = static_cast<std::uint32_t>(size);
    policy.program = "train";
    RendezvousCore core(policy);
    for (std::size_t i = 0; i < size; ++i) {
        char name[16];
        std::snprintf(name, sizeof name, "node%05zu", i);
        Offer offer;
        offer.name = name;
        offer.address = "10.1." + std::to_string(i / 250) + "." + std::to_string(1 + i % 250);
        NodeReport report;
        report.store_port = 2000;
        (void)core.step(now,
                        NodeJoined{std::string(name) + "-4711-0123abcd", policy, offer, report});
    }
    return core;
}

JobTotals totals_after_recoveries() {
    JobTotals totals;
    Incident incident;
    incident.detect = std::chrono::milliseconds(20);
    incident.first_step = std::chrono::milliseconds(1300);
    for (int i = 0; i < kRecoveries; ++i) {
        for (std::size_t stage = 0; stage < kStageNames.size(); ++stage) {
            totals.recoveries[stage].add(stages(incident)[stage]);
        }
    }
    return totals;
}

void measure(std::size_t size, Table& table) {
    const Instant now = Instant{} + std::chrono::hours(1);
    const RendezvousCore core = core_of(size, now);
    const DaemonCounters daemon;
    for (const bool nodes : {false, true}) {
        std::vector<double> status_us;
        std::vector<double> text_us;
        std::vector<double> json_us;
        std::string text;
        for (int i = 0; i < kRepetitions; ++i) {
            const double begin = cpu_us();
            std::vector<JobView> views(1);
            views[0].job = "nightly";
            views[0].status = core.status(now);
            const double middle = cpu_us();
            views[0].totals = totals_after_recoveries();
            const double before = cpu_us();
            text = metrics_text(views, &daemon, {MetricsFormat::openmetrics, nodes});
            const double after = cpu_us();
            text_us.push_back(after - before);
            (void)jobs_json(views, std::size_t{1} << 20U);
            json_us.push_back(cpu_us() - after);
            status_us.push_back(middle - begin);
        }
        std::size_t samples = 0;
        for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
            samples += text[at] == '#' ? 0 : 1;
        }
        table.add({std::to_string(size) + (nodes ? " nodes, each" : " nodes"),
                   std::to_string(samples), std::to_string(text.size()),
                   fixed(summarize(status_us).median, 0), fixed(summarize(text_us).median, 0),
                   fixed(summarize(json_us).median, 0)});
    }
}

int run(int argc, char** argv) {
    std::vector<std::size_t> sizes;
    for (int i = 1; i < argc; ++i) {
        sizes.push_back(std::strtoul(argv[i], nullptr, 10));
    }
    if (sizes.empty()) {
        sizes = {10, 100, 1000, 10000};
    }
    print_head("A scrape of the metrics, CPU time in us");
    Table table({"job", "samples", "bytes", "status", "text", "JSON"});
    for (const std::size_t size : sizes) {
        measure(size, table);
    }
    table.print();
    constexpr int kMessages = 1'000'000;
    SilenceHistogram silences;
    const double begin = cpu_us();
    for (int i = 0; i < kMessages; ++i) {
        silences.add(static_cast<double>(i % 64) / 64);
    }
    const double ns = (cpu_us() - begin) * 1000 / static_cast<double>(silences.count);
    std::printf("\n  counting the time since the last message of a node: %.0f ns a message\n", ns);
    return 0;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    return regroup::bench::run(argc, argv);
}
