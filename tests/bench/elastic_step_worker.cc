// SPDX-License-Identifier: Apache-2.0
//
// One rank of elastic_bench, whose steps only commit:
//
//     elastic_step_worker RESULT_FILE STEPS
//
// Rank 0 writes medians, in ns: a barrier, an all-reduce like the vote of a commit, an all-gather
// like the comparison of the ranks' work, a step, a step with such a comparison, a section.
#include <regroup/elastic_loop.h>
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <vector>

namespace regroup::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kWarmUp = 100;

double elapsed_ns(Clock::time_point since) {
    return std::chrono::duration<double, std::nano>(Clock::now() - since).count();
}

double median(std::vector<double>& values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// Before each step the same group runs the bare operations, so that all are measured under the
/// same load. The measurement of a step begins after them, on all ranks together.
class Measurement {
   public:
    explicit Measurement(std::uint64_t steps) : steps_(steps) {}

    void carry_out(ElasticStep& step) {
        const std::uint64_t number = step.number();
        if (number > kWarmUp) {
            steps_took_.push_back(elapsed_ns(began_));
        }
        if (number == kWarmUp + steps_) {
            return step.finish();
        }
        const auto before_barrier = Clock::now();
        step.group().barrier().wait();
        barriers_.push_back(elapsed_ns(before_barrier));
        std::array<std::int64_t, 7> words{};
        const auto before_vote = Clock::now();
        step.group().all_reduce(TensorView(std::span<std::int64_t>(words)), ReduceOp::max).wait();
        votes_.push_back(elapsed_ns(before_vote));
        const auto before_section = Clock::now();
        {
            const auto section = step.section("nothing");
        }
        sections_.push_back(elapsed_ns(before_section));
        began_ = Clock::now();
        step.commit({});
    }

    void write(const std::string& path) {
        std::FILE* const file = std::fopen(path.c_str(), "w");
        if (file == nullptr) {
            throw Error(Errc::system, "cannot write " + path);
        }
        std::fprintf(file, "%.0f %.0f %.0f %.0f\n", median(barriers_), median(votes_),
                     median(steps_took_), median(sections_));
        std::fclose(file);
    }

   private:
    const std::uint64_t steps_;
    Clock::time_point began_;
    std::vector<double> barriers_, votes_, sections_, steps_took_;
};

int run(const std::string& path, std::uint64_t steps) {
    ElasticLoop loop;
    std::vector<float> state(1);
    loop.register_state("state", TensorView(std::span<float>(state)));
    std::uint32_t rank = 0;
    Measurement measurement(steps);
    loop.run({.on_round = [&](const ElasticRound& round) { rank = round.context->rank; },
              .on_step = [&](ElasticStep& step) { measurement.carry_out(step); }});
    if (rank == 0) {
        measurement.write(path);
    }
    return 0;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    try {
        return argc == 3 ? regroup::bench::run(argv[1], std::stoull(argv[2])) : 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "elastic_step_worker: %s\n", error.what());
        return 1;
    }
}
