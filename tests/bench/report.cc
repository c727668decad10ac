// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/report.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sys/utsname.h>
#include <thread>

#include "rendezvous/base/ensure.h"

namespace regroup::bench {
namespace {

constexpr std::chrono::milliseconds kLookAtLoad(500);
constexpr double kBusyPercent = 10;

struct CpuTime {
    std::uint64_t all = 0;
    std::uint64_t idle = 0;
};

CpuTime cpu_time() {
    std::ifstream file("/proc/stat");
    std::string word;
    file >> word;
    CpuTime time;
    constexpr int kIdleField = 3;
    constexpr int kFields = 8;
    std::uint64_t ticks = 0;
    for (int field = 0; field < kFields && file >> ticks; ++field) {
        time.all += ticks;
        time.idle += field == kIdleField ? ticks : 0;
    }
    return time;
}

/// The load of all cores, while this process sleeps.
double busy_percent() {
    const CpuTime before = cpu_time();
    std::this_thread::sleep_for(kLookAtLoad);
    const CpuTime now = cpu_time();
    const auto all = static_cast<double>(now.all - before.all);
    return all > 0 ? 100.0 - 100.0 * static_cast<double>(now.idle - before.idle) / all : 0;
}

}  // namespace

std::string processor() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("model name")) {
            return line.substr(line.find(':') + 2);
        }
    }
    return "unknown processor";
}

Summary summarize(std::vector<double> values) {
    ENSURE(!values.empty());
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    const double median =
        values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
    return {median, values.front(), values.back(), values.size()};
}

std::string fixed(double value, int decimals) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", decimals, value);
    return text;
}

Table::Table(std::vector<std::string> header) : rows_{std::move(header)} {}

void Table::add(std::vector<std::string> row) {
    ENSURE(row.size() == rows_.front().size());
    rows_.push_back(std::move(row));
}

void Table::print() const {
    std::vector<int> widths(rows_.front().size());
    for (const auto& row : rows_) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            widths[i] = std::max(widths[i], static_cast<int>(row[i].size()));
        }
    }
    for (const auto& row : rows_) {
        std::printf("  %-*s", widths[0], row[0].c_str());
        for (std::size_t i = 1; i < row.size(); ++i) {
            std::printf("  %*s", widths[i], row[i].c_str());
        }
        std::printf("\n");
    }
    std::fflush(stdout);
}

void print_head(const std::string& title) {
    const double busy = busy_percent();
    utsname kernel{};
    ::uname(&kernel);
    double load = 0;
    ::getloadavg(&load, 1);
    std::printf("%s\n  %s, %u cores, Linux %s, load average %.1f, %.0f %% busy\n", title.c_str(),
                processor().c_str(), std::thread::hardware_concurrency(), kernel.release, load,
                busy);
    if (busy > kBusyPercent) {
        std::printf("  WARNING: others are using this machine; times are inflated\n");
    }
    std::printf("\n");
    std::fflush(stdout);
}

void print_verdict(const std::string& what, double value, Aim aim, double limit) {
    const bool met = aim == Aim::at_least ? value >= limit : value <= limit;
    std::printf("  %-58s %7.2f   aim: %s %g   %s\n", what.c_str(), value,
                aim == Aim::at_least ? "at least" : "at most", limit, met ? "met" : "NOT MET");
    std::fflush(stdout);
}

}  // namespace regroup::bench
