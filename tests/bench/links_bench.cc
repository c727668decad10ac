// SPDX-License-Identifier: Apache-2.0
//
// The time that the sum of gradients adds to a step, on links of one speed. It compares the naive
// scheme, where all gradients go to rank 0 and the sum comes back, with the ring all-reduce.
//
//     links_bench LINKS_RANK [--quick] [--svg FILE]
//
// The textbook case, scaled down by 1000 in bytes and in speed: 300 M parameters in float, 1.2 GB,
// over links of 1 GB/s. With N ranks
//
//     naive, until rank 0 has the sum:  (N-1) bytes/rate       1.2 s with 2 ranks, 10.8 s with 10
//     naive, there and back:          2 (N-1) bytes/rate
//     ring:                         2 (N-1)/N bytes/rate       1.2 s with 2 ranks,  2.2 s with 10
//
// In the naive scheme, the gradients of all other ranks go through the link of rank 0. In the ring,
// every link carries the same share. Each rank is a process in its own network namespace. The link
// is the bottleneck, so two cores are enough for ten ranks. Exits with 1 if the curves have another
// shape.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/bench/link_network.h"
#include "tests/bench/plot.h"
#include "tests/bench/report.h"
#include "tests/support/program.h"

namespace regroup::bench {
namespace {

constexpr auto kLimit = std::chrono::minutes(3);

/// The signal that asked this program to end. The program then removes its scratch folders.
/// Namespaces and ranks end in any case.
volatile std::sig_atomic_t stopped_by = 0;

struct Options {
    std::string rank_program;
    std::string svg;
    bool quick = false;
};

/// A gradient and the links that carry it.
struct Load {
    std::vector<std::size_t> worlds;
    std::size_t floats = 0;
    LinkRate rate;

