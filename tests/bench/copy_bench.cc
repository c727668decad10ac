// SPDX-License-Identifier: Apache-2.0
// copy_bytes of the SDK beside memcpy of the C library: the rate of one thread, in GB/s.
//
//     copy_bench [--quick]
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <vector>

#include "tests/bench/report.h"
#include "worker_sdk/src/base/copy.h"

namespace {

using Clock = std::chrono::steady_clock;
using Copy = std::function<void(void*, const void*, std::size_t)>;

constexpr std::size_t kAlignment = 4096;
constexpr std::size_t kTurnBytes = std::size_t{64} << 20U;

struct Free {
    void operator()(std::byte* memory) const {
        ::operator delete(memory, std::align_val_t{kAlignment});
    }
};
using Memory = std::unique_ptr<std::byte, Free>;

Memory touched(std::size_t bytes) {
    Memory memory(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{kAlignment})));
    std::memset(memory.get(), 1, bytes);
    return memory;
}

/// The best of some turns: another program's share of the processor is not of interest.
double rate_of(const Copy& copy, std::byte* to, const std::byte* from, std::size_t bytes,
               int turns) {
    const std::size_t copies = std::max<std::size_t>(1, kTurnBytes / bytes);
    double best = 0;
    for (int turn = 0; turn < turns; ++turn) {
        const auto start = Clock::now();
        for (std::size_t i = 0; i < copies; ++i) {
            copy(to, from, bytes);
        }
        const std::chrono::duration<double> time = Clock::now() - start;
        best = std::max(best, static_cast<double>(copies * bytes) / time.count() / 1e9);
    }
    return best;
}

}  // namespace

int main(int argc, char** argv) {
    const bool quick = argc > 1 && std::string(argv[1]) == "--quick";
    std::printf("%s\n%10s %12s %12s\n", regroup::bench::processor().c_str(), "bytes", "memcpy",
                "copy_bytes");
    std::vector<std::size_t> sizes{std::size_t{4} << 10U, std::size_t{16} << 10U,
                                   std::size_t{256} << 10U, std::size_t{1} << 20U};
    if (!quick) {
        sizes.insert(sizes.end(), {std::size_t{8} << 20U, std::size_t{32} << 20U,
                                   std::size_t{128} << 20U, std::size_t{512} << 20U});
    }
    for (const std::size_t bytes : sizes) {
        const Memory from = touched(bytes);
        const Memory to = touched(bytes);
        const int turns = quick ? 2 : 20;
        const double libc = rate_of(
            [](void* out, const void* in, std::size_t count) { std::memcpy(out, in, count); },
            to.get(), from.get(), bytes, turns);
        const double ours = rate_of(regroup::copy_bytes, to.get(), from.get(), bytes, turns);
        if (std::memcmp(to.get(), from.get(), bytes) != 0) {
            std::fputs("the copy is wrong\n", stderr);
            return 1;
        }
        std::printf("%10zu %12.1f %12.1f\n", bytes, libc, ours);
    }
    return 0;
}
