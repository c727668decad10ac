// SPDX-License-Identifier: Apache-2.0
// A training over the stand-in for NCCL, for hang_injection.py:
//
//     nccl_hang_worker FOLDER
//
// It knows nothing of regroup. FOLDER/plan says which rank fails at which step, and how. The ranks
// meet by a file there, and a rank that fails writes when. In every other attempt the program reads
// its metric only in each fourth step, and calls collectives ahead until then.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nccl.h>
#include <queue>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/stand_in_nccl/host_runtime.h"

namespace regroup::bench {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr std::size_t kBatch = 256;
constexpr std::size_t kFirstBucket = 4096;
constexpr std::size_t kSecondBucket = 1024;
constexpr auto kForward = 5ms;

int number_in(const char* variable) {
    const char* const text = std::getenv(variable);
    if (text == nullptr) {
        throw std::runtime_error(std::string(variable) + " is not set");
    }
    return std::atoi(text);
}

/// Readers see the whole file or none.
void write_file(const fs::path& path, const std::string& content) {
    const fs::path part = path.string() + ".part";
    std::ofstream(part, std::ios::binary) << content;
    fs::rename(part, path);
}

std::string read_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

struct Plan {
    Plan(const fs::path& folder, int rank, int attempt) {
        const auto json = nlohmann::json::parse(read_file(folder / "plan"));
        kind = json.at("kind").get<std::string>();
        seconds = std::chrono::duration<double>(json.value("seconds", 1e9));
        const auto& faults = json.at("faults");
        const auto index = static_cast<std::size_t>(attempt);
        if (index < faults.size() && faults[index].at("rank") == rank) {
            step = faults[index].at("step").get<std::int64_t>();
        }
        place = folder / ("fault" + std::to_string(attempt));
    }

    [[nodiscard]] bool fails(std::int64_t at, const std::string& how) const {
        return at == step && kind == how;
    }
    void tell_fault() const {
        const auto now = std::chrono::system_clock::now().time_since_epoch();
        write_file(place, std::to_string(std::chrono::duration<double>(now).count()));
    }

    std::string kind{};
    std::chrono::duration<double> seconds{};
    std::int64_t step = -1;  ///< At which this rank fails; negative: never.
    fs::path place{};
};

[[noreturn]] void sleep_for_ever() {
    while (true) {
        std::this_thread::sleep_for(1h);
    }
}

[[noreturn]] void spin_for_ever() {
    volatile std::uint64_t turns = 0;
    while (true) {
        turns = turns + 1;
    }
}

/// A data loader: its thread prepares batches ahead.
class Batches {
   public:
    explicit Batches(const Plan& plan) : plan_(plan) {
        std::thread([this] { fill(); }).detach();
    }

    std::vector<float> next() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !ready_.empty(); });
        std::vector<float> batch = std::move(ready_.front());
        ready_.pop();
        changed_.notify_all();
        return batch;
    }

   private:
    [[noreturn]] void fill() {
        constexpr std::size_t kAhead = 2;
        for (std::int64_t step = 0;; ++step) {
            if (plan_.fails(step, "loader")) {
                plan_.tell_fault();
                sleep_for_ever();
            }
            std::vector<float> batch(kBatch, static_cast<float>(step));
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return ready_.size() < kAhead; });
            ready_.push(std::move(batch));
            changed_.notify_all();
        }
    }

    const Plan& plan_;
    std::mutex mutex_{};
    std::condition_variable changed_{};
    std::queue<std::vector<float>> ready_{};
};

void check(ncclResult_t result) {
    if (result != ncclSuccess) {
        throw std::runtime_error(std::string("NCCL: ") + ncclGetErrorString(result));
    }
}

class Communicator {
   public:
    Communicator(const fs::path& id_file, int rank, int ranks) {
        ncclUniqueId id{};
        if (rank == 0) {
            check(ncclGetUniqueId(&id));
            write_file(id_file, std::string(id.internal, sizeof id.internal));
        }
        while (!fs::exists(id_file)) {
            std::this_thread::sleep_for(1ms);
        }
        read_file(id_file).copy(id.internal, sizeof id.internal);
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 1;
        check(ncclCommInitRankConfig(&comm_, ranks, id, rank, &config));
    }

