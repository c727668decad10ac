// SPDX-License-Identifier: Apache-2.0
//
// A fuzz target as libFuzzer knows it: REGROUP_FUZZ_TARGET is its namespace.
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/fuzz/targets.h"

/// `--write-seeds=FOLDER` as the first argument writes the seeds there and ends: libFuzzer reads
/// them as files.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
    constexpr std::string_view kFlag = "--write-seeds=";
    if (*argc < 2 || !std::string_view((*argv)[1]).starts_with(kFlag)) {
        return 0;
    }
    const std::string folder((*argv)[1] + kFlag.size());
    int number = 0;
    for (const std::string& seed : regroup::REGROUP_FUZZ_TARGET::target().seeds()) {
        std::ofstream file(folder + "/seed-" + std::to_string(number++), std::ios::binary);
        if (!file.write(seed.data(), static_cast<std::streamsize>(seed.size())).flush()) {
            std::fprintf(stderr, "cannot write seeds into %s\n", folder.c_str());
            std::exit(1);
        }
    }
    std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
    regroup::REGROUP_FUZZ_TARGET::target().test(bytes, count);
    return 0;
}
