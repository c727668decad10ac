// SPDX-License-Identifier: Apache-2.0
// Common parts of the workers of ddp_bench.
#pragma once

#include <regroup/process_group.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

namespace regroup::bench {

/// Wall time and processor time of this process, all threads.
struct Cost {
    double wall_ms = 0;
    double cpu_ms = 0;
};

[[nodiscard]] inline double process_cpu_ms() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

/// Measures `action`, which all ranks begin together.
[[nodiscard]] inline Cost measure(ProcessGroup& group, const std::function<void()>& action) {
    group.barrier().wait();
    const double cpu = process_cpu_ms();
    const auto begin = std::chrono::steady_clock::now();
    action();
    const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - begin;
    return {wall.count(), process_cpu_ms() - cpu};
}

[[nodiscard]] inline Cost median(std::vector<Cost> costs) {
    const auto middle = [&](double Cost::* member) {
        std::ranges::sort(costs, {}, member);
        return costs[costs.size() / 2].*member;
    };
    return {middle(&Cost::wall_ms), middle(&Cost::cpu_ms)};
}

/// One result for the benchmark: "name wall_ms cpu_ms". Only rank 0 has a file.
class Results {
   public:
    Results(const std::string& path, const ProcessGroup& group)
        : file_(group.rank() == 0 ? std::fopen(path.c_str(), "w") : nullptr) {}
    ~Results() {
        if (file_ != nullptr) {
            (void)std::fclose(file_);
        }
    }
    Results(const Results&) = delete;
    Results& operator=(const Results&) = delete;

    void add(const std::string& name, const Cost& cost) {
        if (file_ != nullptr) {
            std::fprintf(file_, "%s %.6f %.6f\n", name.c_str(), cost.wall_ms, cost.cpu_ms);
        }
    }

   private:
    std::FILE* file_;
};

}  // namespace regroup::bench