    void all_reduce(std::vector<float>& values, ncclRedOp_t op = ncclSum) {
        ++called_;
        check(ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat32, op, comm_,
                            stream()));
    }
    void broadcast(std::vector<float>& values) {
        ++called_;
        check(ncclBroadcast(values.data(), values.data(), values.size(), ncclFloat32, 0, comm_,
                            stream()));
    }
    /// As in PyTorch.
    void barrier() { all_reduce(one_); }
    void synchronize() { stream_.synchronize(); }
    void destroy() {
        check(ncclCommFinalize(comm_));
        check(ncclCommDestroy(comm_));
    }
    /// The kernel of the next collective runs, and never ends.
    void let_next_hang() const {
        stand_in_nccl_faults(("op_never_at=" + std::to_string(called_ + 1)).c_str());
    }

   private:
    [[nodiscard]] cudaStream_t stream() {
        return reinterpret_cast<cudaStream_t>(static_cast<StandInStream*>(&stream_));
    }

    ncclComm_t comm_ = nullptr;
    testing::HostStream stream_{};
    std::vector<float> one_ = std::vector<float>(1);
    int called_ = 0;
};

/// The rank fails, unless its fault is one of its collectives or of its loader.
void inject(const Plan& plan, const Communicator& communicator) {
    if (plan.kind == "loader") {
        return;
    }
    plan.tell_fault();
    if (plan.kind == "sleep") {
        sleep_for_ever();
    } else if (plan.kind == "loop") {
        spin_for_ever();
    } else if (plan.kind == "stop") {
        (void)std::raise(SIGSTOP);
    } else if (plan.kind == "exit") {
        std::exit(0);
    } else if (plan.kind == "endless") {
        communicator.let_next_hang();
    }
}

/// The work of a step, without its collectives.
void run_forward(const Plan& plan, std::mt19937& random) {
    if (plan.kind == "uneven") {
        const double times = std::exp(std::uniform_real_distribution(0.0, std::log(10.0))(random));
        std::this_thread::sleep_for(300ms * times);
    } else {
        std::this_thread::sleep_for(kForward);
    }
}

void train(const fs::path& folder) {
    const int rank = number_in("RANK");
    const int attempt = number_in("TORCHELASTIC_RESTART_COUNT");
    // For a process that ends while other threads of it run.
    const auto& plan = *new Plan(folder, rank, attempt);
    auto& batches = *new Batches(plan);
    auto& communicator =
        *new Communicator(folder / ("id" + std::to_string(attempt)), rank, number_in("WORLD_SIZE"));
    std::vector<float> parameters(kFirstBucket + kSecondBucket, 1);
    communicator.broadcast(parameters);
    std::vector<float> first(kFirstBucket);
    std::vector<float> second(kSecondBucket);
    std::vector<float> metric(2);
    const auto end = std::chrono::steady_clock::now() + plan.seconds;
    std::mt19937 random(static_cast<std::uint32_t>(rank));
    const int read_each = attempt % 2 == 0 ? 1 : 4;
    std::int64_t step = 0;
    bool is_last = false;
    do {
        const std::vector<float> batch = batches.next();
        run_forward(plan, random);
        if (step == plan.step) {
            inject(plan, communicator);
        }
        if (step % read_each == 0) {  // Else collectives may be using them.
            const bool is_over = std::chrono::steady_clock::now() > end;
            std::ranges::fill(first, batch.front());
            std::ranges::fill(second, batch.back());
            metric = {batch.front(), is_over ? 1.0F : 0.0F};
        }
        // One of the two swaps.
        const bool swaps_buckets = plan.fails(step, "order") && step % 2 == 0;
        const bool swaps_barrier = plan.fails(step, "order") && step % 2 != 0;
        communicator.all_reduce(swaps_buckets ? second : first);
        communicator.all_reduce(swaps_buckets ? first : second);
        if (swaps_barrier) {
            communicator.all_reduce(metric, ncclMax);
            communicator.barrier();
        } else {
            if (!plan.fails(step, "skipped")) {
                communicator.barrier();
            }
            communicator.all_reduce(metric, ncclMax);
        }
        ++step;
        is_last = false;
        if (step % read_each == 0) {
            communicator.synchronize();
            is_last = metric[1] != 0;
        }
    } while (!is_last);
    if (rank == 0) {
        std::printf("%lld steps\n", static_cast<long long>(step));
        std::fflush(stdout);
    }
    communicator.destroy();
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fputs("usage: nccl_hang_worker FOLDER\n", stderr);
        return 2;
    }
    try {
        regroup::bench::train(argv[1]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "nccl_hang_worker: %s\n", error.what());
        return 1;
    }
    // The thread of the loader never ends.
    std::_Exit(0);
}
