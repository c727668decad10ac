// SPDX-License-Identifier: Apache-2.0
#include "agent/health/load_test.h"

#include <algorithm>
#include <array>
#include <barrier>
#include <bit>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sched.h>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "agent/process/affinity.h"
#include "rendezvous/cgroup/cgroup.h"

namespace regroup::health {

namespace {

constexpr std::size_t kSide = 128;  // Three such matrices fit into a CPU's own cache.
constexpr std::size_t kLanes = 8;
constexpr std::size_t kBlockMax = std::size_t{32} << 20U;
constexpr int kCpusMax = 1 << 16;

using Vector = double __attribute__((vector_size(kLanes * sizeof(double))));
using Matrix = std::array<double, kSide * kSide>;

struct Matrices {
    alignas(64) Matrix a;
    alignas(64) Matrix b;
    alignas(64) Matrix product;
};

// The order of the sums is fixed, so that the same instructions give the same bits on each CPU.
inline __attribute__((always_inline)) void multiply_rows(Matrices& m) {
    for (std::size_t row = 0; row < kSide; ++row) {
        for (std::size_t column = 0; column < kSide; column += kLanes) {
            Vector sum{};
            for (std::size_t k = 0; k < kSide; ++k) {
                Vector part;
                std::memcpy(&part, &m.b[k * kSide + column], sizeof part);
                sum += m.a[row * kSide + k] * part;
            }
            std::memcpy(&m.product[row * kSide + column], &sum, sizeof sum);
        }
    }
}

void multiply_plain(Matrices& m) {
    multiply_rows(m);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void multiply_avx2(Matrices& m) {
    multiply_rows(m);
}
__attribute__((target("avx512f"))) void multiply_avx512(Matrices& m) {
    multiply_rows(m);
}
#endif

using Multiply = void (*)(Matrices&);

#if defined(__x86_64__)
/// The names of the instruction sets that the kernel lets programs use, as in /proc/cpuinfo. The
/// compiler's __builtin_cpu_supports would cost each start of the program 0.1 ms on a virtual
/// machine, where each CPUID is a trap.
std::set<std::string> cpu_flags() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("flags")) {
            std::istringstream words(line);
            return {std::istream_iterator<std::string>(words), {}};
        }
    }
    return {};
}
#endif

Multiply best_multiply() {
#if defined(__x86_64__)
    const std::set<std::string> flags = cpu_flags();
    if (flags.contains("avx512f")) {
        return multiply_avx512;
    }
    if (flags.contains("avx2") && flags.contains("fma")) {
        return multiply_avx2;
    }
#endif
    return multiply_plain;
}

void fill(Matrices& m) {
    std::uint64_t state = 1;
    const auto next = [&state] {
        state = state * 6364136223846793005U + 1442695040888963407U;
        return static_cast<double>(state >> 11U) * 0x1p-52 - 1;  // From -1 to 1.
    };
    for (std::size_t index = 0; index < m.a.size(); ++index) {
        m.a[index] = next();
        m.b[index] = next();
    }
}

std::uint64_t digest_of(const Matrix& matrix) {
    std::uint64_t digest = 0;
    for (const double value : matrix) {
        digest = std::rotl(digest, 5) * 3 ^ std::bit_cast<std::uint64_t>(value);
    }
    return digest;
}

bool move_to(int cpu) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
        CPU_ALLOC(kCpusMax), [](cpu_set_t* owned) { CPU_FREE(owned); });
    const std::size_t bytes = CPU_ALLOC_SIZE(kCpusMax);
    CPU_ZERO_S(bytes, set.get());
    CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set.get());
    return ::sched_setaffinity(0, bytes, set.get()) == 0;
}

void compute(Duration limit, CpuResult& result) {
    const auto matrices = std::make_unique<Matrices>();
    fill(*matrices);
    const Multiply multiply = best_multiply();
    const SteadyClock clock;
    const Instant begin = clock.now();
    std::uint64_t count = 0;
    do {
        multiply(*matrices);
        const std::uint64_t digest = digest_of(matrices->product);
        result.digest = count == 0 ? digest : result.digest;
        result.repeats = result.repeats && digest == result.digest;
        ++count;
    } while (clock.now() - begin < limit);
    result.products_per_second = static_cast<double>(count) / to_seconds(clock.now() - begin);
}

/// Bytes of a second that this thread read and wrote.
double copy(Duration limit, std::size_t block) {
    std::vector<std::byte> from(block, std::byte{1});
    std::vector<std::byte> to(block, std::byte{2});
    const SteadyClock clock;
    const Instant begin = clock.now();
    double bytes = 0;
    do {
        std::memcpy(to.data(), from.data(), block);
        from.swap(to);
        bytes += 2 * static_cast<double>(block);
    } while (clock.now() - begin < limit);
    return bytes / to_seconds(clock.now() - begin);
}

std::size_t block_size(std::size_t cpus) {
    return std::clamp<std::size_t>(memory_left() / 16 / std::max<std::size_t>(1, cpus), 4096,
                                   kBlockMax);
}

}  // namespace

std::uint64_t memory_left(const std::filesystem::path& root) {
    const auto left = static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_AVPHYS_PAGES))) *
                      static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    return std::min(left, cgroup::memory_left(root).value_or(left));
}

void probe_cpus(const LoadLimits& limits, Probed& result) {
    struct Task {
        CpuResult result;
        bool runs = false;
        double copied = 0;
    };
    const Result<std::vector<int>> allowed = agent::allowed_cpus();
    const std::vector<int> cpus = allowed ? *allowed : std::vector<int>();
    const std::size_t block = block_size(cpus.size());
    std::vector<Task> tasks(cpus.size());
    std::barrier together(static_cast<std::ptrdiff_t>(cpus.size()));
    std::vector<std::thread> threads;
    const auto use_cpu = [&](std::size_t index) {
        Task& task = tasks[index];
        task.result.cpu = cpus[index];
        task.runs = move_to(cpus[index]);  // The CPU may have been taken away meanwhile.
        if (task.runs) {
            compute(limits.computing, task.result);
        }
        together.arrive_and_wait();
        task.copied = copy(limits.copying, block);
    };
    for (std::size_t index = 0; index < cpus.size(); ++index) {
        try {
            threads.emplace_back(use_cpu, index);
        } catch (const std::system_error&) {
            together.arrive_and_drop();  // No thread could be started: nothing is known of the CPU.
        }
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    // The kernel stops CPUs beyond the quota in turn, and no speed is that of the CPU.
    const auto quota = cgroup::cpu_quota();
    const bool is_measured = !quota || quota->cpus >= static_cast<double>(cpus.size());
    for (const Task& task : tasks) {
        if (task.runs) {
            CpuResult& cpu = result.cpus.emplace_back(task.result);
            cpu.products_per_second = is_measured ? cpu.products_per_second : 0;
        }
        result.copied_per_second += task.copied;
    }
}

}  // namespace regroup::health
