// SPDX-License-Identifier: Apache-2.0
//
// One rank of snapshot_job_bench:
//
//     snapshot_worker FOLDER MEGABYTES_OF_RANK_0 MEGABYTES_OF_OTHERS STEP_MS BLOCKS
//
// Loads, and appends "loaded RANK STEP SECONDS" to FOLDER/facts. Then, BLOCKS times, ten steps
// after a save and ten without one, by turns; rank 0 appends "steps SECONDS_WITH SECONDS_WITHOUT"
// for each pair. At last all save, and append "ready PID STEP" when that is kept. In a step, rank 0
// does work of one thread that goes through memory; the others wait.
#include <regroup/regroup.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <span>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kStepsOfBlock = 10;

double seconds_of(const std::function<void()>& work) {
    const auto start = Clock::now();
    work();
    return std::chrono::duration<double>(Clock::now() - start).count();
}

void note(const std::string& folder, const std::string& fact) {
    std::ofstream(folder + "/facts", std::ios::app) << fact + "\n" << std::flush;
}

/// Work of fixed size, larger than the caches.
class Work {
   public:
    explicit Work(double milliseconds) {
        passes_ = 32;  // The first ones are slower.
        step();
        passes_ = static_cast<int>(32 * milliseconds / 1e3 / seconds_of([this] { step(); })) + 1;
    }
    void step() {
        for (int i = 0; i < passes_; ++i) {
            pass();
        }
    }

   private:
    static constexpr std::size_t kCount = std::size_t{8} << 20U;

    void pass() {
        for (float& value : values_) {
            value = value * 0.999F + 0.5F;
        }
    }

    std::vector<float> values_ = std::vector<float>(kCount, 1.0F);
    int passes_ = 1;
};

void save(regroup::Snapshot& snapshot, std::uint64_t step) {
    if (!snapshot.save(step)) {
        std::cerr << "step " << step << " is not kept\n";
    }
}

void await_kept(const regroup::Snapshot& snapshot, std::uint64_t step) {
    while (snapshot.kept_step() != step) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

struct Arguments {
    std::string folder;
    std::uint64_t first_count;  ///< Floats of rank 0.
    std::uint64_t other_count;
    double step_ms;
    int blocks;
};

void measure_steps(const Arguments& arguments, const regroup::Context& context,
                   regroup::ProcessGroup& group, regroup::Snapshot& snapshot, std::uint64_t& step) {
    Work work(arguments.step_ms);
    const auto block = [&] {
        for (int i = 0; i < kStepsOfBlock && context.rank == 0; ++i) {
            work.step();
        }
    };
    for (int i = 0; i < 2; ++i) {  // Which makes the memory.
        save(snapshot, ++step);
        await_kept(snapshot, step);
    }
    for (int i = 0; i < arguments.blocks; ++i) {
        const double with = seconds_of([&] {
            save(snapshot, ++step);
            block();
        });
        await_kept(snapshot, step);
        group.barrier().wait();
        const double without = seconds_of(block);
        group.barrier().wait();
        if (context.rank == 0) {
            note(arguments.folder, "steps " + std::to_string(with) + " " + std::to_string(without));
        }
    }
}

void run(const Arguments& arguments) {
    const regroup::Context context = regroup::Context::from_environment();
    const std::uint64_t count = context.rank == 0 ? arguments.first_count : arguments.other_count;
    const std::uint64_t offset =
        context.rank == 0 ? 0 : arguments.first_count + (context.rank - 1) * count;
    const std::uint64_t whole =
        arguments.first_count + (context.world_size - 1) * arguments.other_count;
    std::vector<float> values(count, 1.0F);
    regroup::Snapshot snapshot(context);
    snapshot.add("values", std::span(values), {{count}, {offset}, {whole}});
    std::uint64_t step = 0;
    const double seconds = seconds_of([&] { step = snapshot.load().value_or(0); });
    const std::string who = std::to_string(::getpid()) + " ";
    note(arguments.folder, "loaded " + std::to_string(context.rank) + " " + std::to_string(step) +
                               " " + std::to_string(seconds));
    const auto group = regroup::ProcessGroup::create("cpu", context);
    measure_steps(arguments, context, *group, snapshot, step);
    save(snapshot, ++step);
    await_kept(snapshot, step);
    group->barrier().wait();
    note(arguments.folder, "ready " + who + std::to_string(step));
    for (;;) {
        std::this_thread::sleep_for(std::chrono::hours(1));
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 6) {
        std::cerr
            << "usage: snapshot_worker FOLDER MEGABYTES_OF_RANK_0 MEGABYTES_OF_OTHERS STEP_MS "
               "BLOCKS\n";
        return 2;
    }
    try {
        constexpr std::uint64_t kFloats = 1'000'000 / sizeof(float);
        run({argv[1], std::stoull(argv[2]) * kFloats, std::stoull(argv[3]) * kFloats,
             std::stod(argv[4]), std::stoi(argv[5])});
        return 0;
    } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