    /// Seconds for one whole gradient over one link.
    [[nodiscard]] double unit() const {
        return static_cast<double>(floats * sizeof(float)) / rate.payload_bytes_per_second;
    }
};

struct Times {
    double ranks = 0;
    double collected = 0;  ///< Naive: seconds until rank 0 had the sum,
    double naive = 0;      ///< and until all had it.
    double ring = 0;
    double naive_bytes = 0;  ///< Sent and received by rank 0.
    double ring_bytes = 0;
};

double naive_one_way(double ranks) {
    return ranks - 1;
}
double naive_formula(double ranks) {
    return 2 * (ranks - 1);
}
double ring_formula(double ranks) {
    return 2 * (ranks - 1) / ranks;
}

Load load_of(bool quick) {
    if (quick) {
        return {.worlds = {2, 4}, .floats = 60'000, .rate = {}};
    }
    return {.worlds = {2, 4, 6, 8, 10}, .floats = 300'000, .rate = {}};
}

std::optional<Times> parse(const std::string& output, std::size_t ranks) {
    std::istringstream lines(output);
    std::string naive;
    std::string ring;
    Times times{.ranks = static_cast<double>(ranks)};
    double collected = 0;
    double naive_out = 0;
    double naive_in = 0;
    double ring_out = 0;
    double ring_in = 0;
    lines >> naive >> times.collected >> times.naive >> naive_out >> naive_in >> ring >>
        collected >> times.ring >> ring_out >> ring_in;
    times.naive_bytes = naive_out + naive_in;
    times.ring_bytes = ring_out + ring_in;
    return lines && naive == "naive" && ring == "ring" ? std::optional(times) : std::nullopt;
}

/// Measures one world on its own network. Returns nothing, after a message on stderr, if it failed.
std::optional<Times> measure(const Options& options, const Load& load, std::size_t ranks) {
    const Result<LinkNetwork> network = LinkNetwork::lay(ranks, load.rate);
    if (!network) {
        std::fprintf(stderr, "links_bench: %s\n", network.error().detail.c_str());
        return std::nullopt;
    }
    const testing::TemporaryDirectory scratch;
    std::vector<std::unique_ptr<testing::Program>> programs;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        const std::string own = std::to_string(rank);
        const std::string all = std::to_string(ranks);
        network->host(rank).within([&] {
            programs.push_back(std::make_unique<testing::Program>(testing::ProgramSpec{
                {options.rank_program, std::to_string(load.floats)},
                {"RANK=" + own, "WORLD_SIZE=" + all, "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
                 "GROUP_RANK=" + own, "GROUP_WORLD_SIZE=" + all,
                 "MASTER_ADDR=" + LinkNetwork::address(0), "MASTER_PORT=29500"},
                scratch.path()}));
        });
    }
    for (const auto& program : programs) {
        testing::eventually([&] { return stopped_by != 0 || !program->running(); }, kLimit);
        if (stopped_by != 0) {
            return std::nullopt;
        }
        if (program->wait(std::chrono::seconds(0)) != 0) {
            std::fprintf(stderr, "links_bench: a rank of %zu failed: %s\n", ranks,
                         program->output().c_str());
            return std::nullopt;
        }
    }
    const std::optional<Times> times = parse(programs.front()->output(), ranks);
    if (!times) {
        std::fprintf(stderr, "links_bench: rank 0 printed: %s\n",
                     programs.front()->output().c_str());
    }
    return times;
}

void print_table(const Load& load, const std::vector<Times>& all) {
    Table table({"ranks", "naive, at rank 0", "formula", "and back", "formula", "ring", "formula",
                 "naive / ring", "MB by rank 0: naive", "ring"});
    for (const Times& times : all) {
        table.add({fixed(times.ranks, 0), fixed(times.collected, 2),
                   fixed(load.unit() * naive_one_way(times.ranks), 2), fixed(times.naive, 2),
                   fixed(load.unit() * naive_formula(times.ranks), 2), fixed(times.ring, 2),
                   fixed(load.unit() * ring_formula(times.ranks), 2),
                   fixed(times.naive / times.ring, 1), fixed(times.naive_bytes / 1e6, 2),
                   fixed(times.ring_bytes / 1e6, 2)});
    }
    table.print();
    std::printf("\n");
}

Series curve(const std::string& name, const std::string& color, const std::vector<Times>& all,
             double Times::* value) {
    Series series{.name = name, .color = color, .style = Series::Style::measured, .points = {}};
    for (const Times& times : all) {
        series.points.emplace_back(times.ranks, times.*value);
    }
    return series;
}

Series curve(const std::string& name, const std::string& color, const std::vector<Times>& all,
             double unit, double (*formula)(double)) {
    Series series{.name = name, .color = color, .style = Series::Style::formula, .points = {}};
    constexpr int kSteps = 64;
    const double span = all.back().ranks - all.front().ranks;
    for (int step = 0; step <= kSteps; ++step) {
        const double ranks = all.front().ranks + span * step / kSteps;
        series.points.emplace_back(ranks, unit * formula(ranks));
    }
    return series;
}

Plot plot_of(const Load& load, const std::vector<Times>& all) {
    const std::string back = "#b5391f";
    const std::string there = "#d99a2b";
    const std::string ring = "#1f6fb5";
    Plot plot{.title = "Summing gradients: through one rank, and in a ring",
              .subtitle = fixed(static_cast<double>(load.floats) * 4 / 1e6, 1) +
                          " MB of gradients, links of " +
                          fixed(load.rate.payload_bytes_per_second / 1e6, 0) +
                          " MB/s in each direction (as 1.2 GB over 1 GB/s)",
              .x_label = "ranks",
              .y_label = "seconds added to a step",
              .x_ticks = {},
              .series = {}};
    for (const Times& times : all) {
        plot.x_ticks.push_back(times.ranks);
    }
    plot.series = {
        curve("2 (N-1) bytes / rate", back, all, load.unit(), naive_formula),
        curve("naive, there and back: measured", back, all, &Times::naive),
        curve("(N-1) bytes / rate", there, all, load.unit(), naive_one_way),
        curve("naive, until rank 0 has the sum: measured", there, all, &Times::collected),
        curve("2 (N-1)/N bytes / rate", ring, all, load.unit(), ring_formula),
        curve("ring all-reduce: measured", ring, all, &Times::ring),
    };
    return plot;
}

/// Prints one verdict; false if it fails.
bool judge(const std::string& what, double value, Aim aim, double limit) {
    print_verdict(what, value, aim, limit);
    return aim == Aim::at_least ? value >= limit : value <= limit;
}

/// The margins allow for a busy machine.
bool judge_shape(const std::vector<Times>& all) {
    const Times& few = all.front();
    const Times& many = all.back();
    const std::string between = fixed(many.ranks, 0) + " ranks / " + fixed(few.ranks, 0);
    const double linear = naive_one_way(many.ranks) / naive_one_way(few.ranks);
    double ring_worst = 0;
    double ring_best = few.ring;
    for (const Times& times : all) {
        ring_worst = std::max(ring_worst, times.ring);
        ring_best = std::min(ring_best, times.ring);
    }
    bool met = judge("naive, at rank 0, " + between, many.collected / few.collected, Aim::at_least,
                     0.75 * linear);
    met &= judge("naive, at rank 0, " + between, many.collected / few.collected, Aim::at_most,
                 1.35 * linear);
    met &= judge("ring, slowest / fastest", ring_worst / ring_best, Aim::at_most, 2.25);
    met &= judge("naive / ring, " + fixed(many.ranks, 0) + " ranks", many.naive / many.ring,
                 Aim::at_least, 0.7 * naive_formula(many.ranks) / ring_formula(many.ranks));
    return met;
}

int run(const Options& options) {
    const Load load = load_of(options.quick);
    if (const Result<LinkNetwork> tried = LinkNetwork::lay(1, load.rate); !tried) {
        std::printf("links: left out: %s\n", tried.error().detail.c_str());
        return 0;
    }
    print_head("links: seconds that summing " +
               fixed(static_cast<double>(load.floats * sizeof(float)) / 1e6, 2) +
               " MB adds to a step, over links of " +
               fixed(load.rate.payload_bytes_per_second / 1e6, 0) + " MB/s");
    std::vector<Times> all;
    for (const std::size_t ranks : load.worlds) {
        const std::optional<Times> times = measure(options, load, ranks);
        if (!times) {
            return 1;
        }
        all.push_back(*times);
    }
    print_table(load, all);
    if (!options.svg.empty()) {
        std::ofstream file(options.svg);
        file << to_svg(plot_of(load, all));
        if (!file.flush()) {
            std::fprintf(stderr, "links_bench: cannot write %s\n", options.svg.c_str());
            return 1;
        }
    }
    return judge_shape(all) ? 0 : 1;
}

std::optional<Options> parse_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--quick") == 0) {
            options.quick = true;
        } else if (std::strcmp(argv[i], "--svg") == 0 && i + 1 < argc) {
            options.svg = argv[++i];
        } else if (options.rank_program.empty() && argv[i][0] != '-') {
            options.rank_program = std::filesystem::absolute(argv[i]);
        } else {
            return std::nullopt;
        }
    }
    return options.rank_program.empty() ? std::nullopt : std::optional(options);
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    const auto options = regroup::bench::parse_options(argc, argv);
    if (!options) {
        std::fprintf(stderr, "usage: links_bench LINKS_RANK [--quick] [--svg FILE]\n");
        return 2;
    }
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        std::signal(signal, [](int number) { regroup::bench::stopped_by = number; });
    }
    const int code = regroup::bench::run(*options);
    if (regroup::bench::stopped_by != 0) {
        std::signal(regroup::bench::stopped_by, SIG_DFL);
        std::raise(regroup::bench::stopped_by);
    }
    return code;
}
