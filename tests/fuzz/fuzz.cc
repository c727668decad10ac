// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "rendezvous/base/random.h"

namespace regroup::fuzz {

void fail(const std::string& what) {
    std::fprintf(stderr, "broken property: %s\n", what.c_str());
    std::abort();
}

std::vector<std::string> random_seeds() {
    Random random(20261125);
    std::vector<std::string> seeds(16);
    for (std::string& seed : seeds) {
        seed.resize(random.below(600));
        for (char& byte : seed) {
            byte = static_cast<char>(random.next());
        }
    }
    return seeds;
}

std::uint64_t Input::number(std::uint64_t max) {
    const std::uint8_t kind = byte();
    if (kind < 160) {
        return std::min<std::uint64_t>(kind % 16, max);
    }
    if (kind < 176) {
        return max - std::min<std::uint64_t>(kind % 4, max);
    }
    std::uint64_t value = 0;
    for (int i = kind < 216 ? 1 : kind < 236 ? 3 : 7; i >= 0; --i) {
        value = value << 8U | byte();
    }
    return max == UINT64_MAX ? value : value % (max + 1);
}

}  // namespace regroup::fuzz

/// `--write-seeds=FOLDER` as the first argument writes the seeds there and ends: libFuzzer reads
/// them as files.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
    constexpr std::string_view kFlag = "--write-seeds=";
    if (*argc < 2 || !std::string_view((*argv)[1]).starts_with(kFlag)) {
        return 0;
    }
    const std::string folder((*argv)[1] + kFlag.size());
    int number = 0;
    for (const std::string& seed : regroup::fuzz::seeds()) {
        std::ofstream file(folder + "/seed-" + std::to_string(number++), std::ios::binary);
        if (!file.write(seed.data(), static_cast<std::streamsize>(seed.size())).flush()) {
            std::fprintf(stderr, "cannot write seeds into %s\n", folder.c_str());
            std::exit(1);
        }
    }
    std::exit(0);
}
